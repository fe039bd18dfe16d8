"""Arguments -> settings -> a command or the app: the composition root. Owns exit codes and how errors look.

Must not do any command's work. What a command needs is imported when it runs, so that `kvchat --help` is fast.
Exit codes: 0 done, 1 the request failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from kvchat import cli_stored
from kvchat.arguments import parse, whole_parser
from kvchat.clean import clean
from kvchat.config import Settings, load_settings
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.paths import Paths

if TYPE_CHECKING:
    from kvchat.backend.head_start import HeadStart


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    _prepare_streams()
    try:
        code = _run(parse(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except KvchatError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # somebody had read enough
        _forget_stdout()
        return 1
    except OSError as error:  # a full disk, a file that is gone: nothing that a traceback would explain
        _forget_stdout()
        _print_error(KvchatError(str(error)))
        return 1
    return code


def _run(given: argparse.Namespace) -> int:
    commands = {
        "": _app,
        "ask": _ask,
        "bench": _bench,
        "doctor": _doctor,
        "plan": _plan,
        "chats": cli_stored.chats,
        "models": cli_stored.models,
        "kv": cli_stored.kv,
        "paths": _where,
        "completions": _completions,
    }
    return commands[given.command](given)


def _app(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = load_settings(paths, os.environ, vars(given))
    chat, continue_last = _opening(given, settings)
    if hasattr(given, "plain"):
        return _plain(settings, paths, chat, continue_last)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the app needs a terminal", 'without one: kvchat --plain, or kvchat ask "..."')
    if os.environ.get("TERM") == "dumb":
        raise UsageError("the app cannot draw on this terminal (TERM=dumb)", "in lines of text: kvchat --plain")
    gc.disable()  # the app turns it on after its first frame, which comes a tenth sooner without
    with _head_start(settings, paths) as ahead:
        from kvchat.ui.app import run_app
        from kvchat.ui.launch import any_engine

        engine = partial(any_engine, ahead=ahead)
        return run_app(settings, paths, continue_last=continue_last, chat_id=chat, engine_factory=engine)


@contextmanager
def _head_start(settings: Settings, paths: Paths) -> Iterator[HeadStart | None]:
    """An engine process that gets ready while we do; none where a server answers."""
    if settings.remote is not None:
        yield None
        return
    from kvchat.backend.head_start import HeadStart

    with HeadStart(paths.log_file) as ahead:
        yield ahead


def _plain(settings: Settings, paths: Paths, chat: str | None, continue_last: bool) -> int:
    with _head_start(settings, paths) as ahead:
        from kvchat.backend.switching import SwitchingEngine
        from kvchat.commands.plain import run_plain

        return run_plain(
            settings,
            paths,
            chat=chat,
            continue_last=continue_last,
            out=sys.stdout,
            err=sys.stderr,
            stdin=sys.stdin,
            engine_factory=partial(SwitchingEngine, ahead=ahead),
        )


def _ask(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = load_settings(paths, os.environ, vars(given))
    chat, continue_last = _opening(given, settings)
    with _head_start(settings, paths) as ahead:
        from kvchat.backend.switching import SwitchingEngine
        from kvchat.commands.ask import run_ask
        from kvchat.commands.several import count_of

        return run_ask(
            getattr(given, "question", []),
            settings,
            paths,
            chat=chat,
            continue_last=continue_last,
            resume=hasattr(given, "resume"),
            prefix=getattr(given, "prefix", None),
            json=hasattr(given, "json"),
            out=sys.stdout,
            err=sys.stderr,
            stdin=sys.stdin,
            count=count_of(getattr(given, "n", "1")),
            engine_factory=partial(SwitchingEngine, ahead=ahead),
        )


def _bench(given: argparse.Namespace) -> int:
    parts = getattr(given, "parts", [])
    if parts[:1] in (["compare"], ["show"]):
        return _kept_reports(given, parts[0], parts[1:])
    from kvchat.commands.bench import Asked, run_bench

    words = ("types", "threads", "depths", "repeat", "html", "chat", "text")
    said = {name: vars(given).pop(name, None) for name in words}  # --threads may be several here
    asked = Asked(parts, quick=hasattr(given, "quick"), json=hasattr(given, "json"), **said)
    paths = Paths.find(os.environ)
    return run_bench(asked, load_settings(paths, os.environ, vars(given)), paths, out=sys.stdout, err=sys.stderr)


def _kept_reports(given: argparse.Namespace, action: str, files: Sequence[str]) -> int:
    from kvchat.commands.bench_kept import run_compare, run_show

    if vars(given).keys() - {"command", "parts", "json"} - ({"html"} if action == "show" else set()):
        raise UsageError(f"kvchat bench {action} takes files and --json", "kvchat bench --help")
    json = hasattr(given, "json")
    if action == "show":
        return run_show(files, html=getattr(given, "html", None), json=json, out=sys.stdout)
    return run_compare(files, json=json, out=sys.stdout)


def _doctor(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    from kvchat.commands.doctor import run_doctor

    return run_doctor(load_settings(paths, os.environ, vars(given)), paths, json=hasattr(given, "json"), out=sys.stdout)


def _plan(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = load_settings(paths, os.environ, vars(given))
    from kvchat.commands.plan import run_plan

    return run_plan(
        given.name,
        settings,
        paths,
        draft=settings.model_draft if "model_draft" in settings.given else None,
        json=hasattr(given, "json"),
        out=sys.stdout,
    )


def _where(given: argparse.Namespace) -> int:
    from kvchat.commands.where import run_paths

    return run_paths(Paths.find(os.environ), json=hasattr(given, "json"), out=sys.stdout)


def _completions(given: argparse.Namespace) -> int:
    from kvchat.commands.completions import run_completions

    return run_completions(whole_parser(), given.shell, out=sys.stdout)


def _opening(given: argparse.Namespace, settings: Settings) -> tuple[str | None, bool]:
    chat = getattr(given, "chat", None)
    continue_last = hasattr(given, "continue_last")
    if settings.incognito and (chat is not None or continue_last or hasattr(given, "resume")):
        raise UsageError(
            "an incognito session does not look at the chats on disk, and goes on with none of them",
            "leave out -c, --chat and --resume, or incognito",
        )
    if chat is not None and continue_last:
        raise UsageError("-c and --chat name two chats", "-c goes on with the last chat, --chat ID with any")
    return chat, continue_last


def _print_error(error: KvchatError) -> None:
    print(f"error: {clean(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {clean(error.hint)}", file=sys.stderr)


def _prepare_streams() -> None:
    """All three exist, and do not fail for a character that the locale cannot say or read.

    The number of a closed one would go to the next file that is opened, perhaps the database, and stray prints with it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_stdout() -> None:
    """Our output cannot be written: Python must not try again at exit."""
    with suppress(io.UnsupportedOperation):  # not a file: nothing is written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

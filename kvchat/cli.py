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
from collections.abc import Sequence
from contextlib import suppress

from kvchat.arguments import parse, whole_parser
from kvchat.clean import clean
from kvchat.config import Settings, load_settings
from kvchat.config_options import BY_KEY
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.paths import Paths


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
        "chats": _chats,
        "models": _models,
        "kv": _kv,
        "paths": _where,
        "completions": _completions,
    }
    return commands[given.command](given)


def _settings(given: argparse.Namespace, paths: Paths) -> Settings:
    return load_settings(paths, os.environ, {key: getattr(given, key) for key in BY_KEY if hasattr(given, key)})


def _app(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = _settings(given, paths)
    chat, continue_last = _opening(given, settings)
    if hasattr(given, "plain"):
        return _plain(settings, paths, chat, continue_last)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the app needs a terminal", 'without one: kvchat --plain, or kvchat ask "..."')
    if os.environ.get("TERM") == "dumb":
        raise UsageError("the app cannot draw on this terminal (TERM=dumb)", "in lines of text: kvchat --plain")
    gc.disable()  # the app turns it on after its first frame, which comes a tenth sooner without
    from kvchat.ui.app import run_app

    return run_app(settings, paths, continue_last=continue_last, chat_id=chat)


def _plain(settings: Settings, paths: Paths, chat: str | None, continue_last: bool) -> int:
    from kvchat.commands.plain import run_plain

    return run_plain(
        settings,
        paths,
        chat=chat,
        continue_last=continue_last,
        out=sys.stdout,
        err=sys.stderr,
        stdin=sys.stdin,
    )


def _ask(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = _settings(given, paths)
    chat, continue_last = _opening(given, settings)
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
    return run_bench(asked, _settings(given, paths), paths, out=sys.stdout, err=sys.stderr)


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

    return run_doctor(_settings(given, paths), paths, json=hasattr(given, "json"), out=sys.stdout)


def _plan(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    settings = _settings(given, paths)
    from kvchat.commands.plan import run_plan

    return run_plan(
        given.name,
        settings,
        paths,
        draft=settings.model_draft if "model_draft" in settings.given else None,
        json=hasattr(given, "json"),
        out=sys.stdout,
    )


def _chats(given: argparse.Namespace) -> int:
    if given.action in {"export", "import"}:
        return _transfer(given)
    if given.action == "empty-trash" or hasattr(given, "purge"):
        return _purge(given)
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    from kvchat.commands import chats

    if given.action == "rm" and hasattr(given, "yes"):
        raise UsageError("chats rm asks nothing without --purge", "leave out --yes, or add --purge")
    match given.action:
        case "ls":
            return chats.run_ls(paths, json=json, out=out, trash=hasattr(given, "trash"))
        case "search":
            return chats.run_search(paths, given.query, json=json, out=out)
        case "rename":
            return chats.run_rename(paths, given.name, given.title, json=json, out=out)
    one = {
        "rm": chats.run_rm,
        "restore": chats.run_restore,
        "pin": chats.run_pin,
        "unpin": chats.run_unpin,
        "show": chats.run_show,
    }
    return one[given.action](paths, given.name, json=json, out=out)


def _purge(given: argparse.Namespace) -> int:
    paths = Paths.find(os.environ)
    from kvchat.commands.chats_purge import run_empty_trash, run_purge

    yes, json = hasattr(given, "yes"), hasattr(given, "json")
    if given.action == "empty-trash":
        return run_empty_trash(paths, yes=yes, json=json, out=sys.stdout, stdin=sys.stdin)
    return run_purge(paths, given.name, yes=yes, json=json, out=sys.stdout, stdin=sys.stdin)


def _models(given: argparse.Namespace) -> int:
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    settings = _settings(given, paths)
    if given.action == "pull":
        from kvchat.commands.pull import run_pull

        sha256 = getattr(given, "sha256", None)
        return run_pull(
            settings, paths, getattr(given, "name", None), sha256=sha256, json=json, out=out, err=sys.stderr
        )
    if given.action in {"scan", "rm"}:
        from kvchat.commands import models_files

        if given.action == "scan":
            return models_files.run_scan(settings, paths, getattr(given, "folders", ()), json=json, out=out)
        yes = hasattr(given, "yes")
        return models_files.run_rm(settings, paths, given.name, yes=yes, json=json, out=out, stdin=sys.stdin)
    if given.action == "ls":
        from kvchat.commands.models import run_ls

        return run_ls(paths, json=json, out=out, folders=settings.model_folders)
    from kvchat.commands.models_show import run_show

    return run_show(paths, given.name, json=json, out=out, folders=settings.model_folders)


def _transfer(given: argparse.Namespace) -> int:
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    from kvchat.commands.transfer import run_export, run_import

    if given.action == "import":
        return run_import(paths, given.files, json=json, out=out)
    return run_export(
        paths,
        getattr(given, "name", None),
        everything=hasattr(given, "everything"),
        form=getattr(given, "form", None),
        target=getattr(given, "output", None),
        json=json,
        out=out,
    )


def _where(given: argparse.Namespace) -> int:
    from kvchat.commands.where import run_paths

    return run_paths(Paths.find(os.environ), json=hasattr(given, "json"), out=sys.stdout)


def _completions(given: argparse.Namespace) -> int:
    from kvchat.commands.completions import run_completions

    return run_completions(whole_parser(), given.shell, out=sys.stdout)


def _kv(given: argparse.Namespace) -> int:
    paths, json, out = Paths.find(os.environ), hasattr(given, "json"), sys.stdout
    if given.action == "pin":
        return _pin(given, paths)
    if given.action == "transcode":
        return _transcode(given, paths)
    from kvchat.commands import kv, prefixes

    if given.action == "unpin":
        return prefixes.run_unpin(paths, given.name, json=json, out=out)
    if given.action == "gc":
        return kv.run_gc(paths, _settings(given, paths), json=json, out=out)
    if given.action in ("ls", "verify"):
        run = kv.run_ls if given.action == "ls" else kv.run_verify
        return run(paths, json=json, out=out)
    return kv.run_show(paths, given.name, json=json, out=out)


def _pin(given: argparse.Namespace, paths: Paths) -> int:
    names = [getattr(given, name) for name in ("name", "prefix_name") if hasattr(given, name)]
    if len(names) != 1:
        raise UsageError("which prefix?" if not names else "two names for one prefix", "kvchat kv pin --name NAME")
    from kvchat.commands.prefixes_pin import Wanted, run_pin

    wanted = Wanted(names[0], getattr(given, "files", ()), getattr(given, "system", None), hasattr(given, "replace"))
    settings = _settings(given, paths)
    json = hasattr(given, "json")
    return run_pin(wanted, settings, paths, json=json, out=sys.stdout, err=sys.stderr, stdin=sys.stdin)


def _transcode(given: argparse.Namespace, paths: Paths) -> int:
    both = getattr(given, "to", None)
    type_k, type_v = getattr(given, "to_k", both), getattr(given, "to_v", both)
    if type_k is None and type_v is None:
        raise UsageError("into which cache type?", "--to q8_0, or --k TYPE and --v TYPE")
    from kvchat.commands.kv_transcode import run_transcode

    return run_transcode(
        given.name,
        _settings(given, paths),
        paths,
        type_k=type_k,
        type_v=type_v,
        json=hasattr(given, "json"),
        out=sys.stdout,
    )


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

"""`kvchat kv pin`: a named beginning of chats, computed once and kept. Owns what is asked for, the wait, and what is
told; the work is done by the engine, as in the app.

Until it is done nothing of it is known: one that is broken off leaves no prefix behind.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from kvchat.backend.client import EngineFactory
from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Pinned, Pinning, Ready
from kvchat.backend.switching import SwitchingEngine
from kvchat.chats.prefixes import Document, Prefix, proper_name
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.clean import clean_line
from kvchat.commands.prefixes import drop_orphans, listed, seconds_text, told
from kvchat.commands.printing import Printer
from kvchat.commands.starting import asked_at, configured
from kvchat.commands.table import size_text
from kvchat.commands.turn import Inbox, Interrupt, catch_signals
from kvchat.config import Settings
from kvchat.conversation.prefixes import PinsInTheMaking, new_prefix
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.fenced import fenced, read_text
from kvchat.kv.pinned import unpin
from kvchat.library.find import drop_in_folders, find_files
from kvchat.paths import Paths, ensure_private


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be pinned: the prefix of that name as it is kept, unless there are `files` or a `system` prompt. Then
    these, with `replace` in place of one that has the name."""

    name: str
    files: Sequence[str] = ()
    system: str | None = None
    replace: bool = False

    @property
    def is_new(self) -> bool:
        """Whether it brings a text of its own."""
        return bool(self.files) or self.system is not None


def run_pin(
    wanted: Wanted,
    settings: Settings,
    paths: Paths,
    *,
    json: bool,
    out: TextIO,
    err: TextIO,
    stdin: TextIO,
    engine_factory: EngineFactory = SwitchingEngine,
) -> int:
    """Compute a prefix with the model and cache types of the settings, and keep it; the exit code. KvchatError when it
    cannot be, or when there is one of this name with another text."""
    if wanted.replace and not wanted.is_new:
        raise UsageError("--replace needs something to put in its place", "--system TEXT, --file FILE")
    if settings.incognito or not settings.kv:
        raise KvchatError("a prefix is kept on disk, and nothing is to be kept now", "without --incognito and --no-kv")
    documents = [read_document(name) for name in wanted.files]
    ensure_private(paths.state_folder)
    inbox = Inbox()
    printer = Printer(out, err, quiet=json)
    with ExitStack() as stack:
        store = StoreThread(paths.chats_db, inbox.put)
        stack.callback(store.close)
        store.run(lambda chats: drop_orphans(paths.kv_folder, chats)).result()
        old = store.run(lambda chats: chats.prefixes.named(proper_name(wanted.name))).result()
        again = f"`kvchat kv pin {wanted.name if old is None else old.name}` computes that one again"
        prefix = chosen(wanted, old, documents, taken=f"--replace puts this in its place; {again}")
        models = find_files(paths, drop_in_folders(settings.model_folders))
        latest = store.run(ChatStore.latest).result()
        start = configured(settings, paths, models, None, latest, note=printer.note, anyway=asked_at(stdin, err))
        if start.config.remote is not None:
            raise KvchatError("a server keeps KV of its own, if any", "-m NAME takes a model of this machine")
        config = replace(start.config, draft_path=None, parallel=1)  # nobody answers
        engine = engine_factory(config, inbox.put, paths.state_folder, paths.log_file)
        stack.callback(engine.close)
        with catch_signals(inbox):
            engine.start()
            progress = _Progress(err)
            stack.callback(progress.end)
            wait = PinWait(inbox, printer, PinsInTheMaking(store, engine), show=progress.show)
            done = wait.run(prefix, new=prefix is not old, at_once=False)
        if done is None:
            return INTERRUPTED
        if old is not None and prefix is not old:
            unpin(paths.kv_folder, old.id)
    _print(prefix, done, paths, json=json, out=out)
    return 0


def read_document(name: str) -> Document:
    """A file as it stands in a prefix. KvchatError, which names it, when it cannot be one."""
    path = Path(name)
    shown = clean_line(name)
    text = read_text(path, shown, "a prefix takes files of text, in UTF-8")
    if not text.strip():
        raise KvchatError(f"{shown} is empty", "leave it out")
    called = path.name if path.is_absolute() else path.as_posix()
    return Document(clean_line(called), fenced(text, called))


def chosen(wanted: Wanted, old: Prefix | None, documents: Sequence[Document], *, taken: str) -> Prefix:
    """The prefix that is computed. One that says the same as before is that one. `taken`: what helps where the name is
    that of another one."""
    name = clean_line(wanted.name)
    if not wanted.is_new:
        if old is None:
            raise KvchatError(f'there is no prefix "{name}"', "make one with --system TEXT, --file FILE, or both")
        return old
    new = new_prefix(wanted.name, wanted.system or "", documents)
    if old is not None and (old.system, old.documents) == (new.system, new.documents):
        return old
    if old is not None and not wanted.replace:
        raise KvchatError(f'there is a prefix "{old.name}" with another text', taken)
    return new


class PinWait:
    """The wait for the end of a pin."""

    def __init__(
        self,
        inbox: Inbox,
        printer: Printer,
        pins: PinsInTheMaking,
        *,
        show: Callable[[Pinning], object] = lambda _: None,
        also: Callable[[Event], object] = lambda _: None,
    ) -> None:
        """`show` is told how far it is, `also` of everything that the engine says."""
        self._inbox = inbox
        self._printer = printer
        self._pins = pins
        self._show = show
        self._also = also

    def run(self, prefix: Prefix, *, new: bool, at_once: bool) -> Pinned | None:
        """What came of it, on disk by then; None when somebody interrupts. KvchatError when nothing did. `at_once`: the
        engine was started before; else it begins when that is ready."""
        pins = self._pins
        if at_once:
            pins.begin(prefix)
        while True:
            item = self._inbox.next()
            if not isinstance(item, Interrupt | KvchatError):
                self._also(item)
            match item:
                case Interrupt() if pins.making:
                    pins.cancel(pins.making[0].turn)
                case Interrupt():
                    return None
                case LoadFailed(failure=failure):
                    raise KvchatError(failure.message, failure.hint)
                case KvchatError():
                    raise item
                case EngineDied(cause=cause):
                    self._printer.note(cause)
                case Ready() if not pins.making:
                    pins.begin(prefix)
                case Pinning():
                    self._show(item)
                case Pinned():
                    return _kept(item, pins, new=new)


class _Progress:
    """One line on a terminal, in place; nothing elsewhere."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._shown = ""

    def show(self, told: Pinning) -> None:
        line = f"computing: {told.done:,} of {told.total:,} tokens"
        if self._err.isatty() and line != self._shown:
            print(f"\r{line.ljust(len(self._shown))}", end="", file=self._err, flush=True)
            self._shown = line

    def end(self) -> None:
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=self._err, flush=True)


def _kept(pinned: Pinned, pins: PinsInTheMaking, *, new: bool) -> Pinned | None:
    taken = pins.apply(pinned, new=new)
    if pinned.failure is not None:
        raise KvchatError(pinned.failure.message, pinned.failure.hint)
    if taken is None or taken[1] is None:
        return None
    taken[1].result()
    return pinned


def _print(prefix: Prefix, done: Pinned, paths: Paths, *, json: bool, out: TextIO) -> None:
    if json:
        entries = [each for each in listed(paths) if each.prefix.id == prefix.id]
        entries = [each for each in entries if each.computation and each.computation.last_key == done.last_key]
        print(jsonlib.dumps([told(each) | {"computed": done.computed} for each in entries], indent=2), file=out)
        return
    types = done.type_k if done.type_k == done.type_v else f"{done.type_k}/{done.type_v}"
    print(
        f"{clean_line(prefix.name)}: {done.tokens:,} tokens for {clean_line(done.model)} ({types}), "
        f"{size_text(done.size)}; {done.computed:,} were computed now, all of them take {seconds_text(done.seconds)}",
        file=out,
    )

"""The chat of `kvchat --plain`: the open conversation, its engine, and its turns. Must not read lines or know commands.

All of it happens on the calling thread, as in `kvchat ask`; what other threads say comes by the inbox.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

from kvchat.backend.client import EngineClient, EngineFactory
from kvchat.backend.guarding import REFUTED
from kvchat.backend.protocol import ConfigureFailed, Event, LoadFailed, Loading, Pinned, Ready
from kvchat.backend.values import EngineConfig, Remote, Usage
from kvchat.chats.prefixes import Prefix
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat
from kvchat.choosing import check_conversation, choice_to_keep, known_remotes, may_go_out
from kvchat.commands.plain_printing import PlainPrinter
from kvchat.commands.prefixes_pin import PinWait
from kvchat.commands.report import summary
from kvchat.commands.several import SeveralWatch, finish_several
from kvchat.commands.starting import configured
from kvchat.commands.summarizing import watch_turn
from kvchat.commands.turn import Inbox, Interrupt, Outcome, catch_signals
from kvchat.config import Settings
from kvchat.config_remote import remote_named
from kvchat.conversation import Conversation, Said
from kvchat.conversation.overflow_words import cannot_evict
from kvchat.conversation.prefixes import PinsInTheMaking
from kvchat.conversation.too_long import larger_context
from kvchat.errors import INTERRUPTED, KvchatError
from kvchat.leftovers import tidy
from kvchat.library.find import ModelFile, drop_in_folders, find_files
from kvchat.paths import Paths, close_to_others, ensure_private

ENDS = {
    "cancelled": "Stopped. /continue goes on.",
    "length": "The answer ends at the limit of new tokens. /continue goes on.",
    "context": "The context is full, so the answer ends here. /overflow says what may leave, /continue then goes on.",
}


class PlainChat:
    """What stays while chats, models and caches change. A context manager: at its end engine and store are closed."""

    def __init__(self, settings: Settings, paths: Paths, printer: PlainPrinter, make: EngineFactory) -> None:
        self._settings = settings
        self._paths = paths
        self._printer = printer
        self._make = make
        self._inbox = Inbox()
        self._stack = ExitStack()
        self.store: StoreThread
        self.engine: EngineClient
        self.models: Sequence[ModelFile] = ()
        self.conversation: Conversation
        self._failed: LoadFailed | None = None  # there is no engine, and none will come by itself
        self.ending = False  # somebody wants the program to end
        self.was_incognito = settings.incognito  # there was something that is gone at the end

    def begin(self, wanted: str | None, last: bool) -> Self:
        """Open the chat `wanted`, or the last one, or a new one, and start the engine for it. KvchatError: there is no
        such chat, no model, or the folders cannot be used."""
        ensure_private(self._paths.state_folder)
        self._stack.callback(self._say_unsaved)
        self.store = StoreThread(None if self._settings.incognito else self._paths.chats_db, self._inbox.put)
        self._stack.callback(self.store.close)
        about_files = (*close_to_others(self._paths), *tidy(self._paths))
        for remark in (*about_files, *self.store.run(lambda opened: opened.remarks).result()):
            self._printer.note(remark)
        latest = self.store.run(ChatStore.latest).result()
        old = self.store.run(ChatStore.resolve, wanted).result() if wanted is not None else latest if last else None
        if last and old is None:
            raise KvchatError("there are no chats yet", "kvchat --plain starts one")
        found = find_files(self._paths, drop_in_folders(self._settings.model_folders))
        self.models = [model for model in found if not model.unfit]
        config = configured(
            self._settings, self._paths, found, old, latest, note=self._printer.note, anyway=lambda *_: False
        ).config
        self.engine = self._make(config, self._hear, self._paths.state_folder, self._paths.log_file)
        if old is None:
            self.new()
        else:
            self.open(old.id)
        check_conversation(self.conversation, config, self._settings)
        self._stack.callback(self.engine.close)
        self.engine.start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ which chat

    def new(self, system: str = "", *, incognito: bool = False, prefix: Prefix | None = None) -> None:
        """A chat without messages; `system` "" takes the system prompt of the settings. `incognito`: in memory alone,
        as all are where the store is; it is gone when another one is opened. `prefix`: it begins with that."""
        settings = self._settings
        store = self.store
        if incognito:
            store = StoreThread(None, self._inbox.put)
            self._stack.callback(store.close)
            self.was_incognito = True
        self.conversation = Conversation.start(
            store,
            self.engine,
            system=system or settings.system or "" if prefix is None else prefix.text,
            clock=None if prefix is None else prefix.clock,
            prefix=None if prefix is None else prefix.id,
            sampling=settings.sampling,
            history=settings.history,
            keep_kv=settings.kv,
            draft=settings.draft,
            overflow=settings.overflow,
            new=Said(settings.new_draft, settings.new_overflow),
        )
        self._tell_failure()

    def open(self, chat_id: str) -> None:
        """Another chat."""
        settings = self._settings
        self.conversation = Conversation.open(
            self.store,
            self.engine,
            chat_id,
            system=settings.new_system,
            sampling=settings.sampling,
            history=settings.history,
            keep_kv=settings.kv,
            draft=settings.draft,
            overflow=settings.overflow,
            new=Said(settings.new_draft, settings.new_overflow),
        ).result()
        self._tell_failure()

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """The servers that can be named."""
        return known_remotes(self._settings)

    def server(self, name: str) -> Remote:
        """The one of this name. KvchatError: there is none, or it may not be asked."""
        remote = remote_named(name, self.remotes)
        may_go_out(self._settings, remote)
        return remote

    def chats(self) -> tuple[Chat, ...]:
        """All chats, the last used first."""
        return tuple(summary.chat for summary in self.store.run(ChatStore.chats).result())

    def find(self, words: str) -> Chat:
        """The chat that `words` name. KvchatError: none, or several."""
        return self.store.run(ChatStore.resolve, words).result()

    # ------------------------------------------------------------------ turns

    def turn(self, begin: Callable[[], Future[None]]) -> str:
        """Carry out one turn, and say how it went: how it ended. KvchatError when there is no answer, KeyboardInterrupt
        when somebody interrupts twice."""
        with catch_signals(self._inbox), self._catch_end():
            begin().result()
            if self.conversation.went_on:
                self._printer.note(self.conversation.went_on)
            outcome, _ = watch_turn(self.conversation, self.engine.config, self._inbox, self._printer)
        self._forget_interrupts()
        self._keep_choice()
        return self._finish(outcome)

    def several(self, begin: Callable[[], Future[None]]) -> str:
        """Carry out the turns of several answers, and say how they went: how the first one ended. KvchatError when one
        is no answer, KeyboardInterrupt when somebody interrupts twice."""
        with catch_signals(self._inbox), self._catch_end():
            begin().result()
            watch = SeveralWatch(self.conversation, self.engine.config, self._inbox, self._printer)
            outcome = watch.run()
        self._forget_interrupts()
        self._keep_choice()
        ready = outcome.ready or self.engine.ready
        code = finish_several(watch, ready, self.conversation, self._printer, json=False)
        return "cancelled" if code == INTERRUPTED else "stop"

    def _finish(self, outcome: Outcome) -> str:
        finished = outcome.finished
        if finished is None:
            return "cancelled"
        if finished.usage.save_problem:
            self._printer.note(f"the KV state of this turn is not kept: {finished.usage.save_problem}")
        if finished.usage.cut == "check":
            self._printer.note(REFUTED)
        if finished.failure is not None and finished.usage.excess:
            raise KvchatError(finished.failure.message, self._room_hint(finished.usage))
        if finished.failure is not None:
            raise KvchatError(finished.failure.message, finished.failure.hint or "/continue goes on")
        if finished.reason in {"error", "died"}:
            raise KvchatError("the engine gave up on this turn", "what had come is kept; /continue goes on")
        if finished.reason in ENDS:
            self._printer.status(ENDS[finished.reason])
        self._printer.status(status(finished.usage))
        if unsaved := self.conversation.unsaved:
            raise KvchatError(f"this answer could not be saved: {unsaved.message}", unsaved.hint)
        return finished.reason

    def _room_hint(self, usage: Usage) -> str:
        """What helps when the conversation does not fit."""
        ready = self.engine.ready
        larger = larger_context(usage.prompt_tokens, 0 if ready is None else ready.model.context_trained)
        ways = "/edit shortens your message, /new starts another chat"
        if ready is not None and not cannot_evict(ready):
            ways += ", /overflow says what may leave before a /retry"
        return ways if larger is None else f"{ways}, kvchat --plain -c --ctx-size {larger} makes room, and then /retry"

    def _keep_choice(self) -> None:
        """The chat remembers with what it is run. Without that it can still go on."""
        choice = choice_to_keep(self.engine.config, self._settings, self.conversation.chat)
        try:
            self.conversation.set_engine(choice).result()
        except KvchatError as error:
            self._printer.problem(error)

    # ------------------------------------------------------------------ the engine

    def configure(self, config: EngineConfig) -> Ready | None:
        """Go over to another model or cache, and wait until it is there; None: somebody did not want to wait.
        KvchatError: it cannot be had."""
        with catch_signals(self._inbox), self._catch_end():
            self._catch_up()
            self.engine.configure(config)
            while True:
                item = self._inbox.next()
                match item:
                    case Interrupt():
                        return None
                    case KvchatError():
                        self._printer.problem(item)
                        continue
                self.conversation.apply(item)
                match item:
                    case Ready() if item == self.engine.ready:  # else it is that of the configuration from before
                        for note in item.notes:
                            self._printer.note(note)
                        return item
                    case LoadFailed(failure=failure) | ConfigureFailed(failure=failure):
                        raise KvchatError(failure.message, failure.hint)

    @property
    def kv_folder(self) -> Path:
        """Where KV is kept."""
        return self._paths.kv_folder

    def pin(self, prefix: Prefix, *, new: bool) -> Pinned | None:
        """Have a prefix computed, and wait for that; None: somebody did not want to wait. `new`: it is kept then.
        KvchatError: it cannot be."""
        pins = PinsInTheMaking(self.store, self.engine)
        with catch_signals(self._inbox), self._catch_end():
            wait = PinWait(self._inbox, self._printer, pins, also=self.conversation.apply)
            done = wait.run(prefix, new=new, at_once=True)
        self._forget_interrupts()
        return done

    # ------------------------------------------------------------------ inside

    def _hear(self, event: Event) -> None:
        """On the engine's thread."""
        match event:
            case LoadFailed():
                self._failed = event
            case Loading() | Ready():
                self._failed = None
        self._inbox.put(event)

    def _tell_failure(self) -> None:
        """What a conversation that was not there cannot know."""
        if self._failed is not None:
            self.conversation.apply(self._failed)

    def _catch_up(self) -> None:
        """Take over what came after the last turn: that an engine is gone says nothing of the next one."""
        while not self._inbox.empty():
            match item := self._inbox.get_nowait():
                case KvchatError():
                    self._printer.problem(item)
                case Interrupt():
                    continue
                case _:
                    self.conversation.apply(item)

    @contextmanager
    def _catch_end(self) -> Iterator[None]:
        """A request to end, or the end of the terminal, interrupts as Ctrl+C does, and is remembered."""

        def end(_signal: int, _frame: FrameType | None) -> None:
            self.ending = True
            self._inbox.put(Interrupt())

        before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _forget_interrupts(self) -> None:
        """One that came when the answer had just ended is not meant for the next."""
        kept = []
        while not self._inbox.empty():
            kept.append(self._inbox.get_nowait())
        for item in kept:
            if not isinstance(item, Interrupt):
                self._inbox.put(item)

    def _say_unsaved(self) -> None:
        for error in self._inbox.errors():
            self._printer.problem(error)


def status(usage: Usage) -> str:
    """The line after an answer."""
    saved = f" · saved {usage.saved_seconds:.1f} s" if usage.saved_seconds >= 0.05 else ""
    return summary(usage) + saved

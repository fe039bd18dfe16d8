"""What the app has below its screen, for a soak: the chats, an engine process, the conversations that are open.

Every event reaches all of them, as in the app. Must not decide what is done.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvchat.backend.local import Engine
from kvchat.backend.protocol import (
    ConfigureFailed,
    EngineDied,
    Event,
    Forget,
    Forgotten,
    LoadFailed,
    Pinned,
    Pinning,
    TurnFinished,
)
from kvchat.backend.values import EngineConfig, Sampling
from kvchat.chats.ids import new_ulid
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message
from kvchat.conversation import Conversation
from kvchat.conversation.prefixes import PinsInTheMaking
from kvchat.errors import KvchatError

PATIENCE = 120.0  # seconds without an event after which something hangs
PROGRAM = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("soak_engine.py")))


class Stuck(AssertionError):
    """Nothing comes any more."""


class Program:
    """`problems` are sentences about what must not happen. `finished` counts the turns that came to their ends."""

    def __init__(self, home: Path, config: EngineConfig) -> None:
        self.home = home
        self.kv_folder = home / "kv"
        self.problems: list[str] = []
        self.finished = 0
        self.pids: set[int] = set()
        self.open: dict[str, Conversation] = {}
        self._events: queue.SimpleQueue[Event | KvchatError] = queue.SimpleQueue()
        self.store = StoreThread(home / "chats.db", self._events.put)
        self.engine = Engine(config, self._events.put, home / "state", home / "logs" / "engine.log", PROGRAM)
        self.pins = PinsInTheMaking(self.store, self.engine)
        self.engine.start()
        self.until(lambda: self.engine.ready is not None)

    # ------------------------------------------------------------------ chats

    def start(self, store: StoreThread | None = None, **options: object) -> Conversation:
        """A new chat, in memory alone with a `store` that is."""
        return self._keep(Conversation.start(store or self.store, self.engine, **options))  # type: ignore[arg-type]

    def opened(self, chat: str, sampling: Sampling) -> Conversation:
        """A chat, from disk if it is not open."""
        if chat in self.open:
            return self.open[chat]
        return self._keep(Conversation.open(self.store, self.engine, chat, sampling=sampling).result(PATIENCE))

    def _keep(self, conversation: Conversation) -> Conversation:
        self.open[conversation.chat.id] = conversation
        return conversation

    # ------------------------------------------------------------------ the engine

    def configure(self, config: EngineConfig) -> None:
        """Another cache, or another model in a new process; wait until it is there."""
        self.engine.configure(config)
        self.until(lambda: self.engine.ready is not None)

    def forget(self) -> None:
        """Have the engine empty its cells, and wait until what it wrote is on disk."""
        asked = Forget(new_ulid())
        self.engine.forget(asked)
        self.until(lambda: False, lambda event: isinstance(event, Forgotten) and event.turn == asked.turn)

    # ------------------------------------------------------------------ events

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is being made that has an end."""
        busy = any(each.is_working or each.summary_progress is not None for each in self.open.values())
        return not busy and not self.pins.making

    def settle(self) -> None:
        """Wait until nothing goes on and everything is on disk."""
        self.until(lambda: self.is_quiet)
        for conversation in self.open.values():
            conversation.store.run(_nothing).result(PATIENCE)
            if conversation.unsaved is not None:
                self.problems.append(f"a reply is not on disk: {conversation.unsaved.message}")
        self.store.run(_nothing).result(PATIENCE)

    def until(
        self, done: Callable[[], bool], enough: Callable[[Event], bool] = lambda _: False, patience: float = PATIENCE
    ) -> bool:
        """Hand on events until `done`, or until one is `enough`. False: nothing came for `patience` seconds, if that is
        less than what nothing may take."""
        quiet_since = time.monotonic()
        while not done():
            try:
                event = self._events.get(timeout=0.02)
            except queue.Empty:  # what the store thread did is news without an event
                if time.monotonic() - quiet_since < patience:
                    continue
                if patience < PATIENCE:
                    return False
                raise Stuck(f"nothing comes: {[each.live for each in self.open.values()]}") from None
            quiet_since = time.monotonic()
            self._take(event)
            if not isinstance(event, KvchatError) and enough(event):
                break
        return True

    def _take(self, event: Event | KvchatError) -> None:
        if self.engine.pid is not None:
            self.pids.add(self.engine.pid)
        match event:
            case KvchatError() as error:
                self.problems.append(f"not saved: {error.message}")
                return
            case EngineDied() | LoadFailed() | ConfigureFailed():
                self.problems.append(str(event))
            case TurnFinished(failure=failure, usage=usage):
                self.finished += 1
                if failure is not None and not usage.excess:
                    self.problems.append(f"a turn failed: {failure}")
            case Pinning() | Pinned():
                self.pins.apply(event, new=True)
        for conversation in tuple(self.open.values()):
            conversation.apply(event)

    def close(self) -> None:
        """End the engine, then the store."""
        self.open.clear()
        self.engine.close()
        self.store.close()


def fresh_answer(program: Program, chat: str, sampling: Sampling, home: Path) -> Message:
    """The last reply of a chat, written again in a copy by an engine that knows nothing: new process, no pages."""
    config = replace(program.engine.config, kv_folder=None)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(config, events.put, home / "state", home / "fresh.log")
    engine.start()
    try:
        copy = program.store.run(lambda store: store.duplicate(chat)).result(PATIENCE)
        conversation = Conversation.open(
            program.store, engine, copy.id, sampling=sampling, draft="off", keep_kv=False
        ).result(PATIENCE)
        while engine.ready is None:
            conversation.apply(events.get(timeout=PATIENCE))
        conversation.regenerate().result(PATIENCE)
        while conversation.is_working:
            conversation.apply(events.get(timeout=PATIENCE))
        program.store.run(_nothing).result(PATIENCE)
    finally:
        engine.close()
    return conversation.messages[-1]


def _nothing(_store: object) -> None:
    """What is done when all that was given before is."""

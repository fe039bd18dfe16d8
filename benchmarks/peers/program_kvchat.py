"""kvchat as `kvchat ask` puts it together, kept open: chat database, conversations, engine process; no screen.

Settings are the defaults but for what the harness sets. While nothing is asked the engine measures what its settings
cost, as in the app; "rested" waits for that. Nothing is read while a person types: there is nobody.
"""

from __future__ import annotations

import dataclasses
import queue
from pathlib import Path
from typing import Any

from wire import Wire

from kvchat.backend.fidelity import Guarded
from kvchat.backend.head_start import HeadStart
from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Ready, TextDelta, Tuned, TurnFinished
from kvchat.backend.switching import SwitchingEngine
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings, engine_config, load_settings
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError
from kvchat.paths import Paths, ensure_private

SILENCE = 120.0  # seconds after which the engine is given up
Inbox = queue.SimpleQueue[Event | KvchatError]


class Program:
    """The open chats, and what waits for their turns."""

    def __init__(self, wire: Wire, given: dict[str, Any], paths: Paths, ahead: HeadStart) -> None:
        self._wire = wire
        self._inbox: Inbox = queue.SimpleQueue()
        self._chats: dict[str, Conversation] = {}
        ensure_private(paths.state_folder)
        self._settings: Settings = load_settings(paths, {}, given["flags"])
        self._store = StoreThread(paths.chats_db, self._inbox.put)
        config = engine_config(self._settings, Path(given["model"]), paths)
        self._engine = SwitchingEngine(config, self._inbox.put, paths.state_folder, paths.log_file, ahead)
        self._tuned = self._guarded = False
        self._engine.start()
        while not isinstance(event := self._next(), Ready):
            pass
        wire.tell("ready", cache=dataclasses.asdict(event.cache), notes=event.notes, load=event.load_seconds)

    def _next(self) -> Event:
        try:
            event = self._inbox.get(timeout=SILENCE)
        except queue.Empty:
            raise SystemExit(f"nothing came from the engine for {SILENCE:.0f} seconds") from None
        if isinstance(event, KvchatError):
            raise event
        if isinstance(event, EngineDied | LoadFailed):
            raise SystemExit(str(event))
        self._tuned = self._tuned or isinstance(event, Tuned)
        self._guarded = self._guarded or isinstance(event, Guarded)
        return event

    def rest(self) -> None:
        """After an answer: until flash attention, the cost of checking drafts and that of the cache types are known."""
        while not (self._tuned and self._guarded):
            self._next()
        ready = self._engine.ready
        assert ready is not None
        self._wire.tell("rested", cache=dataclasses.asdict(ready.cache))

    def ask(self, command: dict[str, Any]) -> None:
        """One turn, in a chat that is open, on disk (`id`) or new. All turns of a chat have one number of tokens."""
        sampling = dataclasses.replace(self._settings.sampling, temperature=0.0, max_tokens=command["tokens"])
        chat = self._chats.get(command["chat"])
        if chat is None:
            draft = command.get("draft", self._settings.draft)
            if command.get("id"):
                chat = Conversation.open(
                    self._store, self._engine, command["id"], sampling=sampling, draft=draft
                ).result()
            else:
                chat = Conversation.start(
                    self._store, self._engine, system=command["system"], sampling=sampling, draft=draft
                )
            self._chats[command["chat"]] = chat
        chat.submit(command["text"]).result()
        self._follow(chat)

    def _follow(self, chat: Conversation) -> None:
        finished = None
        while chat.is_working:
            event = self._next()
            chat.apply(event)
            if isinstance(event, TextDelta) and event.text:
                self._wire.tell("text")
            if isinstance(event, TurnFinished):
                finished = event
        assert finished is not None
        if finished.failure is not None:
            raise SystemExit(finished.failure.message)
        usage = finished.usage
        self._wire.tell(
            "done",
            id=chat.chat.id,
            tokens=usage.decode_tokens,
            prompt=usage.prompt_tokens,
            computed=usage.computed,
            text=chat.messages[-1].text,
            usage=dataclasses.asdict(usage),
        )

    def close(self) -> None:
        """As `ask` ends: the engine writes its last pages."""
        self._engine.close()
        self._store.close()

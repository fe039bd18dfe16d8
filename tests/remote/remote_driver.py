"""Drives the client of a server as the app does."""

from __future__ import annotations

import queue

from kvchat.backend.choices import EngineConfig, Remote
from kvchat.backend.protocol import Event, Generate, LoadFailed, Ready, TextDelta, TurnFinished
from kvchat.backend.remote import RemoteEngine
from kvchat.backend.remote_wire import Patience
from kvchat.backend.values import PromptMessage, Sampling

GREEDY = Sampling(temperature=0, max_tokens=16)
QUICK = Patience(connect=2.0, models=2.0, silence=20.0)


class Talk:
    """A conversation with a server, which keeps what was said."""

    def __init__(self, url: str, *, patience: Patience = QUICK, **remote: str) -> None:
        self.remote = Remote("lab", url, **remote)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.engine = RemoteEngine(EngineConfig("").on(self.remote), self.events.put, patience)
        self.messages: list[PromptMessage] = []
        self.turns = 0

    def start(self) -> Ready | LoadFailed:
        self.engine.start()
        event = self.events.get(timeout=30)
        assert isinstance(event, Ready | LoadFailed), event
        return event

    def submit(self, text: str | None = None, **request: object) -> str:
        """Send a message, or what there is; the name of the turn."""
        if text is not None:
            self.messages.append(PromptMessage("user", text))
        self.turns += 1
        turn = f"t{self.turns}"
        given = {"sampling": GREEDY, **request}
        self.engine.submit(Generate(turn, tuple(self.messages), **given))  # type: ignore[arg-type]
        return turn

    def until_text(self) -> str:
        """Wait for the first piece of an answer."""
        while True:
            event = self.events.get(timeout=30)
            if isinstance(event, TextDelta):
                return event.text

    def end(self, before: str = "") -> tuple[str, TurnFinished]:
        """Wait for the end of a turn; its text behind `before`, which is kept."""
        text = before
        while True:
            event = self.events.get(timeout=60)
            if isinstance(event, TextDelta):
                text += event.text
            if isinstance(event, TurnFinished):
                self.messages.append(PromptMessage("assistant", text))
                return text, event

    def ask(self, text: str | None = None, **request: object) -> tuple[str, TurnFinished]:
        self.submit(text, **request)
        return self.end()

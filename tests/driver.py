"""Drives a real engine process through its client, as the app does, and keeps the conversation's token ids."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, PromptReady, Ready, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling

GREEDY = Sampling(temperature=0, max_tokens=16)


@dataclass
class Answer:
    """Everything that came for one turn."""

    events: list[Event]
    text: str
    ids: tuple[int, ...]
    segments: tuple[tuple[int, ...], ...]
    finished: TurnFinished

    @property
    def usage(self):
        return self.finished.usage


@dataclass
class Driver:
    """One engine, one conversation."""

    engine: Engine
    events: queue.SimpleQueue
    messages: list[PromptMessage] = field(default_factory=list)
    turns: int = 0

    @classmethod
    def start(cls, home: Path, model: Path, **config) -> Driver:
        events: queue.SimpleQueue = queue.SimpleQueue()
        config = {"context": 1024, "threads": 1, "extra_buffers": False, "kv_folder": str(home / "kv")} | config
        engine = Engine(EngineConfig(str(model), **config), events.put, home / "state", home / "logs" / "engine.log")
        engine.start()
        return cls(engine, events)

    def until(self, *kinds: type, timeout: float = 60) -> list[Event]:
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=timeout))
        return seen

    def ready(self) -> Ready:
        event = self.until(Ready, LoadFailed)[-1]
        assert isinstance(event, Ready), event
        return event

    def ask(self, text: str | None, *, meanwhile: Callable[[Event], None] = lambda event: None, **request) -> Answer:
        """A user message and its answer; None goes on with the conversation as it stands."""
        if text is not None:
            self.messages.append(PromptMessage("user", text))
        self.turns += 1
        # drafts change batch shapes, and so the noise: exact comparisons do without
        request = {"sampling": GREEDY, "draft": "off"} | request
        self.engine.submit(Generate(f"t{self.turns}", tuple(self.messages), **request))
        events: list[Event] = []
        while not events or not isinstance(events[-1], TurnFinished):
            events.append(self.events.get(timeout=60))
            meanwhile(events[-1])
        deltas = [event for event in events if isinstance(event, TextDelta)]
        answer = Answer(
            events,
            "".join(delta.text for delta in deltas),
            tuple(token for delta in deltas for token in delta.ids),
            next((event.segments for event in events if isinstance(event, PromptReady)), ()),
            events[-1],
        )
        self._keep(answer, continued=bool(request.get("continue_reply")))
        return answer

    def _keep(self, answer: Answer, *, continued: bool) -> None:
        pairs = zip(self.messages, answer.segments, strict=False)
        self.messages[: len(answer.segments)] = [replace(message, ids=ids) for message, ids in pairs]
        before = self.messages.pop() if continued else PromptMessage("assistant", "", ())
        self.messages.append(PromptMessage("assistant", before.text + answer.text, before.ids + answer.ids))

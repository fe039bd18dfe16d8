"""An engine that says what a test tells it to, in place of kvchat.backend.local.Engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fake_backend import turn_events

from kvchat.backend.fidelity import Measure
from kvchat.backend.protocol import Event, Generate, Pin, Ready, Summarize
from kvchat.backend.values import EngineConfig

Script = Callable[[Generate], Iterator[Event]]


def answer(*pieces: str) -> Script:
    """A script that answers with these pieces of text."""
    return lambda request: iter(turn_events(request, pieces))


class ScriptedEngine:
    """Posts `begin` when it is started and what `script` yields for a turn, on a thread of its own. A script goes on
    until it is at its end; a cancel sets `cancelled`, which the script may wait for. Is its own factory."""

    def __init__(self, begin: Iterable[Event], script: Script) -> None:
        self.begin = begin
        self.script = script
        self.configs: list[EngineConfig] = []
        self.requests: list[Generate] = []
        self.measures: list[Measure] = []
        self.summaries: list[Summarize] = []
        self.pins: list[Pin] = []
        self.pinned: Callable[[Pin], Iterable[Event]] = lambda command: ()
        self.summarized: Callable[[Summarize], Iterable[Event]] = lambda command: ()
        self.measured: Callable[[Measure], Iterable[Event]] = lambda command: ()
        self.cancelled = threading.Event()
        self.closed = False
        self.ready: Ready | None = None

    def __call__(
        self, config: EngineConfig, post: Callable[[Event], None], state_folder: Path, log_file: Path
    ) -> ScriptedEngine:
        self.configs.append(config)
        self.post = post
        self.cancelled.clear()
        self.closed = False
        self.ready = None
        return self

    def start(self) -> None:
        threading.Thread(target=self._play, args=(self.begin,)).start()

    def submit(self, request: Generate) -> None:
        self.requests.append(request)
        threading.Thread(target=self._play, args=(self.script(request),)).start()

    def measure(self, command: Measure) -> None:
        self.measures.append(command)
        threading.Thread(target=self._play, args=(self.measured(command),)).start()

    def summarize(self, command: Summarize) -> None:
        self.summaries.append(command)
        threading.Thread(target=self._play, args=(self.summarized(command),)).start()

    def pin(self, command: Pin) -> None:
        self.pins.append(command)
        threading.Thread(target=self._play, args=(self.pinned(command),)).start()

    def cancel(self, turn: str) -> None:
        assert turn == self.requests[-1].turn
        self.cancelled.set()

    def close(self, patience: float = 0.0) -> None:
        self.closed = True

    def _play(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Ready):
                self.ready = event
            self.post(event)

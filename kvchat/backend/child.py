"""One engine process as its client knows it. Owns what is owed for it, how long it may be silent and how long its end
may take; must not start or judge it."""

from __future__ import annotations

import pickle
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

from kvchat.backend.fidelity import Measure
from kvchat.backend.journal import Choice
from kvchat.backend.outbox import Outbox
from kvchat.backend.protocol import Cancel, Command, Event, Generate, Pin, Summarize, Waits
from kvchat.backend.values import EngineConfig

GOODBYE = 6.0  # seconds that an engine may take to write its last pages after the pipe is closed
SILENCE = 60.0  # seconds without an event after which a turn says that nothing is heard
HUNG = 120.0  # seconds without an event after which an engine that was told to stop a turn is ended
STOPS = 10.0  # seconds that it has for that in any case
LEAVES = 15.0  # seconds after which one that shall end while nobody waits for it is ended; it takes no 8 by itself
DYING = 1.0  # seconds that an end may take after which nothing can be written any more
LARGEST = 256 << 20  # bytes of an event; the ids of a prompt of millions of tokens are fewer
SILENT = "nothing is heard of the engine; stopping the answer ends it, and starts another one"
_DEAF = "did not react any more and was ended"
_STRANGE = "said what cannot be understood and was ended"
_LINGERS = "closed its pipe and was ended"
_GARBAGE = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    LookupError,
    TypeError,
    ValueError,
    MemoryError,
)


@dataclass(slots=True)
class Change:
    """A change of configuration under way, and what stood before it."""

    choice: Choice
    config: EngineConfig
    failed: bool = False


@dataclass(slots=True)
class Child:
    """One engine process and what is owed for it."""

    process: subprocess.Popen[bytes]
    connection: Connection
    outbox: Outbox
    choice: Choice
    log_start: int
    ready: bool = False
    loaded: bool = False  # it was ready once, and may have something to write
    refused: bool = False
    replaced: bool = False
    drafting: bool = False  # its model stands, and it is loading a draft model
    measuring: bool = False  # it was asked to measure itself and has not told the result
    guarding: bool = False  # it was asked to check its cache types and has not told the verdict
    asked: deque[Change] = field(default_factory=deque)  # configurations that it has not answered yet
    heard: float = field(default_factory=time.monotonic)  # when the last event came
    begun: float = 0.0  # when the first of the turns that it owes was asked for
    silent: bool = False  # so long ago that its turns were told
    fault: str = ""  # why we ended it
    turns: dict[str, bool] = field(default_factory=dict)  # turn -> whether its restore is over
    aside: dict[str, Measure | Summarize | Pin] = field(default_factory=dict)  # begun beside the chat, end not told

    def begin(self, command: Generate | Measure | Summarize | Pin) -> bool:
        """Have something done whose end is owed from now on, and told by the reader if the engine is gone. False: the
        engine does not listen, and it is not taken."""
        if isinstance(command, Generate):
            if not self.turns:
                self.begun = time.monotonic()
            self.turns[command.turn] = False
        else:
            self.aside[command.turn] = command
        if self.outbox.put(command):
            return True
        self.turns.pop(command.turn, None)
        self.aside.pop(command.turn, None)
        return False

    def send(self, command: Command) -> None:
        """Have a command sent for which nothing is owed."""
        self.outbox.put(command)
        if isinstance(command, Cancel):
            _watch(STOPS, self._end_if_deaf, command.turn)

    def hang_up(self) -> None:
        """Have it end by itself: it reads the end of the pipe while we still read what it says. One that somebody
        stopped goes on for that."""
        self.outbox.hang_up()
        self.process.send_signal(signal.SIGCONT)

    def replace(self) -> None:
        """Have it make room for another one."""
        self.replaced = True
        self.hang_up()
        _watch(LEAVES, self._end_if_there)

    def is_gone(self, patience: float) -> bool:
        """Wait for its end after `hang_up`. One that has never been ready has nothing to write, and is killed; so is
        one that takes longer than GOODBYE. With less patience than that it is left to end by itself."""
        if not self.loaded:
            self.end("was ended before it was ready")
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            if patience < GOODBYE:
                _watch(LEAVES, self._end_if_there)
                return False
            self.end(_DEAF)
            self.process.wait()
        return True

    @property
    def _since(self) -> float:
        """Since when nothing is heard, though there is something to say."""
        return max(self.heard, self.begun)

    def next_event(self, post: Callable[[Event], None]) -> Event:
        """Wait for what the engine says next. Meanwhile the turns that it owes are told when nothing is heard of it,
        and that something is heard again. Raises EOFError or OSError at the end of the pipe."""
        told = 0.0
        while not self.connection.poll(max(0.0, self._left(told))):
            if self._left(told) <= 0:  # else the first turn was asked for meanwhile
                told = time.monotonic()
                self.silent = self._tell(SILENT, post) or self.silent
        event = self._read()
        self.heard = time.monotonic()
        if self.silent:
            self.silent = False
            self._tell("", post)
        return event

    def end(self, why: str) -> None:
        """Kill it. `why`, if it is the first reason, is read on from "the engine "."""
        self.fault = self.fault or why
        self.process.kill()

    def wait(self) -> int:
        """The return code of one that closed its end of the pipe, which is what its end does. One that lives on is
        ended: nothing is heard of it any more."""
        try:
            return self.process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            self.end(_LINGERS)
            return self.process.wait()

    def _read(self) -> Event:
        """An engine that says what cannot be understood is ended: nothing that comes after it could be."""
        try:
            raw = self.connection.recv_bytes(LARGEST)
        except ConnectionError:
            raise
        except OSError:  # a length that cannot be, or the end within an event, which is the end of the process
            if not self._dies():
                self.end(_STRANGE)
            raise
        try:
            event: Event = ForkingPickler.loads(raw)
        except _GARBAGE as error:
            self.end(_STRANGE)
            raise EOFError from error
        return event

    def _dies(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(DYING)
        return self.process.returncode is not None

    def _end_if_deaf(self, turn: str) -> None:
        """Kill one that was told to stop a turn, has not, and has said nothing else for long: one that computes a
        large batch of a large model on a slow machine is silent for a while, too."""
        if not self.ready or turn not in self.turns:
            return
        left = HUNG - (time.monotonic() - self._since)
        if left > 0:
            _watch(left, self._end_if_deaf, turn)
        else:
            self.end(_DEAF)

    def _end_if_there(self) -> None:
        if self.process.poll() is None:
            self.end(_DEAF)

    def _left(self, told: float) -> float:
        """Seconds until the turns are told, after they were told at that time."""
        return SILENCE - (time.monotonic() - max(self._since, told))

    def _tell(self, why: str, post: Callable[[Event], None]) -> bool:
        """Tell the turns; whether there are any."""
        turns = tuple(self.turns) if self.ready else ()
        for turn in turns:
            post(Waits(turn, why))
        return bool(turns)


def _watch(seconds: float, look: Callable[..., None], *arguments: object) -> None:
    timer = threading.Timer(seconds, look, arguments)
    timer.daemon = True
    timer.start()


def same_process(old: EngineConfig, new: EngineConfig) -> bool:
    """Whether the loaded model serves both."""
    return _loaded(old) == _loaded(new)


def _loaded(config: EngineConfig) -> tuple[object, ...]:
    """What a model is loaded with. Adapters and positions hold for all of its contexts."""
    how = config.model_path, config.gpu_layers, config.extra_buffers
    return (*how, config.hardware, config.rope, config.lora)


def is_fault_of_draft(child: Child) -> bool:
    """Whether the next engine goes on without the draft model of one that was killed: it was being loaded, or it was
    there, and without it there is one reason less. An illegal instruction is the fault of extra buffers first."""
    config, code = child.choice.config, child.process.returncode
    if config.draft_path is None or code >= 0 or not (child.drafting or child.ready):
        return False
    return code != -signal.SIGILL or not config.extra_buffers

"""One engine process as its client knows it. Owns what is owed for it, and how long its end may take; must not
start or judge it."""

from __future__ import annotations

import os
import pickle
import signal
import socket
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
from kvchat.backend.protocol import Cancel, Command, Event, Pin, Summarize, Waits
from kvchat.backend.values import EngineConfig

GOODBYE = 6.0  # seconds that an engine may take to write its last pages after the pipe is closed
SILENCE = 60.0  # seconds without an event after which a turn says that nothing is heard
HUNG = 120.0  # seconds without an event after which an engine that was told to stop a turn is ended
STOPS = 10.0  # seconds that it has for that in any case
SILENT = "nothing is heard of the engine; stopping the answer ends it, and starts another one"
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
    silent: bool = False  # so long ago that its turns were told
    hung: bool = False  # it was killed for that
    turns: dict[str, bool] = field(default_factory=dict)  # turn -> whether its restore is over
    aside: dict[str, Measure | Summarize | Pin] = field(default_factory=dict)  # begun beside the chat, end not told

    def next_event(self, post: Callable[[Event], None]) -> Event:
        """Wait for what the engine says next. Meanwhile the turns that it owes are told when nothing is heard of it,
        and that something is heard again. Raises EOFError or OSError at the end of the pipe."""
        while not self.connection.poll(SILENCE):
            self.silent = True
            self._tell(SILENT, post)
        event = self._read()
        self.heard = time.monotonic()
        if self.silent:
            self.silent = False
            self._tell("", post)
        return event

    def _read(self) -> Event:
        """An engine that says what cannot be understood is ended: nothing that comes after it could be."""
        try:
            raw = self.connection.recv_bytes()
        except ConnectionError:
            raise
        except OSError:
            self.process.kill()
            raise
        try:
            event: Event = ForkingPickler.loads(raw)
        except _GARBAGE as error:
            self.process.kill()
            raise EOFError from error
        return event

    def _tell(self, why: str, post: Callable[[Event], None]) -> None:
        for turn in tuple(self.turns) if self.ready else ():
            post(Waits(turn, why))


def same_process(old: EngineConfig, new: EngineConfig) -> bool:
    """Whether the loaded model serves both."""
    return _loaded(old) == _loaded(new)


def _loaded(config: EngineConfig) -> tuple[object, ...]:
    """What a model is loaded with. Adapters and positions hold for all of its contexts."""
    how = config.model_path, config.gpu_layers, config.extra_buffers
    return (*how, config.hardware, config.rope, config.lora)


def send(child: Child, command: Command) -> None:
    with suppress(OSError):
        child.connection.send(command)
    if isinstance(command, Cancel):
        _watch(child, command.turn, STOPS)


def _watch(child: Child, turn: str, seconds: float) -> None:
    timer = threading.Timer(seconds, _end_if_deaf, (child, turn))
    timer.daemon = True
    timer.start()


def _end_if_deaf(child: Child, turn: str) -> None:
    """Kill an engine that was told to stop a turn, has not, and has said nothing else for long: one that computes a
    large batch of a large model on a slow machine is silent for a while, too."""
    if not child.ready or turn not in child.turns:
        return
    left = HUNG - (time.monotonic() - child.heard)
    if left > 0:
        _watch(child, turn, left)
    else:
        child.hung = True
        child.process.kill()


def hang_up(connection: Connection) -> None:
    """Close the sending half, so that the engine reads the end of the pipe while we still read what it says."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as half:
        half.shutdown(socket.SHUT_WR)


def is_gone(child: Child, patience: float) -> bool:
    """Wait for the end of an engine that was hung up on. One that has never been ready has nothing to write, and is
    killed; so is one that takes longer than GOODBYE. With less patience than that it is left to end by itself."""
    if not child.loaded:
        child.process.kill()
    try:
        child.process.wait(patience)
    except subprocess.TimeoutExpired:
        if patience < GOODBYE:
            return False
        child.process.kill()
        child.process.wait()
    return True


def is_fault_of_draft(child: Child) -> bool:
    """Whether the next engine goes on without the draft model of one that was killed: it was being loaded, or it was
    there, and without it there is one reason less. An illegal instruction is the fault of extra buffers first."""
    config, code = child.choice.config, child.process.returncode
    if config.draft_path is None or code >= 0 or not (child.drafting or child.ready):
        return False
    return code != -signal.SIGILL or not config.extra_buffers

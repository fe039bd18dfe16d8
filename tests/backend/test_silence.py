"""An engine that hangs, and one that says what nobody understands: told, ended, paid and replaced."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat.backend import child
from kvchat.backend.local import Engine
from kvchat.backend.protocol import EngineDied, Event, Generate, Ready, TextDelta, TurnFinished, Waits
from kvchat.backend.values import EngineConfig, PromptMessage

PROGRAM = Path(__file__).with_name("fake_engine.py")


class Client:
    """An engine whose events are collected."""

    def __init__(self, folder: Path, mode: str) -> None:
        (folder / "model.gguf").touch()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(str(folder / "model.gguf"))
        program = (sys.executable, str(PROGRAM), mode)
        self.engine = Engine(config, self.events.put, folder / "state", folder / "engine.log", program)
        self.engine.start()
        self.until(Ready)

    def until(self, *kinds: type) -> list[Event]:
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=30))
        return seen

    def ask(self, text: str = "hi") -> None:
        self.engine.submit(Generate("a", (PromptMessage("user", text),)))

    def signal(self, number: int) -> None:
        assert self.engine.pid is not None
        os.kill(self.engine.pid, number)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Client]:
    """An engine in the middle of an answer, which waits to be stopped."""
    client = Client(tmp_path, "wait-for-cancel")
    client.ask()
    client.until(TextDelta)
    yield client
    client.engine.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SILENCE", 0.2)
    monkeypatch.setattr(child, "STOPS", 0.2)
    monkeypatch.setattr(child, "HUNG", 1.0)


@pytest.mark.usefixtures("impatient")
def test_a_turn_says_that_nothing_is_heard_until_something_is(waiting: Client) -> None:
    waiting.signal(signal.SIGSTOP)
    silent = waiting.until(Waits)[-1]
    assert isinstance(silent, Waits)
    assert silent.turn == "a"
    assert "nothing is heard" in silent.reason
    waiting.engine._child.silent = True  # whatever else is said meanwhile
    waiting.signal(signal.SIGCONT)
    waiting.engine.cancel("a")
    events = waiting.until(TurnFinished)
    assert events[-2] == Waits("a", "")
    assert events[-1].reason == "cancelled"


@pytest.mark.usefixtures("impatient")
def test_stopping_the_answer_of_an_engine_that_hangs_ends_it_and_starts_another(waiting: Client) -> None:
    pid = waiting.engine.pid
    waiting.signal(signal.SIGSTOP)
    waiting.engine.cancel("a")
    events = waiting.until(TurnFinished)
    died = next(event for event in events if isinstance(event, EngineDied))
    assert died.restarting
    assert "did not react" in died.cause
    assert events[-1].reason == "died"
    waiting.until(Ready)
    assert waiting.engine.pid != pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_stops_is_not_ended(waiting: Client) -> None:
    pid = waiting.engine.pid
    waiting.engine.cancel("a")
    assert waiting.until(TurnFinished)[-1].reason == "cancelled"
    time.sleep(1.5)
    assert waiting.engine.pid == pid
    assert waiting.events.empty()


def test_an_engine_that_hangs_is_gone_with_the_app(waiting: Client) -> None:
    pid = waiting.engine.pid
    waiting.signal(signal.SIGSTOP)
    waiting.engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Nowhere:
    """Its pickle names a module that this process does not find."""


def foreign() -> bytes:
    raw = pickle.dumps(Nowhere(), protocol=0)
    return raw.replace(b"Nowhere", b"Nothing").replace(Nowhere.__module__.encode(), b"no_such_module")


@pytest.mark.parametrize("said", [b"", b"\x80", b"not a pickle", foreign(), pickle.dumps("x" * 100)[:-20]])
def test_garbage_on_the_pipe_is_the_end_of_that_engine(tmp_path: Path, said: bytes) -> None:
    client = Client(tmp_path, "garbage")
    client.ask(said.hex())
    events = client.until(TurnFinished)
    assert any(isinstance(event, EngineDied) for event in events)
    assert events[-1].reason == "died"
    client.until(Ready)
    client.engine.close()


def test_a_length_that_cannot_be_is_the_end_of_that_engine(tmp_path: Path) -> None:
    client = Client(tmp_path, "a-giant")
    client.ask()
    assert client.until(TurnFinished)[-1].reason == "died"
    client.until(Ready)
    client.engine.close()

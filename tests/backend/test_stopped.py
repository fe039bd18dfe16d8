"""An engine that somebody stops, so that it reads nothing: nobody waits for it, and nothing is lost on the way."""

from __future__ import annotations

import os
import queue
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat.backend import child
from kvchat.backend.local import Engine
from kvchat.backend.outbox import MOST
from kvchat.backend.protocol import EngineDied, Event, Generate, Ready, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage

PROGRAM = Path(__file__).with_name("fake_engine.py")
LARGE = 2 << 20  # characters; a pipe holds some hundred KB


class Stopped:
    """An engine that is stopped once it is ready; it says of each message how long it is."""

    def __init__(self, folder: Path) -> None:
        (folder / "model.gguf").touch()
        self.log = folder / "engine.log"
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(str(folder / "model.gguf"))
        program = (sys.executable, str(PROGRAM), "measures")
        self.engine = Engine(config, self.events.put, folder / "state", self.log, program)
        self.engine.start()
        self.until(Ready)
        assert self.engine.pid is not None
        self.pid = self.engine.pid
        os.kill(self.pid, signal.SIGSTOP)

    def until(self, *kinds: type) -> list[Event]:
        seen: list[Event] = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=30))
        return seen

    def ask(self, turn: str, size: int = 1) -> None:
        self.engine.submit(Generate(turn, (PromptMessage("user", "x" * size),)))

    @property
    def is_there(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Stopped]:
    made = Stopped(tmp_path)
    yield made
    made.engine.close()


def test_what_was_asked_meanwhile_is_answered_in_its_order(stopped: Stopped) -> None:
    """Who writes to a full pipe himself would stand still here, until the time limit of the test."""
    for number in range(4):
        stopped.ask(f"t{number}", LARGE + number)
    assert stopped.events.empty()
    os.kill(stopped.pid, signal.SIGCONT)
    seen = [event for _ in range(4) for event in stopped.until(TurnFinished)]
    lengths = [(event.turn, event.text) for event in seen if isinstance(event, TextDelta) and event.text != "half "]
    assert lengths == [(f"t{number}", str(LARGE + number)) for number in range(4)]
    assert [event.reason for event in seen if isinstance(event, TurnFinished)] == ["stop"] * 4


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("patience", [0.8, child.GOODBYE])
def test_the_app_ends_and_the_engine_with_it(stopped: Stopped, turns: int, patience: float) -> None:
    """It is not killed: it goes on, and ends as always, with its last words. All turns end."""
    for number in range(turns):
        stopped.ask(f"t{number}", LARGE)
    stopped.engine.close(patience)
    for _ in range(turns):
        stopped.until(TurnFinished)
    stopped.engine.close()
    assert not stopped.is_there
    assert "goodbye" in stopped.log.read_text()


def test_one_that_is_replaced_makes_room(stopped: Stopped, tmp_path: Path) -> None:
    stopped.ask("t", LARGE)
    (tmp_path / "other.gguf").touch()
    stopped.engine.configure(EngineConfig(str(tmp_path / "other.gguf")))
    stopped.until(Ready)
    assert not stopped.is_there
    assert stopped.engine.pid != stopped.pid


def test_one_that_is_replaced_and_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs, with a pipe that is full."""
    monkeypatch.setattr(child, "LEAVES", 0.2)
    (tmp_path / "model.gguf").touch()
    (tmp_path / "other.gguf").touch()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    program = (sys.executable, str(PROGRAM), "hangs")
    engine = Engine(EngineConfig(str(tmp_path / "model.gguf")), events.put, tmp_path, tmp_path / "log", program)
    engine.start()
    while not isinstance(events.get(timeout=30), Ready):
        pass
    for turn in "ab":
        engine.submit(Generate(turn, (PromptMessage("user", "x" * LARGE),)))
    engine.configure(EngineConfig(str(tmp_path / "other.gguf")))
    ended = []
    while not isinstance(event := events.get(timeout=30), Ready):
        assert not isinstance(event, EngineDied)
        ended += [event] if isinstance(event, TurnFinished) else []
    assert [(event.turn, event.reason) for event in ended] == [("a", "died"), ("b", "died")]
    assert all("was replaced" in event.failure.message for event in ended if event.failure)
    engine.close()


def test_killing_it_pays_what_is_owed_and_starts_another(stopped: Stopped) -> None:
    for number in range(3):
        stopped.ask(f"t{number}", LARGE)
    os.kill(stopped.pid, signal.SIGKILL)
    events = stopped.until(Ready)
    assert [event.turn for event in events if isinstance(event, TurnFinished)] == ["t0", "t1", "t2"]
    stopped.ask("next")
    assert finished(stopped).reason == "stop"


def test_too_much_for_it_is_refused_in_words(stopped: Stopped) -> None:
    """Each turn ends, once: those that found room are answered in their order."""
    turns = ["fills the pipe", *(f"t{number}" for number in range(MOST + 1))]
    stopped.ask(turns[0], LARGE)
    for turn in turns[1:]:
        stopped.ask(turn)
    refused = finished(stopped)
    assert refused.failure is not None and refused.failure.hint
    assert (refused.turn in turns[-2:], refused.reason) == (True, "died")
    assert "does not listen" in refused.failure.message
    os.kill(stopped.pid, signal.SIGCONT)
    ended = [finished(stopped) for _ in turns[1:]]
    assert {refused.turn, *(event.turn for event in ended)} == set(turns)
    answered = [event.turn for event in ended if event.reason == "stop"]
    assert len(answered) >= MOST and answered == turns[: len(answered)]


def finished(stopped: Stopped) -> TurnFinished:
    event = stopped.until(TurnFinished)[-1]
    assert isinstance(event, TurnFinished)
    return event

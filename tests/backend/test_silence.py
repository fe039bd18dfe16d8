"""An engine that hangs, and one that says what nobody understands: told, ended, paid and replaced."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kvchat.backend import child
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Cancel, EngineDied, Event, Generate, Loading, Ready, TextDelta, TurnFinished, Waits
from kvchat.backend.values import EngineConfig, PromptMessage

PROGRAM = Path(__file__).with_name("fake_engine.py")


class Client:
    """An engine whose events are collected."""

    def __init__(self, folder: Path, mode: str, *, wait: bool = True) -> None:
        (folder / "model.gguf").touch()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(str(folder / "model.gguf"))
        program = (sys.executable, str(PROGRAM), mode)
        self.engine = Engine(config, self.events.put, folder / "state", folder / "engine.log", program)
        self.engine.start()
        if wait:
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
def test_one_that_hangs_within_an_event_is_ended_too(tmp_path: Path) -> None:
    client = Client(tmp_path, "half-an-event")
    client.ask()
    client.until(TextDelta)
    client.engine.cancel("a")
    events = client.until(TurnFinished)
    assert "did not react" in next(event for event in events if isinstance(event, EngineDied)).cause
    client.engine.close()


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_stops_is_not_ended(waiting: Client) -> None:
    pid = waiting.engine.pid
    waiting.engine.cancel("a")
    assert waiting.until(TurnFinished)[-1].reason == "cancelled"
    time.sleep(1.5)
    assert waiting.engine.pid == pid
    assert waiting.events.empty()


def test_an_engine_that_hangs_is_gone_with_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once where the app does not wait for it, but while it is there."""
    monkeypatch.setattr(child, "LEAVES", 0.2)
    client = Client(tmp_path, "hangs")
    pid = client.engine.pid
    client.ask()
    client.until(TextDelta)
    client.engine.close(patience=0.01)
    assert client.until(TurnFinished)[-1].reason == "died"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Clock:
    """A pipe in which nothing comes before `speaks`, and the clock that passes while one waits for it. At the times in
    `happens` something is done."""

    def __init__(self, speaks: float, happens: dict[float, Callable[[], object]]) -> None:
        self.now = 0.0
        self.speaks = speaks
        self.happens = happens

    def monotonic(self) -> float:
        return self.now

    def poll(self, seconds: float) -> bool:
        end = min(self.now + seconds, self.speaks)
        for at in sorted(at for at in self.happens if at <= end):
            self.now = at
            self.happens.pop(at)()
        self.now = end
        return self.now >= self.speaks

    def recv_bytes(self, _: int) -> bytes:
        return pickle.dumps(Loading(0.5))


class Unread:
    """Takes what is sent."""

    def put(self, _: object) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(speaks=500.0, happens={})
    monkeypatch.setattr(child, "time", made)
    return made


def resting(clock: Clock) -> child.Child:
    """An engine that became ready at 0 s, and has had nothing to do since."""
    return child.Child(None, clock, Unread(), None, 0, ready=True, heard=0.0)  # type: ignore[arg-type]


def test_silence_begins_with_a_turn_and_is_told_every_minute(clock: Clock) -> None:
    """At 0 s the engine was heard last; at 50 s a turn begins, at 80 s another one; at 500 s it speaks."""
    engine = resting(clock)
    clock.happens = {each: partial(engine.begin, Generate(str(each), ())) for each in (50.0, 80.0)}
    told: list[tuple[float, Event]] = []
    engine.next_event(lambda event: told.append((clock.now, event)))
    times = [110.0 + 60 * number for number in range(7)]
    assert [at for at, event in told if event == Waits("50.0", child.SILENT)] == times
    assert [at for at, event in told if event == Waits("80.0", child.SILENT)] == times
    assert told[-2:] == [(500.0, Waits("50.0", "")), (500.0, Waits("80.0", ""))]
    assert len(told) == 16


def test_one_that_rests_is_not_silent(clock: Clock) -> None:
    told: list[Event] = []
    resting(clock).next_event(told.append)
    assert told == []


def test_a_turn_after_a_long_rest_is_given_its_time_to_stop(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[float] = []
    monkeypatch.setattr(child, "_watch", lambda seconds, *_: watched.append(seconds))
    engine = resting(clock)
    clock.now = 1000.0
    engine.begin(Generate("a", ()))
    engine.send(Cancel("a"))
    clock.now += child.STOPS
    engine._end_if_deaf("a")
    assert watched == [child.STOPS, child.HUNG - child.STOPS]
    assert engine.fault == ""


def test_one_that_takes_long_to_load_is_not_called_silent(clock: Clock) -> None:
    """A turn may wait for it already; what is told is how far it is."""
    engine = resting(clock)
    engine.ready = False
    engine.begin(Generate("a", ()))
    told: list[Event] = []
    assert engine.next_event(told.append) == Loading(0.5)
    assert told == []


def test_a_turn_that_came_while_it_loads_is_answered(tmp_path: Path) -> None:
    client = Client(tmp_path, "slow-load", wait=False)
    while client.engine.pid is None:
        time.sleep(0.01)
    client.ask()
    events = client.until(TurnFinished)
    assert [event.fraction for event in events if isinstance(event, Loading)] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert events[-1].reason == "stop"
    client.engine.close()


@pytest.mark.parametrize(
    "number",
    [signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGTERM],
)
def test_every_way_to_be_killed_is_told_paid_and_survived(waiting: Client, number: signal.Signals) -> None:
    waiting.signal(number)
    events = waiting.until(Ready)
    died = next(event for event in events if isinstance(event, EngineDied))
    (turn,) = (event for event in events if isinstance(event, TurnFinished))
    out_of_memory = " (out of memory?)" if number == signal.SIGKILL else ""
    assert (died.cause, died.restarting) == (f"the engine was killed by {number.name}{out_of_memory}", True)
    assert (turn.turn, turn.reason) == ("a", "died")
    assert turn.failure is not None
    assert (turn.failure.message, bool(turn.failure.hint)) == (died.cause, True)
    waiting.ask()
    assert waiting.until(TextDelta)[-1].text == "half "


class Nowhere:
    """Its pickle names a module that this process does not find."""


def foreign() -> bytes:
    raw = pickle.dumps(Nowhere(), protocol=0)
    return raw.replace(b"Nowhere", b"Nothing").replace(Nowhere.__module__.encode(), b"no_such_module")


@pytest.mark.parametrize("said", [b"", b"\x80", b"not a pickle", foreign(), pickle.dumps("x" * 100)[:-20]])
def test_garbage_on_the_pipe_is_the_end_of_that_engine(tmp_path: Path, said: bytes) -> None:
    check_ended(Client(tmp_path, "garbage"), "said what cannot be understood and was ended", said.hex())


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("a-giant", "said what cannot be understood and was ended"),
        ("a-terabyte", "said what cannot be understood and was ended"),
        ("half-an-event-dies", "was killed by SIGKILL (out of memory?)"),
        ("closes-its-pipe", "closed its pipe and was ended"),
    ],
)
def test_what_is_the_end_of_that_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, how: str) -> None:
    monkeypatch.setattr(child, "GOODBYE", 0.2)
    check_ended(Client(tmp_path, mode), how)


def check_ended(client: Client, how: str, text: str = "hi") -> None:
    """It is told why, the turn is paid, and another one is started."""
    client.ask(text)
    events = client.until(TurnFinished)
    assert [event.cause for event in events if isinstance(event, EngineDied)] == [f"the engine {how}"]
    assert events[-1].reason == "died"
    assert how in events[-1].failure.message
    client.until(Ready)
    client.engine.close()


def test_an_event_that_is_larger_than_any_buffer_comes_whole(tmp_path: Path) -> None:
    client = Client(tmp_path, "echoes")
    said = "0123456789" * (1 << 20)
    client.ask(said)
    deltas = [event.text for event in client.until(TurnFinished) if isinstance(event, TextDelta)]
    assert deltas == ["half ", said]
    client.engine.close()

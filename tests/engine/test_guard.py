"""The guard in a real engine: when it looks, what it finds, and that it gives way."""

from __future__ import annotations

import queue
import time
from pathlib import Path

import pytest
import tiny
from driver import Driver

from kvchat.backend.fidelity import Guarded
from kvchat.backend.guarding import FILE, GuardBook
from kvchat.backend.protocol import Event, Tuned
from kvchat.engine.guard import SECONDS, TEXT
from kvchat.engine.process import IDLE


@pytest.fixture
def start(home, tmp_path):
    """Starts engines on one tiny model, which share a home."""
    model = tiny.build("llama", tmp_path)
    drivers: list[Driver] = []

    def start(**config):
        types = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"} | config
        drivers.append(Driver.start(home, model, **types))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def events_for(driver: Driver, seconds: float) -> list[Event]:
    """Everything that comes in so many seconds."""
    found: list[Event] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            found.append(driver.events.get(timeout=left))
        except queue.Empty:
            break
    return found


def wakeups(pid: int) -> int:
    """How often threads of the process went to sleep, or had to make way for others, since it began."""
    statuses = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for text in statuses for line in text.splitlines() if "ctxt_switches" in line)


def sleeps_until_it_is_asked(driver: Driver) -> None:
    """Once everything is measured, and a while later memory was given back, no thread wakes up by itself, not even as
    seldom as the engine looks for quiet."""
    pid, woken = driver.engine.pid, -1
    while woken != (woken := wakeups(pid)):
        time.sleep(IDLE + 0.2)
    assert not events_for(driver, IDLE + 0.5)
    assert wakeups(pid) == woken


def test_types_are_checked_once_and_never_before_the_first_answer(start, home):
    driver = start()
    assert not [event for event in events_for(driver, 3) if isinstance(event, Guarded)]
    driver.ask("Hello.")
    verdict = driver.until(Guarded)[-1].verdict
    assert (verdict.type_k, verdict.type_v) == ("q8_0", "q8_0")
    assert verdict.positions > 16 and 0 < verdict.kl < 0.01 and verdict.agreement > 0.5
    assert verdict.speed > 0 and verdict.f16_speed > 0
    assert (home / "state" / FILE).exists()
    sleeps_until_it_is_asked(driver)
    driver.engine.close()

    again = start()
    again.ask("Hello.")
    assert not [event for event in events_for(again, 3) if isinstance(event, (Guarded, Tuned))]
    config = again.engine.config
    assert GuardBook(home / "state").apply(config).noise == verdict.noise

    other = start(type_k="f16", type_v="f16", flash_attention="off")
    other.ask("Hello.")
    verdict = other.until(Guarded)[-1].verdict
    assert (verdict.type_k, verdict.speed, verdict.positions) == ("f16", None, 0)
    assert verdict.noise is not None


def test_a_question_does_not_wait_for_it(start):
    """It is asked in the middle; the check is made when it is quiet again."""
    driver = start()
    driver.ask("Hello.")
    driver.until(Tuned, Guarded)
    driver.ask("And?")
    assert driver.until(Guarded)[-1].verdict.type_k == "q8_0"


def test_the_text_is_long_enough_to_say_something():
    assert len(TEXT.split()) > 90
    assert SECONDS <= 5

"""An engine process ahead of time: taken once, gone where nobody wants it, missed by nobody where it is not there."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat.backend.choices import Remote
from kvchat.backend.head_start import HeadStart
from kvchat.backend.local import Engine
from kvchat.backend.protocol import EngineDied, Event, Generate, LoadFailed, Ready, TurnFinished
from kvchat.backend.switching import SwitchingEngine
from kvchat.backend.values import EngineConfig, PromptMessage

PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_engine.py")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").touch()
    return tmp_path


def log(folder: Path) -> Path:
    return folder / "logs" / "engine.log"


@pytest.fixture
def ahead(folder: Path) -> Iterator[HeadStart]:
    with HeadStart(log(folder), (*PROGRAM, "fine")) as ahead:
        yield ahead


def pid_of(ahead: HeadStart) -> int:
    started = ahead._started
    assert started is not None
    return started.process.pid


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Client:
    """An engine whose events are collected."""

    def __init__(self, folder: Path, mode: str, ahead: HeadStart) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(str(folder / "model.gguf"))
        self.engine = Engine(config, self.events.put, folder / "state", log(folder), (*PROGRAM, mode), ahead)
        self.engine.start()

    def until(self, kind: type[Event]) -> list[Event]:
        seen = [self.events.get(timeout=30)]
        while not isinstance(seen[-1], kind):
            seen.append(self.events.get(timeout=30))
        return seen


def test_the_first_engine_is_that_process(folder: Path, ahead: HeadStart) -> None:
    pid = pid_of(ahead)
    client = Client(folder, "must not be started", ahead)
    client.until(Ready)
    assert client.engine.pid == pid
    client.engine.submit(Generate("a", (PromptMessage("user", "hi"),)))
    finished = client.until(TurnFinished)[-1]
    assert isinstance(finished, TurnFinished)
    assert finished.reason == "stop"
    client.engine.close()
    assert "goodbye" in log(folder).read_text()
    assert not is_there(pid)


def test_one_that_died_meanwhile_is_told_and_followed_by_another(folder: Path) -> None:
    with HeadStart(log(folder), (*PROGRAM, "no-extra-buffers")) as ahead:
        client = Client(folder, "fine", ahead)
        died, ready = client.until(Ready)
        assert isinstance(died, EngineDied)
        assert died.log == ("last words",)
        assert isinstance(ready, Ready)
        client.engine.close()


def test_nobody_wanted_it(folder: Path) -> None:
    with HeadStart(log(folder), (*PROGRAM, "fine")) as ahead:
        pid = pid_of(ahead)
        assert is_there(pid)
    assert not is_there(pid)
    assert ahead.take() is None


def test_a_server_answers_in_its_place(folder: Path, ahead: HeadStart) -> None:
    pid = pid_of(ahead)
    config = EngineConfig("", remote=Remote("lab", "http://127.0.0.1:9"))
    engine = SwitchingEngine(config, lambda _: None, folder / "state", log(folder), ahead)
    assert not is_there(pid)
    engine.close()


def test_where_none_can_be_started_the_engine_says_so(folder: Path) -> None:
    (folder / "logs").touch()
    with HeadStart(log(folder), (*PROGRAM, "fine")) as ahead:
        client = Client(folder, "fine", ahead)
        failed = client.until(LoadFailed)[-1]
    assert isinstance(failed, LoadFailed)
    assert "logs" in failed.failure.message

"""The app over an engine process that somebody stopped: it stays the person's, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ui_fakes import Stage, room, send, shown, stage, until

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig
from kvchat.library.find import ModelFile
from kvchat.ui.launch import Survey

PROGRAM = Path(__file__).parents[1] / "backend" / "fake_engine.py"
LARGE = "a thing of its own " * 50_000  # a pipe holds less


@pytest.fixture
def on(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage with a process in place of a fake: it says of each message how long it is."""

    def engine(_: Stage, config: EngineConfig, post: Callable[[Event], None], state: Path, log: Path) -> Engine:
        return Engine(config, post, state, log, (sys.executable, str(PROGRAM), "measures"))

    monkeypatch.setattr(Stage, "_make", engine)
    model = home / "model.gguf"
    model.touch()
    with stage(home, found=Survey((ModelFile("model", model, 0, "models"),), (home,), model)) as made:
        yield made
        made.link.close()


async def test_what_is_sent_to_it_keeps_nobody_waiting(on: Stage) -> None:
    """Neither the screen, nor the thread that keeps what is written, from which it is sent."""
    async with on.app().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: on.link.ready is not None)
        engine = on.link._engine
        assert isinstance(engine, Engine) and engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        await send(pilot, LARGE)
        await until(pilot, lambda: room(pilot).conversation.is_working)
        await pilot.press("n", "e", "x", "t")
        assert room(pilot).prompt.text == "next"
        assert on.store.run(lambda store: store.latest()).result(timeout=30) is not None
        os.kill(engine.pid, signal.SIGCONT)
        await until(pilot, lambda: f"half {len(LARGE)}" in shown(pilot))


async def test_leaving_ends_it(on: Stage) -> None:
    async with on.app().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: on.link.ready is not None)
        engine = on.link._engine
        assert isinstance(engine, Engine) and engine.pid is not None
        pid = engine.pid
        os.kill(pid, signal.SIGSTOP)
        await send(pilot, LARGE)
        await until(pilot, lambda: room(pilot).conversation.is_working)
    on.link.close()
    engine.close()
    assert not Path(f"/proc/{pid}").exists()
    assert "goodbye" in on.paths.log_file.read_text()

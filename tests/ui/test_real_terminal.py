"""The app on a real terminal with the real model: what llama.cpp writes, and an end while it computes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

LONG = " ".join(f"Item {number} is a thing of its own." for number in range(110))


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal([sys.executable, "-m", "kvchat"], 100, 30, {"KVCHAT_HOME": str(home)})
    terminal.wait_until(lambda: "○" in terminal.text(), "an engine that is ready", 60)
    yield terminal
    terminal.close()


def engines(app: int) -> list[int]:
    """The engine processes of an app."""
    threads = Path(f"/proc/{app}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    return [int(child) for child in children if b"kvchat.engine" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_what_llama_cpp_writes_is_in_its_log_and_the_app_ends_while_it_computes(terminal: Terminal, home: Path) -> None:
    """It says a lot while it loads a model, on descriptor 2; none of it is drawn. Then a prompt is being read, which is
    one long call after the other: ^Q, twice since an answer is asked for, ends app and engine, and the terminal is as
    it was."""
    log = (home / "logs" / "engine.log").read_bytes()
    assert b"SmolLM2" in log
    words = set(re.findall(rb"(?:llama|ggml|load)_\w{4,}", log))
    assert words
    assert [word for word in words if word in terminal.raw] == []

    (engine,) = engines(terminal.process.pid)
    terminal.send(b"\x1b[200~" + LONG.encode() + b"\x1b[201~")
    terminal.wait_for("[Pasted #1")
    terminal.send(b"\r")
    terminal.wait_until(lambda: re.search(r"reading [1-9]\d?%", terminal.text()) is not None, "a prompt that is read")
    terminal.send(b"\x11\x11")
    assert terminal.ended() == 0
    assert terminal.settings() == terminal.before
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l", b"\x1b[?2004l"):
        assert sequence in terminal.raw
    terminal.wait_until(lambda: not Path(f"/proc/{engine}").exists(), "the engine's end")

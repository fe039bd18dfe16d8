"""Incognito and purge in a real terminal with the real engine: nothing of it is in any file, also after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_tmux import Terminal, is_ready
from traces import traces

MARKER = "zanzibarquokka"


@pytest.fixture
def places(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """All folders in which something could be left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return home, tmp_path


@pytest.fixture
def terminal(places: tuple[Path, Path], smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal(places[0])
    yield terminal
    terminal.close()


def ask(terminal: Terminal, text: str) -> None:
    terminal.keys(text)
    terminal.until_text(text)
    terminal.keys("Enter")
    terminal.until(lambda screen: "tokens" in screen.rpartition(text)[2] and is_ready(screen))


def test_a_session(terminal: Terminal, places: tuple[Path, Path]) -> None:
    terminal.open("--incognito", "-m", "SmolLM2", "-n", "8", "--temp", "0")
    terminal.until(lambda screen: "Incognito: chats" in screen and is_ready(screen))
    ask(terminal, f"Say {MARKER}.")
    ask(terminal, f"And {MARKER} again.")
    assert "incognito" in terminal.screen()
    terminal.keys(f"half a {MARKER} draft")
    terminal.until_text("half a")
    terminal.keys("C-q")
    ended = terminal.until_text("ended with 0")
    assert "What was incognito is gone." in ended
    assert traces(places, [MARKER]) == set()
    assert not (places[0] / "chats.db").exists()
    assert not (places[0] / "kv").exists()


def test_killed_while_it_answers(terminal: Terminal, places: tuple[Path, Path]) -> None:
    terminal.open("--incognito", "-m", "SmolLM2")
    terminal.until(lambda screen: "Incognito: chats" in screen and is_ready(screen))
    terminal.keys(f"Tell a very long story of {MARKER}.", "Enter")
    terminal.until_text("generating")
    engine = terminal.engine()
    app = int(Path(f"/proc/{engine}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(app, signal.SIGKILL)
    terminal.until_text("ended with 137")
    assert traces(places, [MARKER]) == set()


def test_one_chat_beside_others_and_a_purge(terminal: Terminal, places: tuple[Path, Path]) -> None:
    terminal.open("-m", "SmolLM2", "-n", "8", "--temp", "0")
    terminal.until(lambda screen: is_ready(screen) and "SmolLM2" in screen)
    ask(terminal, "Say plainword.")
    terminal.keys("/incognito", "Enter")
    terminal.until_text("Incognito: this chat")
    ask(terminal, f"Say {MARKER}.")
    terminal.keys("C-n")
    terminal.until_text("This incognito chat will be gone.")
    terminal.keys("y")
    terminal.until(lambda screen: "incognito" not in screen)
    ask(terminal, "Say otherword.")
    terminal.keys("/purge", "Enter")
    terminal.until_text("for good")
    terminal.keys("y")
    terminal.until_text("Removed for good")
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
    assert traces(places, [MARKER, "otherword"]) == set()
    assert traces(places, ["plainword"])

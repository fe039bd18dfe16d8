"""A prefix pinned in the app, in a real terminal with the real engine: of use at once, and after a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_tmux import Terminal, is_ready

SYSTEM = " ".join(f"Rule {number}: hive {number} has {number * 3} frames." for number in range(16))
FLAGS = "-m", "SmolLM2", "-n", "6", "--temp", "0", "-t", "1"


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    (home / "brief.md").write_text(SYSTEM)
    terminal = Terminal(home)
    terminal.open(*FLAGS)
    terminal.until(is_ready)
    yield terminal
    terminal.close()


def reused(screen: str) -> tuple[int, int]:
    """Of the last answer: reused tokens, of how many."""
    found = re.findall(r"reused\s+(\d+)\s+of\s+(\d+)", screen)
    return int(found[-1][0]), int(found[-1][1])


def test_it_is_of_use_at_once_and_after_a_restart(terminal: Terminal, home: Path) -> None:
    terminal.keys(f"/prefix pin brief @{home}/brief.md", "Enter")
    screen = terminal.until_text("Prefix brief is pinned")
    tokens = int(re.findall(r"pinned:\s+(\d+)\s+tokens", screen)[0])
    assert tokens > 200
    terminal.keys("/prefix brief", "Enter")
    terminal.until_text("This chat begins with the prefix brief.")
    terminal.keys("How many frames has hive 7?", "Enter")
    screen = terminal.until(lambda screen: "6 tokens" in screen and is_ready(screen))
    assert reused(screen)[0] == tokens
    assert " on brief " in screen
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
    terminal.open(*FLAGS)
    terminal.until(lambda screen: "/prefix begins a chat on what is pinned: brief" in screen and is_ready(screen))
    terminal.keys("/prefix", "Enter")
    terminal.until_text("pinned · ")
    terminal.keys("Enter")
    terminal.until_text("This chat begins with the prefix brief.")
    terminal.keys("And hive 8?", "Enter")
    screen = terminal.until(lambda screen: "6 tokens" in screen and is_ready(screen))
    assert reused(screen)[0] == tokens
    assert reused(screen)[1] < tokens + 30

"""Reading ahead in the real app with the real model, in tmux: a typed message, a paste, and where it is turned off."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None:
    pytest.skip("tmux is not installed", allow_module_level=True)

from test_tmux import Terminal, is_ready

QUESTION = "Tell me what the cell did when the morning came and all of the keys were gone from the great hall"
PASTE = "\n".join(f"Line {number} of a text about keys and values, the one with {number * 37}." for number in range(20))
READ = re.compile(r"([\d,]+) read while")


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_what_is_written_is_read_before_it_is_sent(terminal: Terminal) -> None:
    terminal.open("-n", "8", "--temp", "0")
    terminal.until(is_ready)
    terminal.keys("-l", QUESTION)
    screen = terminal.until(lambda screen: re.search(r"[\d,]+ read ahead", screen) is not None)
    ahead = number(re.findall(r"([\d,]+) read ahead", screen)[-1])
    assert ahead > 20
    terminal.keys("Enter")
    screen = terminal.until(lambda screen: READ.search(screen) is not None)
    assert number(READ.findall(screen)[-1]) == ahead

    terminal.run("set-buffer", PASTE, ";", "paste-buffer", "-p")
    screen = terminal.until(lambda screen: re.search(r"· (\d{3,}) read ahead", screen) is not None)
    terminal.keys("-l", " why?")
    terminal.keys("Enter")
    terminal.until(lambda screen: any(number(found) > 300 for found in READ.findall(screen)))


def test_off_it_is_read_when_it_is_sent(terminal: Terminal) -> None:
    terminal.open("-n", "8", "--temp", "0", "--no-read-ahead")
    terminal.until(is_ready)
    terminal.keys("-l", QUESTION)
    terminal.until(lambda screen: re.search(r"computes \d+", screen) is not None)
    terminal.keys("Enter")
    screen = terminal.until(lambda screen: re.search(r"first \d", screen) is not None)
    assert "read ahead" not in screen
    assert READ.search(screen) is None

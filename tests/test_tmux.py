"""The app in a real terminal with the real model: start, ask, stop, quit, start again, go on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None:
    pytest.skip("tmux is not installed", allow_module_level=True)

PATIENCE = 60.0


class Terminal:
    """A tmux server of its own with one window of 98x30."""

    def __init__(self, home: Path) -> None:
        self._socket = str(home / "tmux")
        self._home = home

    def run(self, *command: str) -> str:
        done = subprocess.run(["tmux", "-S", self._socket, *command], capture_output=True, text=True, check=False)
        return done.stdout

    def open(self, *arguments: str) -> None:
        command = f"env -u COLUMNS -u LINES {sys.executable} -m kvchat {' '.join(arguments)}"
        shell = f"{command}; echo ended with $?; sleep 1000"
        if self.run("list-panes"):
            self.run("respawn-pane", "-k", shell)
        else:
            self.run("-f", "/dev/null", "new-session", "-d", "-x", "98", "-y", "30", shell)

    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def until(self, condition: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE
        while not condition(screen := self.screen()):
            assert time.monotonic() < deadline, f"this did not come:\n{screen}"
            time.sleep(0.05)
        return screen

    def until_text(self, text: str) -> str:
        return self.until(lambda screen: text in screen)

    def engine(self) -> int:
        """Process id of the engine, a grandchild of the terminal."""
        shell = int(self.run("display-message", "-p", "#{pane_pid}"))
        found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and is_engine(path)]
        return next(pid for pid in found if shell in ancestors(pid))

    def close(self) -> None:
        self.run("kill-server")


def is_engine(process: Path) -> bool:
    try:
        return b"kvchat.engine.process" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(pid)
    return found


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def is_ready(screen: str) -> bool:
    """The status line shows that the engine waits: idle, or after an answer that was stopped."""
    return "○" in screen or "⏸" in screen


def test_ask_stop_quit_restart_resume(terminal: Terminal) -> None:
    terminal.open()
    terminal.until(is_ready)
    terminal.keys("Tell me a very long story about a whale.", "Enter")
    terminal.until_text("generating")
    terminal.keys("Escape")
    screen = terminal.until(lambda screen: "stopped" in screen and is_ready(screen))
    assert "Tell me a very long story about a whale." in screen
    terminal.keys("C-q")
    terminal.until_text("ended with 0")

    terminal.open("-c", "-n", "8", "--temp", "0")
    screen = terminal.until(is_ready)
    assert "Tell me a very long story about a whale." in screen
    terminal.keys("What was it about?", "Enter")
    screen = terminal.until(lambda screen: "from pages" in screen and is_ready(screen))
    assert "What was it about?" in screen
    terminal.keys("C-q")
    terminal.until_text("ended with 0")


def test_stop_while_the_prompt_is_read_keeps_what_was_read(terminal: Terminal, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text(" ".join(f"Item {i} is a thing of its own." for i in range(110)))
    terminal.open("-n", "8", "--temp", "0")
    terminal.until(is_ready)
    terminal.run("load-buffer", str(text))
    terminal.run("paste-buffer", "-p")
    terminal.until_text("[Pasted #1")
    terminal.keys("Enter")
    terminal.until(lambda screen: re.search(r"reading [1-9]\d?%", screen) is not None)
    terminal.keys("Escape")
    terminal.until(lambda screen: "stopped" in screen and is_ready(screen))
    terminal.keys("/retry", "Enter")
    screen = terminal.until(lambda screen: "8 tokens" in screen and is_ready(screen))
    reused = re.search(r"reused ([\d,]+) of [\d,]+ from memory", screen)
    assert reused, screen
    assert int(reused[1].replace(",", "")) >= 256  # at least the first step of the prefill was not lost


def test_a_killed_engine_is_said_and_the_next_turn_works(terminal: Terminal) -> None:
    terminal.open("-n", "200")
    terminal.until(is_ready)
    terminal.keys("Tell me a very long story about a whale.", "Enter")
    terminal.until_text("generating")
    os.kill(terminal.engine(), signal.SIGKILL)
    terminal.until_text("SIGKILL")
    terminal.until(is_ready)
    terminal.keys("/new", "Enter")
    terminal.until(lambda screen: "whale." not in screen.partition("╭")[0].partition("kvchat")[0])
    terminal.keys("Say hello.", "Enter")
    terminal.until(lambda screen: "Say hello." in screen and "tok/s" in screen)
    terminal.keys("C-q")
    terminal.until_text("ended with 0")

"""The logs tell of no chat: through a turn, an error and a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Terminal
from traces import traces

KVCHAT = [sys.executable, "-m", "kvchat"]
MARKER = "zanzibarquokka"


def silent(home: Path) -> set[Path]:
    return traces([home / "logs", home / "state"], [MARKER])


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KVCHAT, "ask", *arguments], capture_output=True, text=True, check=False, timeout=180, stdin=subprocess.DEVNULL
    )


@pytest.mark.usefixtures("smollm2")
def test_a_turn_and_an_error(home: Path) -> None:
    assert ask(f"Repeat: {MARKER}", "-s", f"Say {MARKER}.", "-n", "8").returncode == 0
    too_long = ask("--ctx-size", "256", f"{MARKER} " * 400)
    assert too_long.returncode == 1
    assert (home / "logs" / "engine.log").stat().st_size > 0
    assert silent(home) == set()
    assert traces([home], [MARKER])  # the chat itself is kept


@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_a_crash(home: Path, how: signal.Signals) -> None:
    question = f"Tell a very long story of {MARKER}."
    app = subprocess.Popen([*KVCHAT, "ask", question], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert app.stdout is not None
    app.stdout.read(20)  # it answers
    for engine in _children(app.pid):
        os.kill(engine, how)
    app.communicate()
    assert silent(home) == set()


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


BROKEN = """
import sys
from kvchat.ui.chat_screen import ChatScreen
def broken(self):
    words = [message.text for message in self.room.conversation.messages]
    raise RuntimeError(words[0])
ChatScreen.action_end = broken
from kvchat.cli import main
sys.exit(main(["-m", "SmolLM2", "-n", "4", "--temp", "0"]))
"""


@pytest.mark.usefixtures("smollm2")
def test_a_crash_of_the_app(home: Path) -> None:
    """What went wrong is for the terminal; the log, which stays, has none of it."""
    terminal = Terminal([sys.executable, "-c", BROKEN])
    try:
        terminal.wait_until(lambda: "○" in terminal.text(), "the engine", 60)
        terminal.send(f"Say {MARKER}.\r".encode())
        terminal.wait_for("4 tokens", 60)
        terminal.send(b"\x1b[1;5F")  # Ctrl+End
        assert terminal.ended() == 1
        assert MARKER.encode() in bytes(terminal.raw)
    finally:
        terminal.close()
    assert silent(home) == set()

"""Answers in the background, in a real terminal with the real model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_tmux import Terminal, is_ready

LONG = "Tell me a very long story about a {}."


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def said(screen: str) -> str:
    """The chat and the prompt, without the list at their left."""
    return "\n".join(line[31:] for line in screen.splitlines())


def listed(screen: str) -> str:
    """The list at the left."""
    return "\n".join(line[:31] for line in screen.splitlines())


def wide(terminal: Terminal) -> None:
    terminal.run("resize-window", "-x", "120", "-y", "30")


def ask(terminal: Terminal, text: str) -> None:
    terminal.keys(text, "Enter")
    terminal.until(lambda screen: text in said(screen))
    terminal.until_text("generating")


def chats() -> list[dict[str, object]]:
    return json.loads(kvchat("chats", "ls", "--json"))


def kvchat(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "kvchat", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def reply(chat: dict[str, object]) -> dict[str, object]:
    return json.loads(kvchat("chats", "show", str(chat["id"]), "--json"))[-1]


def test_leave_work_elsewhere_come_back_and_finish(terminal: Terminal) -> None:
    terminal.open("-n", "150", "--temp", "0")
    wide(terminal)
    terminal.until(is_ready)
    ask(terminal, LONG.format("whale"))
    terminal.keys("C-n")
    terminal.until(lambda screen: "whale" not in said(screen) and re.search(r"●Tell me.* tok", screen) is not None)
    ask(terminal, "Say hello.")
    terminal.keys("F4")
    terminal.until(lambda screen: "whale" in said(screen))
    terminal.keys("F4")
    terminal.until(lambda screen: "Say hello." in said(screen))
    terminal.until(lambda screen: "✓" in listed(screen))
    terminal.until(is_ready)
    terminal.keys("F4")
    terminal.until(lambda screen: "whale" in said(screen) and "✓" not in listed(screen) and is_ready(screen))
    ask(terminal, LONG.format("ship"))
    terminal.keys("C-n")
    terminal.until(lambda screen: "ship" not in said(screen))
    terminal.keys("C-q")
    terminal.until_text("Still being answered:")
    terminal.keys("f")
    terminal.until_text("quits after: 1 answer")
    terminal.until_text("ended with 0")
    assert sorted((str(reply(chat)["finish"])) for chat in chats()) == ["length", "stop"]


def test_kill_9_loses_half_a_second_of_an_answer_in_the_background(terminal: Terminal) -> None:
    terminal.open("-n", "2000", "--temp", "0")
    wide(terminal)
    terminal.until(is_ready)
    ask(terminal, LONG.format("whale"))
    terminal.keys("C-n")
    terminal.until(lambda screen: "whale" not in said(screen))
    time.sleep(1.0)
    screen = terminal.until(lambda screen: re.search(r" (\d+) tok", screen) is not None)
    shown = re.search(r" (\d+) tok", screen)
    assert shown is not None
    time.sleep(0.6)  # what was shown is on disk by then
    app = next(pid for pid in children(terminal) if b"-m\0kvchat" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(app, signal.SIGKILL)
    terminal.until_text("ended with 137")
    (chat,) = chats()
    kept = reply(chat)
    assert kept["finish"] is None
    assert len(str(kept["text"]).split()) > int(shown[1]) / 3  # a word has fewer tokens than that


def test_a_killed_engine_ends_all_answers_and_the_next_one_works(terminal: Terminal) -> None:
    terminal.open("-n", "400", "--temp", "0")
    wide(terminal)
    terminal.until(is_ready)
    ask(terminal, LONG.format("whale"))
    terminal.keys("C-n")
    terminal.until(lambda screen: "whale" not in said(screen))
    ask(terminal, LONG.format("ship"))
    os.kill(terminal.engine(), signal.SIGKILL)
    screen = terminal.until(lambda screen: "SIGKILL" in screen and "!Tell me" in listed(screen))
    assert "the engine died: /continue goes on" in screen
    terminal.until(is_ready)
    terminal.keys("F4")
    terminal.until(lambda screen: LONG.format("whale") in said(screen))  # the message; a toast has its beginning
    terminal.keys("/continue", "Enter")
    terminal.until_text("generating")
    terminal.keys("C-q", "C-q")  # twice: nobody waits
    terminal.until_text("ended with 0")
    assert sorted(str(reply(chat)["finish"]) for chat in chats()) == ["cancelled", "died"]


def children(terminal: Terminal) -> list[int]:
    shell = int(terminal.run("display-message", "-p", "#{pane_pid}"))
    return [int(pid) for pid in Path(f"/proc/{shell}/task/{shell}/children").read_text().split()]

"""Incognito with the real engine: nothing of the chat is in any file, also after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from traces import traces

KVCHAT = [sys.executable, "-m", "kvchat"]
MARKER = "zanzibarquokka"
QUESTION = f"Repeat this word: {MARKER}. " + " ".join(f"Item {i} is a thing of its own." for i in range(40))


@pytest.fixture
def places(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """All folders in which something could be left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return home, tmp_path


def kvchat(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KVCHAT, *arguments], capture_output=True, text=True, check=False, timeout=180, input=lines)


@pytest.mark.usefixtures("smollm2")
def test_ask_leaves_nothing(places: tuple[Path, Path]) -> None:
    answered = kvchat("ask", "--incognito", QUESTION, "-n", "12", "--temp", "0", "--json")
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    assert (answer["chat"], answer["message"]) == (None, None)
    assert answer["text"]
    assert answer["saved"] == {"pages": 0, "bytes": 0, "problem": None}
    assert not traces(places, [MARKER])
    home, _ = places
    assert not (home / "chats.db").exists()
    assert not (home / "kv").exists()


@pytest.mark.usefixtures("smollm2")
def test_lines_leave_nothing_and_the_past_is_reused(places: tuple[Path, Path]) -> None:
    lines = f"{QUESTION}\nAnd once more, {MARKER}?\n"
    ended = kvchat("--plain", "--incognito", "-n", "6", "--temp", "0", lines=lines)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.rstrip().endswith("What was incognito is gone.")
    assert "from memory" in ended.stderr  # the second turn goes on in the cells of the first
    assert not traces(places, [MARKER])


@pytest.mark.usefixtures("smollm2")
def test_one_chat_in_lines_beside_others(places: tuple[Path, Path]) -> None:
    lines = f"Say plainword.\n/incognito\n{QUESTION}\n/new\nSay otherword.\n"
    ended = kvchat("--plain", "-n", "6", "--temp", "0", lines=lines)
    assert ended.returncode == 0, ended.stderr
    assert traces(places, [MARKER]) == set()
    assert traces(places, ["plainword"])
    assert traces(places, ["otherword"])
    assert len(json.loads(kvchat("chats", "ls", "--json").stdout)) == 2


@pytest.mark.usefixtures("smollm2")
def test_a_kill_leaves_nothing(places: tuple[Path, Path]) -> None:
    question = f"Tell a very long story of {MARKER}."
    app = subprocess.Popen(
        [*KVCHAT, "ask", "--incognito", question], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert app.stdout is not None
    app.stdout.read(20)  # it answers
    (engine,) = _children(app.pid)
    app.kill()
    os.kill(engine, signal.SIGKILL)
    app.communicate()
    assert not traces(places, [MARKER])


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}

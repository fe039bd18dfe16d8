"""`kill -9` of app and engine at the worst moments: no committed word is lost, the store verifies, the chat goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

LONG = " ".join(f"Item {i} is a thing of its own." for i in range(60))
KVCHAT = [sys.executable, "-m", "kvchat"]


def kvchat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KVCHAT, *arguments], capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


def kill_both(app: subprocess.Popen[bytes]) -> None:
    children = Path(f"/proc/{app.pid}/task/{app.pid}/children").read_text().split()
    threads = Path(f"/proc/{app.pid}/task").iterdir()
    children += [child for thread in threads for child in (thread / "children").read_text().split()]
    app.kill()
    for child in set(children):
        os.kill(int(child), signal.SIGKILL)
    app.communicate()


def pages(home: Path) -> list[Path]:
    return [path for path in home.glob("kv/pages/*/*/*") if len(path.name) == 64]


def in_prefill(home: Path) -> bool:
    return bool(pages(home))


def in_save(home: Path) -> bool:
    return bool(list(home.glob("kv/pages/*/*/.*.tmp"))) or len(pages(home)) > 2


MOMENTS: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "prefill": (LONG, in_prefill),
    "save": (LONG, in_save),
}


def check_after(home: Path, question: str) -> None:
    (chat,) = json.loads(kvchat("chats", "ls", "--json").stdout)
    messages = json.loads(kvchat("chats", "show", chat["id"], "--json").stdout)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[0]["text"] == question
    assert messages[1]["finish"] is None
    verified = kvchat("kv", "verify", "--json")
    assert verified.returncode == 0
    assert kvchat("ask", "-c", "--resume", "-n", "4", "--json").returncode == 0
    after = kvchat("ask", "-c", "Go on.", "-n", "4", "--json")
    assert after.returncode == 0, after.stderr
    answer = json.loads(after.stdout)
    assert answer["prompt"]["reused"] > 0
    assert answer["prompt"]["cut"] is None


@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_the_prompt_is_read(home: Path, moment: str) -> None:
    question, reached = MOMENTS[moment]
    app = subprocess.Popen([*KVCHAT, "ask", question], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    while not reached(home):
        assert app.poll() is None
    kill_both(app)
    check_after(home, question)


@pytest.mark.usefixtures("smollm2")
def test_killed_while_it_answers(home: Path) -> None:
    question = "Write a very long story about a ship, with many chapters."
    app = subprocess.Popen([*KVCHAT, "ask", question, "--temp", "0"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    shown = app.stdout.read(20).decode()
    time.sleep(1.1)  # the answer on disk is at most a second old
    kill_both(app)
    (chat,) = json.loads(kvchat("chats", "ls", "--json").stdout)
    kept = json.loads(kvchat("chats", "show", chat["id"], "--json").stdout)[1]["text"]
    assert kept.startswith(shown)
    check_after(home, question)
    whole = json.loads(kvchat("chats", "show", chat["id"], "--json").stdout)[1]["text"]
    assert whole.startswith(kept)

"""Several kvchats on one data folder, as programs: no message is lost, what one computed the others reuse, and pages
that one deletes under another cost time, not words."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import tiny
from kv_pages import Disk, put_chat

from kvchat.kv.collecting import collect
from kvchat.kv.verify import verify

WAIT = 120.0
# Q4_1 weights, this cache and flash attention: the values do not depend on what of a prompt is computed together.
EXACT = ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on", "--temp", "0", "--draft", "off"]
QUESTIONS = ("One more thing.", "And the last.")
LONG = " ".join(f"Item {number} is a thing of its own." for number in range(60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build("llama", tmp_path_factory.mktemp("model"), weights="q4_1", name="small")


def command_line(model: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "kvchat", *words, "-m", str(model), "-t", "1", "-n", "12", *EXACT]


@pytest.fixture
def kvchat(model: Path) -> Callable[..., list[str]]:
    """Makes command lines."""
    return partial(command_line, model)


def run(command: Sequence[str], **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=WAIT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def together(commands: Sequence[Sequence[str]]) -> list[str]:
    """Run them at the same time; what each says on stderr."""
    processes = [
        subprocess.Popen(each, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for each in commands
    ]
    said = [each.communicate(timeout=WAIT)[1] for each in processes]
    assert [each.returncode for each in processes] == [0] * len(commands), said
    return said


def stored(home: Path) -> list[dict[str, Any]]:
    """All messages, after the database was found sound."""
    with closing(sqlite3.connect(home / "chats.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        raw.row_factory = sqlite3.Row
        return [dict(row) for row in raw.execute("SELECT * FROM messages ORDER BY number")]


def head(home: Path, chat: str) -> str:
    with closing(sqlite3.connect(home / "chats.db")) as raw:
        return str(raw.execute("SELECT head FROM chats WHERE id = ?", (chat,)).fetchone()[0])


def assert_store_is_sound(home: Path) -> None:
    report = verify(home / "kv")
    assert (report.damaged, report.unreadable, report.stale, report.added) == (0, 0, 0, 0)


def test_asks_at_the_same_time(home: Path, kvchat: Callable[..., list[str]]) -> None:
    """In new chats and in one: each question has its answer, and those in one chat stand side by side or in a row."""
    chat = run(kvchat("ask", "Begin", "--json"))["chat"]
    new = [f"New {number}" for number in range(2)]
    same = [f"Same {number}" for number in range(3)]
    said = together([kvchat("ask", each) for each in new] + [kvchat("ask", "--chat", chat, each) for each in same])
    assert not any("locked" in each or "Traceback" in each for each in said)
    messages = stored(home)
    answered = {message["parent"]: message for message in messages if message["role"] == "assistant"}
    questions = {message["text"]: message for message in messages if message["role"] == "user"}
    assert set(questions) == {"Begin", *new, *same}
    for question in questions.values():
        assert answered[question["id"]]["finish"] in ("length", "stop")
    assert {questions[each]["chat"] for each in same} == {chat}
    assert head(home, chat) in {answered[questions[each]["id"]]["id"] for each in same}
    assert_store_is_sound(home)


# ---------------------------------------------------------------------- a program that stays, and others beside it


class Plain:
    """`kvchat --plain` with its keyboard."""

    def __init__(self, command: list[str]) -> None:
        self._keyboard, terminal = os.openpty()
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        os.close(terminal)
        assert self._process.stderr is not None
        self.said: list[str] = []
        self._answers = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._listen, args=(self._process.stderr,))
        self._thread.start()

    def ask(self, text: str) -> None:
        """Ask, and wait for the end of the answer."""
        os.write(self._keyboard, f"{text}\n".encode())
        assert self._answers.acquire(timeout=WAIT), self.said

    def close(self) -> None:
        os.write(self._keyboard, b"\x04")
        self._process.wait(WAIT)
        self._thread.join(WAIT)
        os.close(self._keyboard)

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            self.said.append(line)
            if " tokens: " in line:  # the last line of a turn
                self._answers.release()


@pytest.fixture
def plain(kvchat: Callable[..., list[str]]) -> Iterator[Callable[..., Plain]]:
    opened: list[Plain] = []

    def start(*words: str) -> Plain:
        opened.append(Plain(kvchat("--plain", *words)))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_one_chat_in_two_programs(home: Path, kvchat: Callable[..., list[str]], plain: Callable[..., Plain]) -> None:
    """What the first computed the second reuses while the first still runs; both go on, and each message stays."""
    here = plain()
    here.ask(LONG)
    there = run(kvchat("ask", "-c", "Said there", "--json"))
    assert there["prompt"]["reused"] >= 128
    here.ask("Said here")
    assert any("this chat went on in another kvchat" in line for line in here.said)
    assert not any("error" in line or "locked" in line for line in here.said)
    messages = stored(home)
    by_text = {message["text"]: message for message in messages}
    assert Counter(message["role"] for message in messages) == {"user": 3, "assistant": 3}
    assert by_text["Said there"]["parent"] == by_text["Said here"]["parent"] != by_text[LONG]["parent"]
    (last,) = [message for message in messages if message["parent"] == by_text["Said here"]["id"]]
    assert head(home, there["chat"]) == last["id"]
    after = run(kvchat("ask", "-c", "And after", "--json"))
    assert after["prompt"]["reused"] >= 128
    assert_store_is_sound(home)


@pytest.fixture(scope="module")
def alone(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The answers of a program that computes everything."""
    folder = str(tmp_path_factory.mktemp("alone"))
    words = [[LONG], *(["-c", each] for each in QUESTIONS)]
    return [run(command_line(model, "ask", *each, "--json", "--no-kv"), KVCHAT_HOME=folder)["text"] for each in words]


def pages(home: Path) -> set[str]:
    return {path.name for path in (home / "kv" / "pages").glob("*/*/*")}


def delete_all(home: Path) -> Callable[[], object]:
    """As `kv gc` with no room does."""
    return lambda: collect(home / "kv", 1)


def write_others(home: Path) -> Callable[[], object]:
    """Another model's pages, with a budget that has no room for the ones of this."""
    store, count = Disk(home / "kv").store(30_000), iter(range(10**9))
    return lambda: put_chat(store, list(range(start := next(count) * 1000, start + 300)))


@pytest.mark.parametrize("spoil", [delete_all, write_others])
def test_pages_that_vanish_while_another_reads_them(
    home: Path, kvchat: Callable[..., list[str]], alone: list[str], spoil: Callable[[Path], Callable[[], object]]
) -> None:
    """The answers are those of a program that needs none of them, byte for byte."""
    got = [run(kvchat("ask", LONG, "--json"))["text"]]
    first = pages(home)
    assert first
    work, ends = spoil(home), threading.Event()

    def go_on() -> None:
        while not ends.wait(0.002):
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        got += [run(kvchat("ask", "-c", each, "--json"))["text"] for each in QUESTIONS]
    finally:
        ends.set()
        thread.join(WAIT)
    assert got == alone
    assert not first & pages(home)  # they did vanish
    assert_store_is_sound(home)

"""StoreThread: order, debouncing, failures, and what is on disk after SIGKILL."""

from __future__ import annotations

import gc
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats import thread as thread_module
from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.errors import KvchatError

WAIT = 30.0


class Failures:
    """What on_failure heard."""

    def __init__(self) -> None:
        self.heard: list[KvchatError] = []
        self.event = threading.Event()

    def __call__(self, error: KvchatError) -> None:
        self.heard.append(error)
        self.event.set()


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def store(tmp_path: Path, failures: Failures) -> Iterator[StoreThread]:
    opened = StoreThread(tmp_path / "chats.db", failures)
    yield opened
    opened.close()


def note(into: list[str], value: str) -> Callable[[ChatStore], None]:
    return lambda _: into.append(value)


def test_run(store: StoreThread) -> None:
    assert store.run(ChatStore.latest).result(WAIT) is None
    assert store.run(lambda chats: len(chats.chats())).result(WAIT) == 0
    assert store.run(lambda _: threading.current_thread().name).result(WAIT) == "chat store"


def test_errors_come_out_of_the_future_and_the_thread_goes_on(store: StoreThread, failures: Failures) -> None:
    with pytest.raises(KvchatError, match="no chat x"):
        store.run(ChatStore.get, "x").result(WAIT)
    with pytest.raises(ZeroDivisionError):
        store.run(lambda _: 1 // 0).result(WAIT)
    assert store.run(ChatStore.latest).result(WAIT) is None
    assert failures.heard == []


def test_a_file_that_cannot_be_opened(tmp_path: Path, failures: Failures) -> None:
    path = tmp_path / "chats.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.commit()
    store = StoreThread(path, failures)
    with pytest.raises(KvchatError, match="not a chat database"):
        store.run(ChatStore.latest).result(WAIT)
    path.unlink()
    assert store.run(ChatStore.latest).result(WAIT) is None  # the person moved it away
    store.close()


def test_a_burst_becomes_one_write_and_the_last_call_counts(store: StoreThread) -> None:
    written: list[str] = []
    gate, last = threading.Event(), threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    for number in range(200):
        store.debounce("key", 0.1, note(written, str(number)))
    store.debounce("another key", 0.1, note(written, "another"))
    gate.set()
    store.run(ChatStore.latest).result(WAIT)
    assert sorted(written) == ["199", "another"]
    for number in range(200, 300):
        store.debounce("key", 0.1, note(written, str(number)))
    store.debounce("key", 0.1, lambda _: last.set())
    assert last.wait(WAIT)  # without any further call


def test_a_debounced_change_is_not_written_twice_nor_late(store: StoreThread) -> None:
    written: list[str] = []
    store.debounce("key", 0, note(written, "a"))
    store.run(ChatStore.latest).result(WAIT)
    store.debounce("key", 1000, note(written, "partial"))  # waits for 1,000 seconds
    store.debounce("key", 0, note(written, "final"))  # takes its place, at once
    store.run(ChatStore.latest).result(WAIT)
    assert written == ["a", "final"]


def test_what_was_written_is_held_no_longer(store: StoreThread) -> None:
    """An answer is saved every second, each time all of it: no copy waits for the garbage collector."""

    class Text:
        pass

    text = Text()
    held = weakref.ref(text)
    gc.disable()
    try:
        store.debounce("a", 0.0, lambda store, text: None, text)
        del text
        store.run(lambda store: None).result(WAIT)
        store.run(lambda store: None).result(WAIT)
        assert held() is None
    finally:
        gc.enable()


def test_order(store: StoreThread) -> None:
    written: list[str] = []
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    store.run(note(written, "1"))
    store.debounce("key", 0, note(written, "2"))
    last = store.run(note(written, "3"))
    gate.set()
    last.result(WAIT)
    assert written == ["1", "2", "3"]


def test_close_writes_what_waits(tmp_path: Path, failures: Failures) -> None:
    written: list[str] = []
    store = StoreThread(tmp_path / "chats.db", failures)
    store.debounce("key", 1000, note(written, "first"))
    store.run(ChatStore.latest).result(WAIT)
    store.debounce("key", 1000, note(written, "last"))
    store.close()
    assert written == ["first", "last"]
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.run(ChatStore.latest)


def test_a_failing_change_is_told_once_and_tried_again(
    store: StoreThread, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "RETRY_SECONDS", 0.01)
    done = threading.Event()
    attempts: list[int] = []

    def full_at_first(_: ChatStore) -> None:
        attempts.append(len(attempts))
        if len(attempts) < 4:
            raise NotSavedError("the disk is full")
        done.set()

    store.debounce("key", 0, full_at_first)
    assert done.wait(WAIT)
    store.run(ChatStore.latest).result(WAIT)
    assert [error.message for error in failures.heard] == ["the disk is full"]
    assert len(attempts) == 4


def test_a_newer_change_takes_the_place_of_one_that_failed(store: StoreThread, failures: Failures) -> None:
    written: list[str] = []
    store.debounce("key", 0, full)
    assert failures.event.wait(WAIT)
    store.debounce("key", 0, note(written, "newer"))
    store.run(ChatStore.latest).result(WAIT)
    store.close()
    assert written == ["newer"]
    assert len(failures.heard) == 1


def full(_: ChatStore) -> None:
    raise NotSavedError("the disk is full")


def test_close_tries_again_and_tells_again_what_is_lost(store: StoreThread, failures: Failures) -> None:
    store.debounce("lost", 0, full)
    assert failures.event.wait(WAIT)
    store.close()
    assert [error.message for error in failures.heard] == ["the disk is full"] * 2
    assert store.failure("lost") is failures.heard[1]
    assert store.failure("another") is None


def test_close_writes_what_failed_before(store: StoreThread, failures: Failures) -> None:
    room: list[str] = []

    def full_at_first(chats: ChatStore) -> None:
        if not room:
            full(chats)

    store.debounce("key", 0, full_at_first)
    assert failures.event.wait(WAIT)
    assert store.failure("key") is failures.heard[0]
    room.append("enough")
    store.close()
    assert len(failures.heard) == 1
    assert store.failure("key") is None


def test_a_bug_in_a_debounced_change_is_told_and_not_repeated(store: StoreThread, failures: Failures) -> None:
    store.debounce("key", 0, lambda _: 1 // 0)
    assert failures.event.wait(WAIT)
    assert "ZeroDivisionError" in failures.heard[0].message
    assert store.run(ChatStore.latest).result(WAIT) is None


PRELUDE = """
import sys, time
from pathlib import Path
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, Message
store = StoreThread(Path(sys.argv[1]), print)
chat = Chat("c", "t", 1.0, 1.0, "", 1.0, "", None)
turn = [Message("u", "c", None, "user", "my words", 1.0, ""), Message("r", "c", "u", "assistant", "", 1.0, None)]
store.run(ChatStore.add_turn, chat, turn).result()
def partial(count):
    store.debounce("r", 0.5, ChatStore.update_partial, "r", "word " * count, "m", {"k": list(range(count))})
"""
WRITES_FOR_EVER = """
for count in range(1, 1 << 30):
    partial(count)
    if count == 100:
        old = time.monotonic()
    if count >= 100 and time.monotonic() - old > 1.0:
        print("100 words are one second old", flush=True)
        old = float("inf")
    time.sleep(0.002)
"""
FALLS_SILENT = """
partial(1); partial(2); partial(3)
time.sleep(1.0)
print("3 words are one second old", flush=True)
time.sleep(1000)
"""
NEVER_CLOSES = """
partial(1); partial(2); partial(3)
"""


def after_kill(path: Path, script: str) -> tuple[str, str | None, int]:
    """Runs the script until it prints a line, kills it; the text, finish and number of ids of the reply on disk."""
    child = subprocess.Popen([sys.executable, "-c", PRELUDE + script, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert "second old" in child.stdout.readline()
    child.kill()
    assert child.wait(WAIT) == -signal.SIGKILL
    child.stdout.close()
    with closing(ChatStore(path)) as store:
        question, answer = store.path(store.get("c").head)
        assert question.text == "my words"
        ids = store.known_ids("r", "k")["r"].ids
        assert ids is not None
        return answer.text, answer.finish, len(ids)


@pytest.mark.parametrize(("script", "least"), [(WRITES_FOR_EVER, 100), (FALLS_SILENT, 3)])
def test_kill_loses_at_most_a_second(tmp_path: Path, script: str, least: int) -> None:
    text, finish, ids = after_kill(tmp_path / "chats.db", script)
    assert finish is None
    assert ids >= least
    assert text == "word " * ids  # text and ids are those of one moment


def test_a_program_that_ends_without_close_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    subprocess.run([sys.executable, "-c", PRELUDE + NEVER_CLOSES, str(path)], check=True, timeout=WAIT)
    with closing(ChatStore(path)) as store:
        assert store.path("r")[1].text == "word " * 3

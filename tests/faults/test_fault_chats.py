"""The chats on a disk that is full, becomes read-only or goes away: what was committed stays, what was not is told."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from failing_disk import files_of_at_most

from kvchat.chats.ids import UlidSource
from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.errors import KvchatError

TEXT = "Words that must not be lost. " * 100  # 2,900 bytes: a message takes pages of its own


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(file)) as opened:
        yield opened


def turn(store: ChatStore, number: int, parent: str | None, at: float = 1.0) -> str:
    """Adds a message and finishes its answer; the id of the answer."""
    chat = Chat("c", "A title", 1.0, at, "", 1.0, "", None)
    question = Message(f"u{number}", "c", parent, "user", TEXT, at, "")
    answer = Message(f"r{number}", "c", question.id, "assistant", "", at, None)
    store.add_turn(chat, [question, answer])
    store.finish(Message(answer.id, "c", question.id, "assistant", TEXT, at, "stop"), at, {"key": range(50)})
    return answer.id


def assert_whole(file: Path, head: str | None, messages: int) -> None:
    """A new process finds a sound file with all that was committed."""
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    with closing(ChatStore(file)) as again:
        path = again.path(head)
        assert len(path) == messages
        assert all(message.text == TEXT for message in path)
        assert len(again.search("words", most=500)) == messages


def test_a_full_disk_at_every_size(file: Path, store: ChatStore) -> None:
    """Whichever write meets the end of the disk: the turn is told as not saved, or it is there; never a part of it."""
    head, messages, refused = None, 0, 0
    for number in range(60):
        journal = file.with_name("chats.db-wal").stat().st_size
        with files_of_at_most(max(file.stat().st_size, journal) + number % 20 * 1024):
            before = head
            try:
                head = turn(store, number, head)
            except NotSavedError as error:
                refused += 1
                assert error.hint
                written = store.path(f"u{number}")
                kept = store.path(f"r{number}")
                assert (len(written), len(kept)) in ((0, 0), (messages + 1, messages + 2))
                head = before
        if head == before:  # with room again the same words are saved
            if store.path(f"u{number}"):
                store.finish(Message(f"r{number}", "c", f"u{number}", "assistant", TEXT, 1.0, "stop"), 1.0)
                head = f"r{number}"
            else:
                head = turn(store, number, head)
        messages += 2
    assert refused > 5
    assert_whole(file, head, messages)


def test_a_disk_that_is_full_from_the_start(file: Path) -> None:
    with files_of_at_most(0), pytest.raises(KvchatError) as caught:
        ChatStore(file)
    assert caught.value.hint
    with closing(ChatStore(file)) as store:
        head = turn(store, 1, None)
    assert_whole(file, head, 2)


def test_every_size_at_which_a_new_file_cannot_be_made(file: Path) -> None:
    for limit in range(512, 200_000, 9_000):
        shutil.rmtree(file.parent, ignore_errors=True)
        try:
            with files_of_at_most(limit), closing(ChatStore(file)) as store:
                turn(store, 1, None)
        except KvchatError as error:
            assert error.hint
        with closing(ChatStore(file)) as store:
            if not store.path("u1"):
                turn(store, 1, None)
        with closing(sqlite3.connect(file)) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def folder_removed(file: Path) -> None:
    shutil.rmtree(file.parent)


def file_removed(file: Path) -> None:
    file.unlink()


def another_file(file: Path) -> None:
    file.rename(file.with_name("old.db"))
    with closing(ChatStore(file)):
        pass


@pytest.mark.parametrize("lose", [folder_removed, file_removed, another_file])
def test_a_file_that_is_gone_takes_no_words_with_it(file: Path, store: ChatStore, lose: Callable[[Path], None]) -> None:
    """SQLite would write on into a file without a name."""
    head = turn(store, 1, None)
    lose(file)
    with pytest.raises(NotSavedError, match="moved or deleted"):
        turn(store, 2, head)
    if lose is not another_file:  # that one has taken the journal
        assert [message.text for message in store.path(head)] == [TEXT, TEXT]


def test_a_file_that_comes_back_is_written_again(file: Path, store: ChatStore) -> None:
    head = turn(store, 1, None)
    elsewhere = file.parent.rename(file.parent.with_name("elsewhere"))
    with pytest.raises(NotSavedError):
        turn(store, 2, head)
    elsewhere.rename(file.parent)
    head = turn(store, 2, head)
    store.close()
    assert_whole(file, head, 4)


def test_a_clock_that_goes_backwards_changes_no_order(file: Path, store: ChatStore) -> None:
    times = iter([1000.0, 400.0, 399.0, 10.0])
    source = UlidSource(clock=lambda: next(times))
    assert sorted(ids := [source() for _ in range(4)]) == ids
    head = None
    for number, at in enumerate((1000.0, 400.0, 399.0, 10.0)):
        head = turn(store, number, head, at)
    assert [message.id for message in store.path(head)] == [f"{role}{n}" for n in range(4) for role in "ur"]
    assert store.latest() is not None
    assert_whole(file, head, 8)

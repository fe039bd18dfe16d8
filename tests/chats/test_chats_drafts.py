"""Drafts on disk, and the search in what was sent."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats import drafts
from kvchat.chats.schema import MIGRATIONS, connect
from kvchat.chats.store import ChatStore
from kvchat.chats.trash import TRASH_DAYS
from kvchat.chats.types import Chat, Draft, Message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(path)) as opened:
        yield opened


def say(store: ChatStore, chat: str, *texts: str) -> None:
    """Messages of a person, each the child of the one before."""
    parent = None
    for number, text in enumerate(texts):
        message = Message(f"{chat}{number}", chat, parent, "user", text, float(number), "")
        store.add_turn(Chat(chat, "title", 1.0, 1.0, "", 1.0, "", None), [message])
        parent = message.id


def test_a_draft_comes_back_as_it_was(store: ChatStore, path: Path) -> None:
    draft = Draft("half a 문장\n\0 and 🙂 @a.py · 9 tokens", '{"@a.py · 9 tokens": {"path": "/a.py"}}')
    store.set_draft("c", draft)
    store.set_draft(drafts.NEW, Draft("of a new chat"))
    with closing(ChatStore(path)) as again:
        assert again.draft("c") == draft
        assert again.draft(drafts.NEW) == Draft("of a new chat")
        assert again.draft("other") == Draft()


def test_another_takes_its_place_and_an_empty_one_removes_it(store: ChatStore, path: Path) -> None:
    store.set_draft("c", Draft("first"))
    store.set_draft("c", Draft("second"))
    assert store.draft("c") == Draft("second")
    store.set_draft("c", Draft())
    assert store.draft("c") == Draft()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM drafts").fetchone() == (0,)


def test_a_chat_that_is_removed_for_good_takes_its_draft_along(store: ChatStore, path: Path) -> None:
    say(store, "c", "hello")
    store.set_draft("c", Draft("a secret"))
    store.trash("c")
    assert store.draft("c") == Draft("a secret")  # it may come back
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE chats SET deleted_at = ?", (time.time() - (TRASH_DAYS + 1) * 86400,))
        file.commit()
    with closing(ChatStore(path)) as later:
        assert later.draft("c") == Draft()


def test_a_file_from_before_there_were_drafts(path: Path) -> None:
    with closing(connect(path, MIGRATIONS[:2])) as before:
        before.execute(
            "INSERT INTO chats (id, title, created, updated, system, clock, model, settings) "
            "VALUES ('c', 'title', 1, 1, '', 1, '', '{}')"
        )
    with closing(ChatStore(path)) as store:
        assert store.draft("c") == Draft()
        store.set_draft("c", Draft("now"))
        assert store.draft("c") == Draft("now")


def texts(store: ChatStore, query: str, chat: str = "here", most: int = 100) -> list[tuple[str, bool]]:
    return [(sent.text, sent.here) for sent in store.sent(query, chat, most)]


def test_this_chat_first_then_the_newest(store: ChatStore) -> None:
    say(store, "here", "old here", "new here")
    say(store, "far", "old far", "new far")
    expected = [("new here", True), ("old here", True), ("new far", False), ("old far", False)]
    assert texts(store, "") == expected
    assert texts(store, "", most=3) == expected[:3]
    assert texts(store, "old") == [("old here", True), ("old far", False)]


def test_all_words_in_any_order_whatever_their_case(store: ChatStore) -> None:
    say(store, "far", "Über den Wolken", "键值缓存 한국어", "100% \\ _ ' \"")
    assert texts(store, "wolken ÜBER") == [("Über den Wolken", False)]
    assert texts(store, "缓存 한국") == [("键值缓存 한국어", False)]
    assert texts(store, "0% \\ _ ' \"") == [("100% \\ _ ' \"", False)]
    assert texts(store, "wolken 缓存") == []


def test_each_text_once_and_only_what_a_person_sent_and_kept(store: ChatStore) -> None:
    say(store, "here", "again", "again")
    say(store, "far", "again", "gone")
    say(store, "trashed", "in the trash")
    store.trash("trashed")
    answer = Message("a", "far", "far1", "assistant", "an answer", 9.0, "stop")
    store.add_turn(Chat("far", "title", 1.0, 1.0, "", 1.0, "", None), [answer])
    store.delete_message(next(message for message in store.path("a") if message.text == "gone"))
    assert texts(store, "") == [("again", True)]

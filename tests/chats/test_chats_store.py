"""ChatStore: the message tree, token ids per key, search, and what one transaction is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Branch, Chat, KnownIds, Message
from kvchat.errors import KvchatError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(tmp_path / "chats.db")) as opened:
        yield opened


def chat(name: str, title: str = "A title", updated: float = 1.0) -> Chat:
    return Chat(name, title, 1.0, updated, "", 1.0, "", None)


def user(name: str, of: str, text: str, parent: str | None = None) -> Message:
    return Message(name, of, parent, "user", text, 1.0, "")


def reply(name: str, of: str, parent: str, text: str = "") -> Message:
    return Message(name, of, parent, "assistant", text, 1.0, None)


def add(store: ChatStore, name: str, text: str, title: str = "A title", updated: float = 1.0) -> None:
    store.add_turn(chat(name, title, updated), [user(f"{name}-u", name, text), reply(f"{name}-r", name, f"{name}-u")])


def test_a_turn_comes_back_as_it_went_in(store: ChatStore) -> None:
    whole = Chat("c", "Títle 한", 1.5, 2.5, "be brief", 3.5, "m", None)
    question = user("u", "c", "nul \0 and \x1b and 🙂")
    answer = reply("r", "c", "u")
    store.add_turn(whole, [question, answer])
    assert store.get("c") == replace(whole, head="r")
    assert store.path("r") == (question, answer)
    assert store.path("u") == (question,)
    assert store.path(None) == ()


def test_unknown_chat(store: ChatStore) -> None:
    with pytest.raises(KvchatError, match="no chat nope"):
        store.get("nope")


def test_a_later_turn_keeps_what_another_process_renamed(store: ChatStore, tmp_path: Path) -> None:
    add(store, "c", "hello")
    with closing(sqlite3.connect(tmp_path / "chats.db")) as other:
        other.execute("UPDATE chats SET title = 'Renamed'")
        other.commit()
    store.add_turn(replace(chat("c"), system="new", updated=9.0), [user("u2", "c", "more", "c-r")])
    kept = store.get("c")
    assert (kept.title, kept.system, kept.updated, kept.head) == ("Renamed", "new", 9.0, "u2")


def test_a_turn_is_one_transaction(store: ChatStore) -> None:
    with pytest.raises(KvchatError):  # the second message has the id of the first
        store.add_turn(chat("c"), [user("u", "c", "hello"), reply("u", "c", "u")])
    assert store.chats() == ()
    assert store.path("u") == ()
    assert store.search("hello") == ()


def test_full_disk_leaves_the_store_as_it_was(store: ChatStore) -> None:
    add(store, "c", "hello")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NotSavedError, match="disk is full") as caught:
        add(store, "d", "x" * 1_000_000)
    assert caught.value.hint
    assert [summary.chat.id for summary in store.chats()] == ["c"]
    store._connection.execute("PRAGMA max_page_count = 1000000")
    add(store, "d", "x" * 1_000_000)
    assert {summary.chat.id for summary in store.chats()} == {"c", "d"}


def test_branches(store: ChatStore) -> None:
    add(store, "c", "first")
    store.add_turn(chat("c"), [reply("other", "c", "c-u")])  # regenerate
    store.add_turn(chat("c"), [user("edited", "c", "first, edited")])  # edit of the first message
    assert store.branch("c", "other").siblings == {"c-u": ("c-u", "edited"), "other": ("c-r", "other")}
    assert store.branch("c", "edited").siblings == {"edited": ("c-u", "edited")}
    assert store.branch("c", None) == Branch()
    assert [m.id for m in store.path("other")] == ["c-u", "other"]
    assert store.get("c").head == "edited"


def test_a_branch_of_thousands_of_messages(store: ChatStore) -> None:
    messages = [user(f"m{n}", "c", f"word{n}", f"m{n - 1}" if n else None) for n in range(3000)]
    store.add_turn(chat("c"), messages)
    assert store.path("m2999") == tuple(messages)


def test_partial_and_finish(store: ChatStore) -> None:
    add(store, "c", "hello")
    store.update_partial("c-r", "Once", "m1", {"k": [5, -1, 2**31 - 1]})
    before = store.path("c-r")[1]
    assert (before.text, before.finish, before.model) == ("Once", None, "m1")
    assert store.known_ids("c-r", "k") == {"c-r": KnownIds((5, -1, 2**31 - 1), ())}
    done = replace(before, text="Once upon", finish="stop", model="m1", usage='{"reused": 3}')
    store.finish(done, 7.0, {"k": [5, 6]})
    assert store.path("c-r")[1] == done
    assert (store.get("c").updated, store.get("c").model) == (7.0, "m1")
    store.reopen(replace(chat("c"), updated=8.0), "c-r")
    assert store.path("c-r")[1] == replace(done, finish=None)


def test_ids_of_another_key_end_with_their_text(store: ChatStore) -> None:
    add(store, "c", "hello")
    store.set_ids("k1", {"c-u": (1, 2), "c-r": (3,)})
    store.set_ids("k2", {"c-u": ()})
    assert store.known_ids("c-r", "k1") == {"c-u": KnownIds((1, 2), ("k2",)), "c-r": KnownIds((3,), ())}
    assert store.known_ids("c-r", "k2") == {"c-u": KnownIds((), ("k1",)), "c-r": KnownIds(None, ("k1",))}
    store.update_partial("c-r", "longer", "m", {"k2": (3, 4)})  # the ids under k1 were those of a shorter text
    assert store.known_ids("c-r", "k1")["c-r"] == KnownIds(None, ("k2",))
    store.update_partial("c-r", "longer", "m")  # nothing known of its ids: they stay
    assert store.known_ids("c-r", "k2")["c-r"] == KnownIds((3, 4), ())


def test_writing_to_a_message_that_is_gone(store: ChatStore) -> None:
    with pytest.raises(KvchatError, match="not in"):
        store.update_partial("gone", "x", "m", {"k": (1,)})
    with pytest.raises(KvchatError, match="not in"):
        store.finish(reply("gone", "c", "u"), 1.0)


def test_list_and_latest(store: ChatStore, tmp_path: Path) -> None:
    assert store.latest() is None
    for name, updated in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        add(store, name, "hello", updated=updated)
    assert [(s.chat.id, s.messages) for s in store.chats()] == [("b", 2), ("c", 2), ("a", 2)]
    with closing(sqlite3.connect(tmp_path / "chats.db")) as other:
        other.execute("UPDATE chats SET deleted_at = 1 WHERE id = 'b'")
        other.commit()
    assert [s.chat.id for s in store.chats()] == ["c", "a"]
    latest = store.latest()
    assert latest is not None and latest.id == "c"
    assert {hit.chat for hit in store.search("hello")} == {"a", "c"}


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("01A1", "01A1"),  # an id
        ("01a1", "01A1"),  # in lower case
        ("01B", "01B1"),  # the beginning of one id
        ("gravity", "01A2"),  # a whole title goes before a part of another
        ("french", "01B1"),  # a part of one title
    ],
)
def test_resolve(store: ChatStore, wanted: str, found: str) -> None:
    add(store, "01A1", "x", title="What is gravity?")
    add(store, "01A2", "x", title="Gravity")
    add(store, "01B1", "x", title="Learning French")
    assert store.resolve(wanted).id == found


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ("01A", "can mean 2 chats", "01A1 (What is gravity?)"),
        ("gravty", 'no chat "gravty"', "did you mean"),  # nearest
        ("zzzzzzzzzzzz", 'no chat "zzzzzzzzzzzz"', "chats ls"),
        ("  ", "empty", "chats ls"),
        ("\x1b[2J", "no chat", "chats ls"),
    ],
)
def test_resolve_refuses(store: ChatStore, wanted: str, message: str, hint: str) -> None:
    add(store, "01A1", "x", title="What is gravity?")
    add(store, "01A2", "x", title="Gravity")
    with pytest.raises(KvchatError) as caught:
        store.resolve(wanted)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "\x1b" not in str(caught.value)


def test_resolve_without_chats(store: ChatStore) -> None:
    with pytest.raises(KvchatError, match="no chats yet"):
        store.resolve("x")


# ------------------------------------------------------------------ search


def test_search_follows_the_text(store: ChatStore) -> None:
    add(store, "c", "The quick brown fox", title="Animals")
    assert store.search("quick fox")[0].message == "c-u"
    assert store.search("QUICK")[0].title == "Animals"
    assert "quick" in store.search("qui")[0].snippet  # the last word may be a beginning
    assert store.search("qui fox") == ()  # the others not
    store.update_partial("c-r", "lazy", "m")
    store.update_partial("c-r", "lazy dog", "m")
    assert [hit.message for hit in store.search("dog")] == ["c-r"]
    store.update_partial("c-r", "a cat", "m")
    assert store.search("dog") == ()
    store._connection.execute("DELETE FROM chats")
    assert store.search("fox") == ()
    store._connection.execute("INSERT INTO message_text (message_text) VALUES ('integrity-check')")


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '""',
        'a"b',
        "'; DROP TABLE messages; --",
        "hello AND",
        "NOT hello",
        "NEAR(hello world)",
        "text:hello",
        "-hello",
        "hel*lo",
        "^hello",
        "(((",
        "{a b}:c",
        "\0",
        "hello\0world",
        "*",
        "…",
        "🙂",
        "",
        "   ",
        "w " * 5000,
        "x" * 100_000,
    ],
)
def test_search_with_hostile_queries(store: ChatStore, query: str) -> None:
    add(store, "c", "hello world")
    assert len(store.search(query)) <= 1
    assert store.search("hello") != ()


def test_search_takes_operators_as_words(store: ChatStore) -> None:
    add(store, "c", "neither here nor there")
    add(store, "d", "this AND that")
    assert {hit.chat for hit in store.search("this OR neither")} == set()
    assert {hit.chat for hit in store.search("this and")} == {"d"}

"""Renaming, the trash and what is removed for good, duplicates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kvchat.chats import schema, trash
from kvchat.chats.resolve import LONGEST_TITLE
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, KnownIds, Message
from kvchat.errors import KvchatError

DAY = 86400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(path)) as opened:
        yield opened


def add(store: ChatStore, name: str, text: str = "hello", title: str = "A title") -> None:
    chat = Chat(name, title, 1.0, 2.0, "sys", 3.0, "m", None, settings='{"model": "x"}')
    question = Message(f"{name}-u", name, None, "user", text, 1.0, "")
    store.add_turn(chat, [question, Message(f"{name}-r", name, question.id, "assistant", f"re: {text}", 1.0, "stop")])
    store.set_ids("k", {f"{name}-u": (1, 2), f"{name}-r": (3,)})


def names(store: ChatStore) -> tuple[list[str], list[str]]:
    return [s.chat.id for s in store.chats()], [s.chat.id for s in store.trashed()]


def age(store: ChatStore, chat: str, days: float) -> None:
    store._connection.execute("UPDATE chats SET deleted_at = ? WHERE id = ?", (time.time() - days * DAY, chat))


def all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


# ------------------------------------------------------------------ names


def test_rename(store: ChatStore) -> None:
    add(store, "c")
    store.rename("c", " \x1b[1m Neuer\nTitel \u202e한 ")
    assert store.get("c").title == "␛[1m Neuer Titel 한"
    assert store.get("c").updated == 2.0
    store.rename("c", "x" * LONGEST_TITLE)
    for title in ("", " \n\t", "\u200b", "x" * (LONGEST_TITLE + 1)):
        with pytest.raises(KvchatError):
            store.rename("c", title)
    assert store.get("c").title == "x" * LONGEST_TITLE


def test_changes_of_a_chat_that_is_not_there(store: ChatStore) -> None:
    for change in (
        lambda: store.rename("nope", "x"),
        lambda: store.trash("nope"),
        lambda: store.restore("nope"),
        lambda: store.duplicate("nope"),
        lambda: store.set_system("nope", "x"),
        lambda: store.set_settings("nope", "{}"),
    ):
        with pytest.raises(KvchatError, match="no chat nope"):
            change()


# ------------------------------------------------------------------ the trash


def test_there_and_back(store: ChatStore) -> None:
    for name in "abc":
        add(store, name)
    before = store.get("b"), store.path("b-r"), store.known_ids("b-r", "k")
    store.trash("b")
    store.trash("a")
    assert names(store) == (["c"], ["a", "b"])  # the last deleted first
    assert store.trashed()[1].messages == 2
    with pytest.raises(KvchatError):
        store.trash("b")  # is there already
    with pytest.raises(KvchatError):
        store.restore("c")  # was never there
    store.restore("b")
    assert names(store) == (["c", "b"], ["a"])
    assert (store.get("b"), store.path("b-r"), store.known_ids("b-r", "k")) == before


def test_names_in_the_trash(store: ChatStore) -> None:
    add(store, "01A", title="Physics")
    add(store, "01B", title="Cooking")
    with pytest.raises(KvchatError, match="trash is empty"):
        store.resolve("Physics", trashed=True)
    store.trash("01A")
    assert store.resolve("physics", trashed=True).id == "01A"
    with pytest.raises(KvchatError, match="no chat"):
        store.resolve("Physics")
    with pytest.raises(KvchatError, match='"Cooking" in the trash') as caught:
        store.resolve("Cooking", trashed=True)
    assert "--trash" in caught.value.hint


def test_what_is_old_is_removed_when_the_store_is_opened(store: ChatStore, path: Path) -> None:
    for name in "abc":
        add(store, name, f"{name} secret-{name}")
    for name in "ab":
        store.trash(name)
    age(store, "a", trash.TRASH_DAYS + 0.01)
    age(store, "b", trash.TRASH_DAYS - 0.01)
    with closing(ChatStore(path)) as again:
        assert names(again) == (["c"], ["b"])
        with pytest.raises(KvchatError, match="no chat a"):
            again.get("a")
        for table, column in (("messages", "chat = 'a'"), ("message_ids", "message LIKE 'a-%'")):
            assert again._connection.execute(f"SELECT count(*) FROM {table} WHERE {column}").fetchone() == (0,)
        assert [hit.chat for hit in again.search("secret")] == ["c", "c"]
        again._connection.execute("INSERT INTO message_text (message_text) VALUES ('integrity-check')")
        again.restore("b")
        assert len(again.search("secret")) == 4


def test_a_long_branch_can_be_removed(store: ChatStore, path: Path) -> None:
    messages = [Message(f"m{n}", "c", f"m{n - 1}" if n else None, "user", f"w{n}", 1.0, "") for n in range(3000)]
    store.add_turn(Chat("c", "t", 1.0, 1.0, "", 1.0, "", None), messages)
    store.trash("c")
    age(store, "c", trash.TRASH_DAYS + 1)
    with closing(ChatStore(path)) as again:
        assert again.trashed() == ()
        assert again._connection.execute("SELECT count(*) FROM messages").fetchone() == (0,)


def test_removed_words_are_in_no_file(path: Path) -> None:
    with closing(ChatStore(path)) as store:
        assert store._connection.execute("PRAGMA secure_delete").fetchone() == (1,)
        add(store, "kept", "harmless words " * 50)
        for number in range(20):
            add(store, f"c{number}", f"xyzzyplugh {number} " * 100, title="xyzzyplugh")
            store.trash(f"c{number}")
            age(store, f"c{number}", trash.TRASH_DAYS + 1)
    assert b"xyzzyplugh" in all_bytes(path.parent)
    with closing(ChatStore(path)):
        assert b"xyzzyplugh" not in all_bytes(path.parent)
        assert b"harmless" in all_bytes(path.parent)
    assert b"xyzzyplugh" not in all_bytes(path.parent)


def test_a_store_opens_when_the_trash_cannot_be_emptied(
    store: ChatStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "c")
    store.trash("c")
    age(store, "c", trash.TRASH_DAYS + 1)
    monkeypatch.setattr(schema, "_BUSY_SECONDS", 0.0)
    with schema.immediate(store._connection), closing(ChatStore(path)) as again:  # another program is writing
        assert [summary.chat.id for summary in again.trashed()] == ["c"]
    with closing(ChatStore(path)) as again:
        assert again.trashed() == ()


# ------------------------------------------------------------------ duplicates


def test_a_duplicate_is_the_same_tree_under_other_ids(store: ChatStore) -> None:
    add(store, "c")
    chat = store.get("c")
    store.add_turn(chat, [Message("other", "c", "c-u", "assistant", "other", 4.0, None, "m2", '{"reused": 1}')])
    store.add_turn(chat, [Message("gone", "c", "c-u", "assistant", "gone", 5.0, "stop")])
    store.delete_message(store.path("gone")[-1])
    store.show("c", "other")
    store.set_ids("k2", {"other": (7, 8)})
    source = store.get("c")

    copy = store.duplicate("c")
    assert copy == store.get(copy.id)
    assert copy == replace(
        source, id=copy.id, title="A title (copy)", created=copy.created, updated=copy.updated, head=copy.head
    )
    assert copy.id != "c" and copy.created > source.created
    branch, original = store.branch(copy.id, copy.head), store.branch("c", "other")
    for ours, theirs in zip(branch.messages, original.messages, strict=True):
        assert replace(ours, id=theirs.id, chat="c", parent=theirs.parent) == theirs
        assert ours.id != theirs.id and ours.chat == copy.id
    assert branch.messages[1].parent == branch.messages[0].id
    assert [len(branch.siblings[m.id]) for m in branch.messages] == [1, 2]
    question, answer = (message.id for message in branch.messages)
    assert store.known_ids(answer, "k") == {question: KnownIds((1, 2), ()), answer: KnownIds(None, ("k2",))}
    assert store.known_ids(answer, "k2")[answer].ids == (7, 8)
    assert {hit.chat for hit in store.search("other")} == {"c", copy.id}
    assert len(store.search("gone")) == 0

    store.update_partial(answer, "changed", "m", {"k": (9,)})
    store.rename(copy.id, "Mine")
    store.set_settings(copy.id, "{}")
    assert store.get("c") == source
    assert store.branch("c", "other") == original
    assert store.known_ids("other", "k2")["other"].ids == (7, 8)


def test_a_duplicate_of_what_is_in_the_trash_or_empty(store: ChatStore) -> None:
    add(store, "c")
    store.trash("c")
    copy = store.duplicate("c")
    assert names(store) == ([copy.id], ["c"])
    store.delete_message(store.path(copy.head)[0])
    empty = store.duplicate(copy.id)
    assert empty.head is None
    assert store.path(empty.head) == ()


def test_a_duplicate_is_one_transaction(store: ChatStore, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, "c")
    monkeypatch.setattr(trash, "new_ulid", lambda: "the same for all")
    with pytest.raises(KvchatError):
        store.duplicate("c")
    assert names(store) == (["c"], [])

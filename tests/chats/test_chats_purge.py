"""What is purged is in no byte of the database, its log and its older copies; what the token ids of chats tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from traces import traces

from kvchat.chats.schema import MIGRATIONS, connect
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Draft, Message, Summary
from kvchat.errors import KvchatError
from kvchat.formats.past import READ, Eviction, Past

WORD = "zanzibarquokka"
KINDS = ("title", "system", "question", "reply", "draft", "summary", "settings")
SECRETS = [f"{WORD}{kind}" for kind in KINDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(path)) as opened:
        yield opened


def add(store: ChatStore, name: str, title: str, system: str, question: str, reply: str, draft: str) -> None:
    chat = Chat(name, title, 1.0, 2.0, system, 3.0, "m", None)
    first = Message(f"{name}-u", name, None, "user", question, 1.0, "")
    store.add_turn(chat, [first, Message(f"{name}-r", name, first.id, "assistant", reply, 1.0, "stop")])
    store.set_draft(name, Draft(draft))


def add_secret(store: ChatStore, name: str = "secret") -> None:
    add(store, name, *SECRETS[:5])
    store.put_summary(Summary(f"{name}-s", f"{name}-r", SECRETS[5], 1.0))
    store.set_settings(name, f'{{"x": "{SECRETS[6]}"}}')
    for number in range(300):  # many words, changed again and again: the index has many segments, the file moves rows
        store.update_partial(f"{name}-r", f"{SECRETS[3]} {number} " * 20, "m")


def nothing(gone: Iterable[Past], stay: Iterable[Past]) -> tuple[list[Past], list[Past]]:
    return list(gone), list(stay)


def test_no_byte_of_it_is_left(store: ChatStore, path: Path) -> None:
    for number in range(40):
        add(store, f"c{number:02}", "Title", "", f"question {number} " * 50, "reply " * 100, "")
        if number == 20:
            add_secret(store)
    store.trash("secret")
    assert traces([path.parent], SECRETS) != set()
    store.purging.purge(["secret"], nothing)
    assert traces([path.parent], [WORD]) == set()
    assert len(store.chats()) == 40
    assert store.search("question")[0].chat.startswith("c")
    with pytest.raises(KvchatError, match="no chat secret"):
        store.get("secret")


def test_copies_of_older_versions_are_purged_too(path: Path) -> None:
    for version in range(1, len(MIGRATIONS)):
        with closing(connect(path.with_name(f"old{version}.db"), MIGRATIONS[:version])) as old:
            old.execute(
                "INSERT INTO chats (id, title, created, updated, system, clock, model, settings) "
                "VALUES ('secret', ?, 1, 1, '', 1, '', '{}'), ('other', 'kept', 1, 1, '', 1, '', '{}')",
                (SECRETS[0],),
            )
            old.execute(
                "INSERT INTO messages (id, chat, role, text, created, finish, model) "
                "VALUES ('m', 'secret', 'user', ?, 1, '', '')",
                (SECRETS[2],),
            )
        path.with_name(f"old{version}.db").rename(path.with_name(f"chats.db.v{version}.backup"))
    with closing(ChatStore(path)) as store:
        add_secret(store)
        store.purging.purge(["secret"], nothing)
    assert traces([path.parent], [WORD]) == set()
    for version in range(1, len(MIGRATIONS)):
        with closing(sqlite3.connect(path.with_name(f"chats.db.v{version}.backup"))) as copy:
            assert copy.execute("SELECT id FROM chats").fetchall() == [("other",)]


def test_what_forget_raises_leaves_all_as_it_was(store: ChatStore) -> None:
    def refuse(gone: Iterable[Past], stay: Iterable[Past]) -> None:
        raise KvchatError("no")

    add_secret(store)
    with pytest.raises(KvchatError, match=r"^no$"):
        store.purging.purge(["secret"], refuse)
    assert store.get("secret").title == SECRETS[0]


def test_a_reader_elsewhere_is_told_and_can_be_waited_for(store: ChatStore, path: Path) -> None:
    add_secret(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM chats").fetchall()
        with pytest.raises(KvchatError, match="bytes of it may be left") as caught:
            store.purging.purge(["secret"], nothing)
        assert "empty-trash" in caught.value.hint
    store.purging.rewrite()
    assert traces([path.parent], [WORD]) == set()


# ---------------------------------------------------------------------- histories


def add_ids(store: ChatStore, chat: str, messages: list[tuple[str, str | None, dict[str, tuple[int, ...]]]]) -> None:
    made = [Message(name, chat, parent, "user", "x", 1.0, "") for name, parent, _ in messages]
    store.add_turn(Chat(chat, "t", 1.0, 2.0, "", 3.0, "m", None), made)
    for name, _, ids in messages:
        for key, values in ids.items():
            store.set_ids(key, {name: values})


def test_histories_of_all_branches_keys_and_summaries(store: ChatStore) -> None:
    messages: list[tuple[str, str | None, dict[str, tuple[int, ...]]]] = [
        ("a", None, {"k": (1, 2)}),
        ("b", "a", {"k": (3,)}),
        ("c", "a", {"k": (4,), "l": (9,)}),  # another answer; under l a summary stands for what is before it
        ("d", "c", {"l": (8,)}),
        ("e", "b", {}),  # killed before its ids were known
    ]
    add_ids(store, "c1", messages)
    add_ids(store, "c2", [("f", None, {"k": (7,)})])
    store.delete_message(store.path("d")[-1])
    gone, stay = store.purging.purge([], lambda _, stay: (list(store.purging.histories(["c1"])), list(stay)))
    assert sorted(gone, key=str) == [Past([1, 2, 3]), Past([1, 2, 4]), Past([9, 8])]
    assert Past([7]) in stay
    assert len(stay) == 4


def test_histories_before_each_eviction(store: ChatStore) -> None:
    add_ids(store, "c", [("a", None, {"k": (1, 2, 3, 4)}), ("b", "a", {"k": (5, 6, 7)})])
    log = (Eviction(4, ((1, 2),)), Eviction(6, ((2, 3),), READ))
    store.set_evictions("b", "k", log)
    assert list(store.purging.histories(["c"])) == [
        Past([1, 2, 3, 4]),
        Past([1, 2, 3, 4, 5, 6], log[:1]),
        Past((1, 4, 5, 6, 7)),  # 2 and 3 are gone, and what is left was read anew
    ]


def test_a_circle_in_a_damaged_file_ends(store: ChatStore) -> None:
    add_ids(store, "c", [("a", None, {"k": (1,)}), ("b", "a", {"k": (2,)}), ("d", "b", {"k": (3,)})])
    store._connection.execute("UPDATE messages SET parent = 'b' WHERE id = 'a'")
    assert len(list(store.purging.histories(["c"]))) == 1

"""The tree on disk: siblings, the newest leaf, soft deletion and its undo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Branch, Chat, Message, Role
from kvchat.errors import KvchatError

# Message -> parent, in the order of their making.
TREE = {"a": None, "b": "a", "c": "a", "d": "b", "e": "c", "f": "b", "g": None, "h": "g", "i": "d"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(tmp_path / "chats.db")) as opened:
        for name, parent in TREE.items():
            add(opened, name, parent)
        yield opened


def add(store: ChatStore, name: str, parent: str | None, chat: str = "x") -> None:
    role: Role = "user" if parent is None else "assistant"
    store.add_turn(
        Chat(chat, "t", 1.0, 1.0, "", 1.0, "", None), [Message(name, chat, parent, role, f"text {name}", 1.0, "stop")]
    )


def shown(branch: Branch) -> str:
    return "".join(message.id for message in branch.messages)


def siblings(branch: Branch) -> list[str]:
    return ["".join(branch.siblings[message.id]) for message in branch.messages]


@pytest.mark.parametrize(
    ("head", "path", "around"),
    [
        ("i", "abdi", ["ag", "bc", "df", "i"]),
        ("f", "abf", ["ag", "bc", "df"]),
        ("e", "ace", ["ag", "bc", "e"]),
        ("h", "gh", ["ag", "h"]),
    ],
)
def test_branch(store: ChatStore, head: str, path: str, around: list[str]) -> None:
    add(store, "z", None, chat="another")  # a beginning of another chat is no sibling
    branch = store.branch("x", head)
    assert (shown(branch), siblings(branch)) == (path, around)
    assert branch.head == head


@pytest.mark.parametrize(
    ("message", "path"), [("a", "abdi"), ("b", "abdi"), ("c", "ace"), ("d", "abdi"), ("f", "abf"), ("g", "gh")]
)
def test_show_goes_to_the_newest_leaf(store: ChatStore, message: str, path: str) -> None:
    branch = store.show("x", message)
    assert shown(branch) == path
    assert store.get("x").head == path[-1]


# Each row: what is deleted one after the other, what is shown then, and what is left of the tree.
@pytest.mark.parametrize(
    ("deleted", "path", "left"),
    [
        ("i", "abd", "abcdefgh"),  # no sibling: the parent
        ("d", "abf", "abcefgh"),  # the next sibling
        ("f", "abdi", "abcdeghi"),  # the last one: the sibling before it
        ("b", "ace", "acegh"),  # with all below it
        ("a", "gh", "gh"),
        ("ag", "", ""),
        ("ib", "ace", "acegh"),
        ("fd", "ab", "abcegh"),
    ],
)
def test_delete_and_undo(store: ChatStore, deleted: str, path: str, left: str) -> None:
    before = [(store.branch("x", name), store.get("x")) for name in TREE]
    head = store.get("x").head
    undos = [(store.get("x").head, store.delete_message(store.path(name)[-1])) for name in deleted]
    assert shown(undos[-1][1][1]) == path
    assert store.get("x").head == (path[-1] if path else None)
    assert store.branch("x", store.get("x").head) == undos[-1][1][1]
    kept = store._connection.execute("SELECT id FROM messages WHERE deleted_at IS NULL ORDER BY id").fetchall()
    assert "".join(row[0] for row in kept) == left
    for was, (at, _) in reversed(undos):
        store.undelete("x", at, was)
    assert store.get("x").head == head
    assert [(store.branch("x", name), store.get("x")) for name in TREE] == before


def test_what_is_below_something_deleted_is_not_the_newest(store: ChatStore) -> None:
    store.delete_message(store.path("d")[-1])  # and i
    assert shown(store.show("x", "a")) == "abf"


def test_two_programs_delete_the_same(store: ChatStore) -> None:
    """The first one's undo brings all of it back; who still shows it, shows each message as one of its siblings."""
    message = store.path("d")[-1]
    first, _ = store.delete_message(message)
    assert siblings(store.branch("x", "i")) == ["ag", "bc", "df", "i"]
    store.delete_message(message)
    store.undelete("x", first, "i")
    assert siblings(store.branch("x", "i")) == ["ag", "bc", "df", "i"]
    assert shown(store.show("x", "a")) == "abdi"


def test_a_message_that_is_not_there(store: ChatStore) -> None:
    gone = Message("gone", "x", "a", "user", "", 1.0, "")
    with pytest.raises(KvchatError, match="not there any more"):
        store.delete_message(gone)
    with pytest.raises(KvchatError, match="not there any more"):
        store.show("x", "gone")
    with pytest.raises(KvchatError, match="no chat"):
        store.undelete("nope", 1.0, None)
    assert store.get("x").head == "i"


# ------------------------------------------------------------------ trees that nobody made this way


# Each row: a message, the parent that it is given, the head, and what is read.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("message", "parent", "head", "path"),
    [
        ("a", "i", "i", "abdi"),  # a circle through the root
        ("d", "d", "i", "di"),  # its own parent
        ("b", "f", "f", "bf"),
        ("g", "z", "h", "gh"),  # a parent in another chat
    ],
)
def test_a_circle_is_a_branch_with_an_end(store: ChatStore, message: str, parent: str, head: str, path: str) -> None:
    add(store, "z", None, chat="another")
    store._connection.execute("UPDATE messages SET parent = ? WHERE id = ?", (parent, message))
    branch = store.branch("x", head)
    assert shown(branch) == path
    assert all(each.id in branch.siblings[each.id] for each in branch.messages)
    assert store.known_ids(head, "k") == {}
    assert shown(store.show("x", message)).startswith(path[0])
    copy = store.duplicate("x")
    assert store.path(copy.head)
    store.delete_message(branch.messages[-1])


def test_a_head_in_another_chat(store: ChatStore) -> None:
    add(store, "z", None, chat="another")
    assert store.branch("x", "z").siblings == {"z": ("z",)}


def test_siblings_of_a_branch_of_thousands(tmp_path: Path) -> None:
    messages = [Message(f"m{n}", "c", f"m{n - 1}" if n else None, "user", "w", 1.0, "") for n in range(3000)]
    with closing(ChatStore(tmp_path / "long.db")) as store:
        store.add_turn(Chat("c", "t", 1.0, 1.0, "", 1.0, "", None), messages)
        branch = store.branch("c", "m2999")
        assert branch.messages == tuple(messages)
        assert all(branch.siblings[message.id] == (message.id,) for message in messages)
        _, rest = store.delete_message(messages[1])  # 2,999 at once
        assert rest.messages == (messages[0],)

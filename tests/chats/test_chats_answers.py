"""What each answer of a chat cost, over all its branches."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message, Role


def put(store: ChatStore, name: str, parent: str | None, role: Role, chat: str = "x") -> Message:
    usage = f'{{"computed": {len(name)}}}' if role == "assistant" else None
    message = Message(name, chat, parent, role, f"text {name}", 1.0, "stop", "m", usage)
    store.add_turn(Chat(chat, "t", 1.0, 1.0, "", 1.0, "", None), [message])
    return message


def test_answers_of_all_branches_in_the_order_of_their_making(tmp_path: Path) -> None:
    """Two answers to one question and one to another beginning; users and other chats are left out, and so are texts,
    which can be long."""
    with closing(ChatStore(tmp_path / "chats.db")) as store:
        put(store, "u", None, "user")
        first = put(store, "a", "u", "assistant")
        put(store, "bb", "u", "assistant")
        put(store, "v", None, "user")
        put(store, "ccc", "v", "assistant")
        put(store, "o", None, "assistant", chat="other")
        found = store.answers("x")
        assert [(each.id, each.text, each.usage, each.finish, each.model) for each in found] == [
            ("a", "", '{"computed": 1}', "stop", "m"),
            ("bb", "", '{"computed": 2}', "stop", "m"),
            ("ccc", "", '{"computed": 3}', "stop", "m"),
        ]
        store.delete_message(first)
        assert [each.id for each in store.answers("x")] == ["bb", "ccc"]
        assert store.answers("nobody") == ()

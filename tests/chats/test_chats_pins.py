"""Pins: kept over a restart and the trash, in the order in which they were set."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.errors import KvchatError


def pins(store: ChatStore) -> dict[str, float]:
    return {s.chat.id: s.chat.pinned_at for s in store.chats() if s.chat.pinned_at is not None}


def test_pins(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(ChatStore(path)) as store:
        for name in "abc":
            chat = Chat(name, name, 1.0, 1.0, "", 1.0, "", None)
            store.add_turn(chat, [Message(f"{name}-u", name, None, "user", "x", 1.0, "")])
        store.pin("b")
        store.pin("a")
        first = pins(store)
        assert first["b"] < first["a"] and store.get("b").updated == 1.0
        store.pin("b")  # is pinned already: stays where it is
        assert pins(store) == first
        stale = Chat("a", "a", 1.0, 9.0, "", 1.0, "", None)
        store.add_turn(stale, [Message("a-2", "a", "a-u", "assistant", "y", 9.0, "stop")])  # knows nothing of pins
        assert pins(store) == first
        assert store.duplicate("a").pinned_at is None
        store.trash("a")
        store.restore("a")
    with closing(ChatStore(path)) as store:
        assert pins(store) == first
        store.unpin("b")
        store.unpin("b")
        assert pins(store) == {"a": first["a"]}
        for change in (store.pin, store.unpin):
            with pytest.raises(KvchatError, match="no chat nope"):
                change("nope")

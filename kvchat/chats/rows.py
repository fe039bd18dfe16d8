"""Chats, messages and token ids as rows. Owns the order of their columns and how they are written.

Must not begin or end transactions, nor know which chat or branch is shown.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence

from kvchat.chats.types import Chat, Message

CHAT = "c.id, c.title, c.created, c.updated, c.system, c.clock, c.model, c.head, c.deleted_at, c.settings"
MESSAGE = "m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at"


def put_chat(connection: sqlite3.Connection, chat: Chat, head: str | None) -> None:
    """Writes a chat if it is new. Of one that exists, only system prompt, model, head and time are taken, and whether
    it is in the trash."""
    connection.execute(
        """INSERT INTO chats (id, title, created, updated, system, clock, model, head, deleted_at, settings)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, system = excluded.system,
            model = excluded.model, head = excluded.head, deleted_at = excluded.deleted_at""",
        (
            chat.id,
            chat.title,
            chat.created,
            chat.updated,
            chat.system,
            chat.clock,
            chat.model,
            head,
            chat.deleted_at,
            chat.settings,
        ),
    )


def put_messages(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    """Writes new messages, each after its parent."""
    connection.executemany(
        """INSERT INTO messages (id, chat, parent, role, text, created, finish, model, usage, deleted_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            (m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at)
            for m in messages
        ],
    )


def put_ids(connection: sqlite3.Connection, message: str, key: str, ids: Sequence[int]) -> None:
    """Writes the token ids of a message under a key, in place of those that were there."""
    connection.execute(
        "INSERT INTO message_ids (message, key, ids) VALUES (?, ?, ?) "
        "ON CONFLICT (message, key) DO UPDATE SET ids = excluded.ids",
        (message, key, struct.pack(f"<{len(ids)}i", *ids)),
    )


def unpack_ids(blob: bytes) -> tuple[int, ...]:
    """Token ids as `put_ids` wrote them."""
    return struct.unpack(f"<{len(blob) // 4}i", blob)

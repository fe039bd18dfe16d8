"""Whole chats that go or are copied: what is removed for good, and duplicates.

Owns the statements for it; must not begin or end transactions.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import replace

from kvchat.chats.ids import new_ulid
from kvchat.chats.rows import put_chat, put_summaries, summaries_of
from kvchat.chats.types import Chat, Summary

TRASH_DAYS = 30
_COPY = " (copy)"


def expired(connection: sqlite3.Connection) -> list[str]:
    """The ids of the chats that have been in the trash for more than TRASH_DAYS."""
    limit = time.time() - TRASH_DAYS * 86400
    return [row[0] for row in connection.execute("SELECT id FROM chats WHERE deleted_at < ?", (limit,))]


def remove(connection: sqlite3.Connection, chats: list[str]) -> None:
    """Removes chats with all that belongs to them. Their words leave the full-text index as well: without `optimize`
    its segments would keep them until they are merged some day."""
    for chat in chats:
        # The cascade from parent to child would go as deep as the branch is long; SQLite stops at 1,000.
        connection.execute("UPDATE messages SET parent = NULL WHERE chat = ?", (chat,))
        connection.execute("DELETE FROM chats WHERE id = ?", (chat,))
    connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")


def duplicate(connection: sqlite3.Connection, chat: Chat) -> Chat:
    """Copies a chat: its tree without what is deleted, the token ids, the settings and the clock of its template, so
    that the copy finds the same KV. All ids are new."""
    rows = connection.execute(
        "SELECT id, parent FROM messages WHERE chat = ? AND deleted_at IS NULL ORDER BY number", (chat.id,)
    ).fetchall()
    names: dict[str | None, str] = {}
    copied: list[tuple[str, str | None, str]] = []  # new id, id of the new parent, id of what is copied
    for message, parent in rows:
        new = new_ulid()
        copied.append((new, names.get(parent), message))  # parents come first, see kvchat.chats.tree
        names[message] = new
    now = time.time()
    copy = replace(
        chat,
        id=new_ulid(),
        title=chat.title + _COPY,
        created=now,
        updated=now,
        head=names.get(chat.head),
        deleted_at=None,
        pinned_at=None,
    )
    put_chat(connection, copy, copy.head)
    connection.executemany(
        """INSERT INTO messages (id, chat, parent, role, text, created, finish, model, usage, pinned)
        SELECT ?, ?, ?, role, text, created, finish, model, usage, pinned FROM messages WHERE id = ?""",
        [(new, copy.id, parent, message) for new, parent, message in copied],
    )
    connection.executemany(
        "INSERT INTO message_ids (message, key, ids) SELECT ?, key, ids FROM message_ids WHERE message = ?",
        [(new, message) for new, _, message in copied],
    )
    connection.executemany(
        "INSERT INTO message_evictions (message, key, log) SELECT ?, key, log FROM message_evictions WHERE message = ?",
        [(new, message) for new, _, message in copied],
    )
    put_summaries(connection, _renamed(connection, chat.id, {message: new for new, _, message in copied}))
    return copy


def _renamed(connection: sqlite3.Connection, chat: str, names: Mapping[str, str]) -> list[Summary]:
    """The summaries of a chat under new ids, in their order, for the messages that theirs are copied to."""
    found = summaries_of(connection, chat)
    return [replace(each, id=new_ulid(), message=names[each.message]) for each in found if each.message in names]

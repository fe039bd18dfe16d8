"""What a person wrote and has not sent, and what was sent before. Owns the statements for it; must not begin or end
transactions, nor know what the labels in a draft mean.

A chat has no row before its first message, so its draft stands under NEW, of which there is one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from kvchat.chats.rows import read_text
from kvchat.chats.types import Draft, Sent

NEW = ""  # the chat that has no message yet


def put(connection: sqlite3.Connection, chat: str, draft: Draft) -> None:
    """Keeps the draft of a chat in place of the one before; one without text is removed."""
    if not draft.text:
        connection.execute("DELETE FROM drafts WHERE chat = ?", (chat,))
        return
    connection.execute(
        "INSERT INTO drafts (chat, text, labels) VALUES (?, ?, ?) "
        "ON CONFLICT (chat) DO UPDATE SET text = excluded.text, labels = excluded.labels",
        (chat, draft.text, draft.labels),
    )


def get(connection: sqlite3.Connection, chat: str) -> Draft:
    """The draft of a chat; an empty one when there is none."""
    row = connection.execute("SELECT text, labels FROM drafts WHERE chat = ?", (chat,)).fetchone()
    return Draft() if row is None else Draft(*map(read_text, row))


def sent(connection: sqlite3.Connection, query: str, chat: str, most: int) -> tuple[Sent, ...]:
    """Texts of the person's that have every word of `query`, those of `chat` first, then the newest first. A text that
    was sent several times is there once."""
    words = query.casefold().split()
    found: dict[str, Sent] = {}
    for each in _all_sent(connection, chat):
        if len(found) >= most:
            break
        folded = each.text.casefold()
        if each.text not in found and all(word in folded for word in words):
            found[each.text] = each
    return tuple(found.values())


def _all_sent(connection: sqlite3.Connection, chat: str) -> Iterator[Sent]:
    """Read row by row: SQLite's LIKE knows case only in ASCII, and most searches end after a few rows."""
    for here, which in ((True, "m.chat = ?"), (False, "m.chat <> ?")):
        rows = connection.execute(
            f"""SELECT m.text, m.created FROM messages m JOIN chats c ON c.id = m.chat
            WHERE {which} AND m.role = 'user' AND m.deleted_at IS NULL AND c.deleted_at IS NULL
            ORDER BY m.number DESC""",  # noqa: S608
            (chat,),
        )
        for text, created in rows:
            yield Sent(read_text(text), float(created) if isinstance(created, int | float) else 0.0, here)

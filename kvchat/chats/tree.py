"""The message tree of a chat on disk: branches, siblings, what is deleted and comes back.

Owns the statements that walk the tree; must not begin or end transactions. Nothing is really removed here: a deleted
message keeps its text, its token ids and its place in the full-text index, and is left out of what is read.

A message comes after its parent, so its number is higher. Steps that do not keep to that are not taken: a file that
others wrote may hold a circle.
"""

from __future__ import annotations

import math
import sqlite3
import time
from dataclasses import replace

from kvchat.chats.rows import (
    MESSAGE,
    SUMMARY,
    read_evictions,
    read_message,
    read_summary,
    read_text,
    unpack_ids,
)
from kvchat.chats.types import Branch, KnownIds, Message, Summary
from kvchat.errors import KvchatError

_COST = MESSAGE.replace("m.text", "''")
# From a message up to the root, within its chat. `depth` is 0 for the message itself.
ABOVE = """WITH RECURSIVE branch (id, parent, depth, number, chat) AS (
    SELECT id, parent, 0, number, chat FROM messages WHERE id = ?
    UNION ALL
    SELECT m.id, m.parent, b.depth + 1, m.number, m.chat
    FROM branch b JOIN messages m ON m.id = b.parent AND m.number < b.number AND m.chat = b.chat
)"""
# From a message down to all leaves, but not into what is deleted.
_BELOW = """WITH RECURSIVE below (id, number) AS (
    SELECT id, number FROM messages WHERE id = ?
    UNION ALL
    SELECT m.id, m.number FROM below b JOIN messages m ON m.parent = b.id AND m.number > b.number
    WHERE m.deleted_at IS NULL
)"""


def path(connection: sqlite3.Connection, head: str | None) -> tuple[Message, ...]:
    """The branch that ends with `head`, root first. None: the empty branch."""
    rows = connection.execute(
        f"{ABOVE} SELECT {MESSAGE} FROM branch b JOIN messages m ON m.id = b.id ORDER BY b.depth DESC",  # noqa: S608
        (head,),
    )
    return tuple(map(read_message, rows))


def branch(connection: sqlite3.Connection, chat: str, head: str | None) -> Branch:
    """The branch that ends with `head`, and the siblings of its messages."""
    rows = connection.execute(
        f"""{ABOVE} SELECT b.id, s.id FROM branch b JOIN messages s ON s.chat = b.chat AND s.parent IS b.parent
        WHERE b.chat = ? AND (s.deleted_at IS NULL OR s.id = b.id) ORDER BY s.number""",  # noqa: S608
        (head, chat),
    )
    found: dict[str, tuple[str, ...]] = {}
    for message, sibling in rows:
        found[message] = (*found.get(message, ()), sibling)
    messages = path(connection, head)
    siblings = {message.id: found.get(message.id, (message.id,)) for message in messages}
    return Branch(messages, siblings, _summaries(connection, head))


def known_ids(connection: sqlite3.Connection, head: str, key: str) -> dict[str, KnownIds]:
    """What is stored of the token ids of the messages on the branch that ends with `head`, where anything is."""
    rows = connection.execute(
        f"""{ABOVE} SELECT i.message, i.key, CASE WHEN i.key = ? THEN i.ids END, e.log
        FROM branch b JOIN message_ids i ON i.message = b.id
        LEFT JOIN message_evictions e ON e.message = i.message AND e.key = i.key
        WHERE typeof(i.ids) = 'blob' AND length(i.ids) % 4 = 0 ORDER BY i.message, i.key""",  # noqa: S608
        (head, key),
    )
    known: dict[str, KnownIds] = {}
    for *names, blob, log in rows:
        message, stored_key = map(read_text, names)
        before = known.get(message, KnownIds(None, ()))
        if stored_key == key:
            known[message] = replace(before, ids=unpack_ids(blob), evictions=read_evictions(log))
        else:
            known[message] = replace(before, other_keys=(*before.other_keys, stored_key))
    return known


def beside(connection: sqlite3.Connection, message: str) -> tuple[str, ...]:
    """The ids of all that stands in the place of a message, itself too, the oldest first."""
    rows = connection.execute(
        """SELECT s.id FROM messages m JOIN messages s ON s.chat = m.chat AND s.parent IS m.parent
        WHERE m.id = ? AND (s.deleted_at IS NULL OR s.id = m.id) ORDER BY s.number""",
        (message,),
    )
    return tuple(row[0] for row in rows)


def _summaries(connection: sqlite3.Connection, head: str | None) -> tuple[Summary, ...]:
    """Those of the messages on the branch that ends with `head`."""
    rows = connection.execute(
        f"{ABOVE} SELECT {SUMMARY} FROM branch b JOIN summaries s ON s.message = b.id ORDER BY b.depth DESC, s.id",  # noqa: S608
        (head,),
    )
    return tuple(map(read_summary, rows))


def answers(connection: sqlite3.Connection, chat: str) -> tuple[Message, ...]:
    """The answers of all branches of a chat, the oldest first, without their texts."""
    rows = connection.execute(
        f"SELECT {_COST} FROM messages m "  # noqa: S608
        "WHERE m.chat = ? AND m.role = 'assistant' AND m.deleted_at IS NULL ORDER BY m.number",
        (chat,),
    )
    return tuple(map(read_message, rows))


def show(connection: sqlite3.Connection, chat: str, message: str) -> Branch:
    """Makes the newest message below `message` (or itself) the head of the chat; the branch that ends with it.
    KvchatError for one that is deleted: what is written below it would be, too."""
    if connection.execute("SELECT 1 FROM messages WHERE id = ? AND deleted_at IS NOT NULL", (message,)).fetchone():
        raise KvchatError("this message is not there any more", "it was deleted elsewhere")
    return _move(connection, chat, _newest_below(connection, message))


def delete(connection: sqlite3.Connection, message: Message) -> tuple[float, Branch]:
    """Marks the message and all below it as deleted. The head moves to the newest leaf of the next sibling, of the
    one before it when there is none, or to the parent.

    The first value names this deletion, for `undelete`: its time, later than any other one of the chat.
    """
    around = branch(connection, message.chat, message.id).siblings.get(message.id)
    if around is None:
        raise KvchatError("this message is not there any more", "was its chat removed elsewhere?")
    place = around.index(message.id)
    others = (*around[place + 1 :], *reversed(around[:place]))
    latest = connection.execute("SELECT max(deleted_at) FROM messages WHERE chat = ?", (message.chat,)).fetchone()[0]
    at = time.time() if latest is None else max(time.time(), math.nextafter(latest, math.inf))
    connection.execute(
        f"{_BELOW} UPDATE messages SET deleted_at = ? WHERE id IN (SELECT id FROM below) AND deleted_at IS NULL",  # noqa: S608
        (message.id, at),
    )
    head = _newest_below(connection, others[0]) if others else message.parent
    return at, _move(connection, message.chat, head)


def undelete(connection: sqlite3.Connection, chat: str, at: float, head: str | None) -> Branch:
    """Takes back the deletion of this chat that was at the time `at`, and makes `head` the head again."""
    connection.execute("UPDATE messages SET deleted_at = NULL WHERE chat = ? AND deleted_at = ?", (chat, at))
    revive(connection, head)
    return _move(connection, chat, head)


def revive(connection: sqlite3.Connection, message: str | None) -> None:
    """A message that is written or shown is there, and so is all that it comes after: another process may have deleted
    some of that, which would then be missing in a copy and an export."""
    connection.execute(
        f"{ABOVE} UPDATE messages SET deleted_at = NULL WHERE id IN (SELECT id FROM branch) AND deleted_at IS NOT NULL",  # noqa: S608
        (message,),
    )


def _newest_below(connection: sqlite3.Connection, message: str) -> str:
    """A leaf: what comes after a message has a higher number."""
    row = connection.execute(
        f"{_BELOW} SELECT id FROM below ORDER BY number DESC LIMIT 1",  # noqa: S608
        (message,),
    ).fetchone()
    if row is None:
        raise KvchatError("this message is not there any more", "was its chat removed elsewhere?")
    return str(row[0])


def _move(connection: sqlite3.Connection, chat: str, head: str | None) -> Branch:
    if connection.execute("UPDATE chats SET head = ? WHERE id = ?", (head, chat)).rowcount == 0:
        raise KvchatError(f"there is no chat {chat} any more", "was it removed elsewhere?")
    return branch(connection, chat, head)

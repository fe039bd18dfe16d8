"""Chats, messages and token ids as rows. Owns the order of their columns, how they are written, and how they are read.

Must not begin or end transactions, nor know which chat or branch is shown. SQLite keeps any value in any column, and
the file may be damaged or somebody else's work: what is read is made what its type says.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, get_args

from kvchat.chats.types import Chat, Message, Summary, TitleBy

if TYPE_CHECKING:  # few chats have any, and the first frame does without
    from kvchat.formats.past import Eviction

CHAT = (
    "c.id, c.title, c.created, c.updated, c.system, c.clock, c.model, c.head, c.deleted_at, c.settings, "
    "c.pinned_at, c.title_by, c.prefix"
)
MESSAGE = "m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at, m.pinned"
SUMMARY = "s.id, s.message, s.text, s.created, s.model, s.tokens, s.replaced"
_LATEST = 253402214400.0  # seconds; the last day that a calendar of four digits knows


def put_chat(connection: sqlite3.Connection, chat: Chat, head: str | None) -> None:
    """Writes a chat if it is new. Of one that exists, only system prompt, prefix, model, head and time are taken, and
    whether it is in the trash. A prefix that is gone meanwhile is none."""
    connection.execute(
        """INSERT INTO chats (id, title, created, updated, system, clock, model, head, deleted_at, settings,
            pinned_at, title_by, prefix)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM prefixes WHERE id = ?))
        ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, system = excluded.system, prefix = excluded.prefix,
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
            chat.pinned_at,
            chat.title_by,
            chat.prefix,
        ),
    )


def put_messages(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    """Writes new messages, each after its parent."""
    connection.executemany(
        """INSERT INTO messages (id, chat, parent, role, text, created, finish, model, usage, deleted_at, pinned)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            (m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at, m.pinned)
            for m in messages
        ],
    )


def put_summaries(connection: sqlite3.Connection, summaries: Sequence[Summary]) -> None:
    """Writes summaries, in place of those of the same id."""
    connection.executemany(
        """INSERT INTO summaries (id, message, text, created, model, tokens, replaced) VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO UPDATE SET text = excluded.text, tokens = excluded.tokens""",
        [(s.id, s.message, s.text, s.created, s.model, s.tokens, s.replaced) for s in summaries],
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


def put_evictions(connection: sqlite3.Connection, message: str, key: str, log: Sequence[Eviction]) -> None:
    """Writes what left the context while a message was made, in place of what was there."""
    entries = [[each.at, [list(part) for part in each.ranges], each.root] for each in log]
    connection.execute(
        "INSERT INTO message_evictions (message, key, log) VALUES (?, ?, ?) "
        "ON CONFLICT (message, key) DO UPDATE SET log = excluded.log",
        (message, key, json.dumps(entries, separators=(",", ":"))),
    )


def read_evictions(stored: object) -> tuple[Eviction, ...]:
    """Evictions as `put_evictions` wrote them; empty where it cannot have written that."""
    try:
        entries = json.loads(read_text(stored) or "[]")
        if not entries:
            return ()
        from kvchat.formats.past import Eviction

        log = tuple(
            Eviction(index(at), tuple((index(start), index(end)) for start, end in ranges), str(root))
            for at, ranges, root in entries
        )
        return log if all(each.is_sound for each in log) else ()
    except (ValueError, TypeError, RecursionError):
        return ()


def read_chat(row: Sequence[Any]) -> Chat:
    """The chat in a row of the columns CHAT."""
    chat_id, title, created, updated, system, clock, model, head, deleted_at, settings, *rest = row
    pinned_at, title_by, prefix = rest
    return Chat(
        id=read_text(chat_id),
        title=read_text(title),
        created=read_time(created),
        updated=read_time(updated),
        system=read_text(system),
        clock=read_time(clock),
        model=read_text(model),
        head=None if head is None else read_text(head),
        deleted_at=_time_or_none(deleted_at),
        settings=read_text(settings),
        pinned_at=_time_or_none(pinned_at),
        title_by=_title_by(title_by),
        prefix=None if prefix is None else read_text(prefix),
    )


def read_message(row: Sequence[Any]) -> Message:
    """The message in a row of the columns MESSAGE."""
    message_id, chat, parent, role, text, created, finish, model, usage, deleted_at, pinned = row
    return Message(
        id=read_text(message_id),
        chat=read_text(chat),
        parent=None if parent is None else read_text(parent),
        role="user" if role == "user" else "assistant",
        text=read_text(text),
        created=read_time(created),
        finish=None if finish is None else read_text(finish),
        model=read_text(model),
        usage=None if usage is None else read_text(usage),
        deleted_at=_time_or_none(deleted_at),
        pinned=pinned == 1,
    )


def summaries_of(connection: sqlite3.Connection, chat: str) -> list[Summary]:
    """All summaries in a chat, the oldest first."""
    rows = connection.execute(
        f"SELECT {SUMMARY} FROM summaries s JOIN messages m ON m.id = s.message WHERE m.chat = ? ORDER BY s.id",  # noqa: S608
        (chat,),
    )
    return [read_summary(row) for row in rows]


def read_summary(row: Sequence[Any]) -> Summary:
    """The summary in a row of the columns SUMMARY."""
    summary_id, message, text, created, model, tokens, replaced = row
    return Summary(
        id=read_text(summary_id),
        message=read_text(message),
        text=read_text(text),
        created=read_time(created),
        model=read_text(model),
        tokens=read_count(tokens),
        replaced=read_count(replaced),
    )


def read_text(value: object) -> str:
    """A text column."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _title_by(value: object) -> TitleBy:
    for known in get_args(TitleBy):
        if value == known:
            return known  # type: ignore[no-any-return]
    return "person"


def read_count(value: object) -> int:
    """A column of a number of things."""
    return min(max(value, 0), 1 << 31) if isinstance(value, int) else 0


def _time_or_none(value: object) -> float | None:
    return None if value is None else read_time(value)


def read_time(value: object) -> float:
    """A column of seconds since the epoch."""
    return min(max(float(value), 0.0), _LATEST) if isinstance(value, int | float) else 0.0

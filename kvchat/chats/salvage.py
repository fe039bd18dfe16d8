"""What can still be read of damaged chat databases, as a new and sound one. Owns which table a row belongs to, and what
is made of chats and branches that came back in parts.

Must not touch the files that it reads, nor know what becomes of them. Nothing is guessed: where a message is lost its
place says so, and where words are missing the rest of them ends with a remark.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.chats.ids import new_ulid
from kvchat.chats.resolve import title_of
from kvchat.chats.rows import MESSAGE, put_chat, read_message
from kvchat.chats.schema import connect
from kvchat.chats.types import Chat, Message, Role
from kvchat.formats.sqlite_file import Row, Value, rows

LOST = "[This message is lost: it could not be read from a damaged file.]"
REST_LOST = "[The rest of this message is lost: it could not be read from a damaged file.]"
_TEXT = 5  # where the text stands among the values of a message


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What came back: chats and their messages, of these so many with a part of their text, and how many more messages
    each of the other sources had. `lost` messages have left a gap that can be seen; how many others there were,
    nobody knows."""

    chats: int
    messages: int
    cut: int
    lost: int
    older: Mapping[Path, int]


def salvage(damaged: Path, older: Sequence[Path], target: Path) -> Salvaged:
    """Make a database at `target`, where there is none, of all that can be read of `damaged`, and of what the `older`
    ones have besides. OSError, KvchatError: it cannot be made."""
    with closing(connect(target)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = OFF")  # it has another name until it is whole
        connection.execute("BEGIN")
        cut = _bring_over(connection, damaged)
        counted, added = _messages(connection), {}
        for source in older:
            cut |= _bring_over(connection, source)
            added[source] = _messages(connection) - counted
            counted += added[source]
        _drop_strays(connection, cut)
        _give_chats(connection)
        lost = sum(_bridge(connection, message) for message in _parentless(connection))
        _give_heads(connection)
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
        return Salvaged(_number(connection, "SELECT count(*) FROM chats"), counted, len(cut), lost, added)


def told(found: Salvaged) -> str:
    """What a person reads about what came back."""
    if not found.chats:
        return "nothing could be read of it, and there are no chats now"
    parts = [f"{_many(found.chats, 'chat')} with {_many(found.messages, 'message')} could be read, and are here"]
    parts += [
        f"{_many(count, 'message')} of these came from {file.name}" for file, count in found.older.items() if count
    ]
    if found.lost:
        parts.append(f"where {_many(found.lost, 'more message')} stood it says that they are lost")
    if found.cut:
        parts.append(f"{_many(found.cut, 'message')} of these ended too early")
    return "; ".join(parts)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# ---------------------------------------------------------------------- rows into tables


def _bring_over(connection: sqlite3.Connection, source: Path) -> set[str]:
    """Add the rows that are not there yet. The ids of messages that came without all of their text."""
    columns = {
        table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if not table.startswith(("message_text", "sqlite_"))
    }
    cut: set[str] = set()
    for row in map(_ended, rows(source)):
        table = _table_of(row)
        if table is None:
            continue
        values = (row.number, *row.values[1:]) if table == "messages" else row.values
        names = columns[table][: len(values)]
        marks = ",".join("?" * len(names))
        done = connection.execute(
            f"INSERT OR IGNORE INTO {table} ({','.join(names)}) VALUES ({marks})",  # noqa: S608 (names of our own)
            values[: len(names)],
        )
        if row.cut and done.rowcount:
            cut.add(str(row.values[1]))
    return cut


def _table_of(row: Row) -> str | None:
    """The table that rows of this shape are in. None: one of SQLite's own, or nothing that kvchat writes."""
    table = None
    match row.values:
        case (None, str(), str(), str() | None, "user" | "assistant", str(), *_) if 9 <= len(row.values) <= 12:
            table = "messages"
        case _ if row.cut:  # of other rows a part is of no use
            pass
        case (
            str(),
            str(),
            int() | float(),
            int() | float(),
            str(),
            int() | float(),
            str(),
            str() | None,
            _,
            str(),
            *_,
        ):
            table = "chats"
        case (str(), str(), bytes()):
            table = "message_ids"
        case (str(), str(), str(third)):
            table = "drafts" if third.startswith("{") else "message_evictions"
        case (str(), str(), str(), int() | float(), str(), int(), int()):
            table = "summaries"
        case (str(), str(), str(), str(), str(), int() | float(), int() | float(), int(), int() | float()):
            table = "prefixes"
        case (str(), str(), str(), str(), str(), str(), str(), int(), int(), int() | float(), int() | float(), bytes()):
            table = "prefix_computations"
    return table


def _ended(row: Row) -> Row:
    """A message of whose row the end is missing, as it is kept; any other row as it is."""
    match row.values:
        case (None, str(), str(), str() | None, "user" | "assistant" as role, str(said), *_) if row.cut:
            return replace(row, values=(*row.values[:_TEXT], f"{said}\n{REST_LOST}", 0.0, _finish(role), ""))
    return row


def _finish(role: Value) -> str:
    """How a message ends that nobody can go on with."""
    return "" if role == "user" else "stop"


# ---------------------------------------------------------------------- what hangs together


def _drop_strays(connection: sqlite3.Connection, cut: Iterable[str]) -> None:
    """What belongs to a message or a prefix that did not come back, or to a text that is not what it was."""
    for table in ("message_ids", "message_evictions", "summaries"):
        connection.execute(f"DELETE FROM {table} WHERE message NOT IN (SELECT id FROM messages)")  # noqa: S608
    for table in ("message_ids", "message_evictions"):
        connection.executemany(f"DELETE FROM {table} WHERE message = ?", [(each,) for each in cut])  # noqa: S608
    connection.execute("DELETE FROM prefix_computations WHERE prefix NOT IN (SELECT id FROM prefixes)")
    connection.execute("UPDATE chats SET prefix = NULL WHERE prefix NOT IN (SELECT id FROM prefixes)")


def _give_chats(connection: sqlite3.Connection) -> None:
    """A chat for messages whose own did not come back."""
    orphans = connection.execute(
        """SELECT chat, min(created), max(created), max(model) FROM messages
        WHERE chat NOT IN (SELECT id FROM chats) GROUP BY chat"""
    ).fetchall()
    for chat, first, last, model in orphans:
        said = connection.execute(
            "SELECT text FROM messages WHERE chat = ? AND role = 'user' ORDER BY number LIMIT 1", (chat,)
        ).fetchone()
        title = title_of(said[0]) if said else "A chat that was damaged"
        put_chat(connection, Chat(chat, title, first, last, "", first, model, None), None)


def _parentless(connection: sqlite3.Connection) -> list[Message]:
    """Messages that answer one that did not come back, of each such one the first."""
    found = connection.execute(
        f"""SELECT {MESSAGE}, min(m.number) FROM messages m
        WHERE m.parent IS NOT NULL AND m.parent NOT IN (SELECT id FROM messages) GROUP BY m.parent ORDER BY m.number"""  # noqa: S608
    )
    return [read_message(row[:-1]) for row in found.fetchall()]


def _bridge(connection: sqlite3.Connection, child: Message) -> int:
    """Put something in the place of the message that this one answers, after the last one of the chat that came before
    it: a chat that lost its middle is one branch again then. How many places that took."""
    assert child.parent is not None
    place = _free_before(connection, _number(connection, "SELECT number FROM messages WHERE id = ?", child.id))
    if place is None:
        connection.execute("UPDATE messages SET parent = NULL WHERE parent = ?", (child.parent,))
        return 0
    number, above, above_role = connection.execute(
        "SELECT number, id, role FROM messages WHERE chat = ? AND number < ? ORDER BY number DESC LIMIT 1",
        (child.chat, place),
    ).fetchone() or (0, None, "assistant")
    role: Role = "assistant" if child.role == "user" else "user"
    _put_lost(connection, place, child, child.parent, above, role)
    another = _free_before(connection, place) if above_role == role else None
    if another is None or another < number:
        return 1
    name = new_ulid()  # two in a row are lost
    _put_lost(connection, another, child, name, above, child.role)
    connection.execute("UPDATE messages SET parent = ? WHERE id = ?", (name, child.parent))
    return 2


def _put_lost(
    connection: sqlite3.Connection, number: int, child: Message, name: str, parent: str | None, role: Role
) -> None:
    connection.execute(
        """INSERT INTO messages (number, id, chat, parent, role, text, created, finish, model)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')""",
        (number, name, child.chat, parent, role, LOST, child.created, _finish(role)),
    )


def _free_before(connection: sqlite3.Connection, number: int) -> int | None:
    """The highest number below that of a message that no message has."""
    row = connection.execute(
        """SELECT max(m.number) - 1 FROM messages m WHERE m.number BETWEEN 2 AND ?
        AND NOT EXISTS (SELECT 1 FROM messages p WHERE p.number = m.number - 1)""",
        (number,),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def _give_heads(connection: sqlite3.Connection) -> None:
    """A chat whose head did not come back shows its newest message."""
    connection.execute(
        """UPDATE chats SET head =
        (SELECT m.id FROM messages m WHERE m.chat = chats.id AND m.deleted_at IS NULL ORDER BY m.number DESC LIMIT 1)
        WHERE head IS NULL OR head NOT IN (SELECT id FROM messages)"""
    )


def _messages(connection: sqlite3.Connection) -> int:
    return _number(connection, "SELECT count(*) FROM messages")


def _number(connection: sqlite3.Connection, query: str, *values: str) -> int:
    return int(connection.execute(query, values).fetchone()[0])

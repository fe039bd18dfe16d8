"""The SQLite index beside the pages: which pages there are, by key and by parent, and how they were used.

Owns the table and its queries; the headers of the page files are what it is rebuilt from. Must not open payloads or
decide what is kept. Used by several threads and several processes at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import astuple, fields
from typing import Any

from kvchat.errors import FormatError
from kvchat.kv.database import Database
from kvchat.kv.folder import PageFolder
from kvchat.kv.pins import Pin, PinFolder
from kvchat.kv.rows import LATEST, LONGEST, MOST, Row, check_row, scan, worth

VERSION = 7

_COLUMNS = ", ".join(field.name for field in fields(Row))
_SELECT = f"SELECT {_COLUMNS} FROM pages"  # noqa: S608 (constants only)
_IS_PINNED = "EXISTS (SELECT 1 FROM pins WHERE pins.namespace = {} AND pins.key = {})"
_VALUES = [f"?{number}" for number in range(1, len(fields(Row)) + 1)]
_WORTH = f"?{len(_VALUES) + 1}"
# A state is worth nothing without the page in which it lies, and goes before it.
_WORTH_OF_PAGE = "SELECT max(worth) FROM pages WHERE namespace = ?1 AND parent = ?4 AND kind = 'page'"
_INSERT = (
    f"INSERT INTO pages ({_COLUMNS}, worth) VALUES "  # noqa: S608
    f"({', '.join(_VALUES[:-1])}, {_VALUES[-1]} OR {_IS_PINNED.format('?1', '?2')}, "
    f"iif(?3 = 'checkpoint', coalesce(({_WORTH_OF_PAGE}), {_WORTH}), {_WORTH})) "
    "ON CONFLICT (namespace, key) DO UPDATE SET kind = excluded.kind, parent = excluded.parent, "
    "tag = excluded.tag, ids = excluded.ids, position = excluded.position, complete = excluded.complete, "
    "bytes = excluded.bytes, seconds = excluded.seconds, last_use = max(last_use, excluded.last_use), "
    "after = excluded.after, worth = excluded.worth"
)
_SET_PINNED = f"UPDATE pages SET pinned = {_IS_PINNED.format('?1', '?2')} WHERE namespace = ?1 AND key = ?2"  # noqa: S608
_SCHEMA = (
    "DROP TABLE IF EXISTS pages",
    "DROP TABLE IF EXISTS pins",
    """CREATE TABLE pins (
        prefix TEXT NOT NULL, namespace TEXT NOT NULL, key BLOB NOT NULL, PRIMARY KEY (namespace, key, prefix)
    ) WITHOUT ROWID""",
    f"""CREATE TABLE pages (
        namespace TEXT NOT NULL CHECK (typeof(namespace) = 'text' AND length(namespace) = 16),
        key BLOB NOT NULL CHECK (typeof(key) = 'blob' AND length(key) = 32),
        kind TEXT NOT NULL CHECK (kind IN ('page', 'checkpoint')),
        parent BLOB NOT NULL CHECK (typeof(parent) = 'blob' AND length(parent) = 32),
        tag TEXT NOT NULL CHECK (typeof(tag) = 'text'),
        ids BLOB NOT NULL CHECK (typeof(ids) = 'blob' AND length(ids) % 4 = 0),
        position INTEGER NOT NULL CHECK (typeof(position) = 'integer' AND position BETWEEN 0 AND {MOST}),
        complete INTEGER NOT NULL CHECK (typeof(complete) = 'integer' AND complete BETWEEN 0 AND {MOST}),
        bytes INTEGER NOT NULL CHECK (typeof(bytes) = 'integer' AND bytes BETWEEN 0 AND {MOST}),
        seconds REAL NOT NULL CHECK (seconds BETWEEN 0 AND {LONGEST}),
        last_use REAL NOT NULL CHECK (last_use BETWEEN 0 AND {LATEST}),
        hits INTEGER NOT NULL CHECK (typeof(hits) = 'integer' AND hits BETWEEN 0 AND {MOST}),
        seconds_saved REAL NOT NULL CHECK (seconds_saved BETWEEN 0 AND {LONGEST}),
        after BLOB NOT NULL CHECK (typeof(after) = 'blob' AND length(after) IN (0, 32)),
        draft INTEGER NOT NULL CHECK (draft IN (0, 1)),
        pinned INTEGER NOT NULL CHECK (pinned IN (0, 1)),
        worth REAL NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX pages_by_parent ON pages (namespace, parent, kind, tag, ids)",
    "CREATE INDEX pages_by_eviction ON pages (namespace, after) WHERE after != x''",
    "CREATE INDEX pages_by_use ON pages (draft DESC, last_use + worth, position DESC, kind)",
    "CREATE INDEX pages_by_size ON pages (bytes)",
)
_LEAVES = (
    f"{_SELECT} AS page WHERE NOT pinned AND draft >= ? AND NOT EXISTS "  # noqa: S608
    "(SELECT 1 FROM pages AS child WHERE child.namespace = page.namespace AND child.parent = page.key) "
    "AND NOT EXISTS (SELECT 1 FROM pages AS child WHERE child.after != x'' "
    "AND child.namespace = page.namespace AND child.after = page.key) "
    "ORDER BY draft DESC, last_use + worth, position DESC, kind LIMIT ?"
)


class PageIndex:
    """The rows of all namespaces of one store. Reading never fails: a row that no page can have is damage of the file,
    which is then filled anew. Writing raises StoreUnwritable.

    While memory stands in for the file, what is written is known to this object only.
    """

    def __init__(self, folder: PageFolder) -> None:
        def fill(connection: sqlite3.Connection) -> None:
            for statement in _SCHEMA:
                connection.execute(statement)
            for pin in PinFolder(folder.root).read():
                _put_pin(connection, pin)
            found = sorted(scan(folder), key=lambda row: row.kind == "checkpoint")
            connection.executemany(_INSERT, map(_values, found))

        self._database = Database(folder.index_file, folder.lock_file, VERSION, fill)

    def close(self) -> None:
        self._database.close()

    # -------------------------------------------------------------- reading

    def get(self, namespace: str, key: bytes) -> Row | None:
        """The page of that key, or None when there is none."""
        rows = self._select("WHERE namespace = ? AND key = ?", namespace, key)
        return rows[0] if rows else None

    def tags(self, namespace: str, parent: bytes) -> list[str]:
        """Tags of the pages that go on after `parent`, the empty one first."""
        query = "SELECT DISTINCT tag FROM pages WHERE namespace = ? AND parent = ? AND kind = 'page' ORDER BY tag"
        nothing: list[str] = []
        return self._database.read(
            lambda connection: [str(tag) for (tag,) in connection.execute(query, (namespace, parent))], nothing
        )

    def neighbours(self, namespace: str, parent: bytes, tag: str, ids: bytes) -> list[Row]:
        """Some pages after `parent` whose ids are next to `ids` in byte order: the one with the most leading tokens in
        common is among them."""
        below = self._siblings(namespace, parent, tag, "AND ids < ? ORDER BY ids DESC LIMIT 4", ids)
        return below + self._siblings(namespace, parent, tag, "AND ids >= ? ORDER BY ids LIMIT 4", ids)

    def prefixes(self, namespace: str, parent: bytes, tag: str, ids: bytes) -> list[Row]:
        """Pages after `parent` with which `ids` begin, without `ids` themselves."""
        shorter = [ids[:size] for size in range(4, len(ids), 4)]
        return self._siblings(namespace, parent, tag, f"AND ids IN ({', '.join('?' * len(shorter))})", *shorter)

    def checkpoints(self, namespace: str, pages: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        """Checkpoints within pages, each given by its parent and the ids that count: all whose ids these begin with."""
        query = (
            f"{_SELECT} WHERE namespace = ? AND parent = ? AND kind = 'checkpoint' AND substr(?, 1, length(ids)) = ids"
        )

        def work(connection: sqlite3.Connection) -> list[Row]:
            return [row for page in pages for row in _rows(connection.execute(query, (namespace, *page)))]

        return self._database.read(work, [])

    def has_children(self, namespace: str, parent: bytes) -> bool:
        """Whether a page goes on after that one, at once or after an eviction."""
        after = self._select("WHERE namespace = ? AND parent = ? LIMIT 1", namespace, parent)
        return bool(after or self.behind_eviction(namespace, parent))

    def behind_eviction(self, namespace: str, key: bytes) -> list[Row]:
        """The pages that go on after something left the history of this key."""
        return self._select("WHERE namespace = ? AND after = ? AND after != x''", namespace, key)

    def rows(self) -> list[Row]:
        """All pages of all namespaces, parents before children of one chain."""
        return self._select("ORDER BY namespace, position, key")

    def leaves(self, limit: int, *, drafts_only: bool = False) -> list[Row]:
        """Pages that may be deleted without losing others: no child, not pinned; those of drafts first, then those
        whose last use was longest ago, the later the more they are worth (see `worth`), and then a checkpoint before
        the page in which it lies."""
        return self._database.read(lambda connection: _rows(connection.execute(_LEAVES, (drafts_only, limit))), [])

    def total_bytes(self) -> int:
        query = f"SELECT coalesce(sum(bytes), 0) FROM pages WHERE bytes BETWEEN 0 AND {MOST}"  # noqa: S608
        return self._database.read(lambda connection: int(connection.execute(query).fetchone()[0]), 0)

    # -------------------------------------------------------------- writing

    def need_file(self) -> None:
        """Before pages are written: what is added must be known to all. Raises StoreUnwritable."""
        self._database.need_file()

    def add(self, row: Row, replaced: Sequence[Row] = ()) -> None:
        """Add a page, or correct what is known of it without touching its record of use, and forget those that it
        replaces."""

        def work(connection: sqlite3.Connection) -> None:
            for old in replaced:
                connection.execute("DELETE FROM pages WHERE namespace = ? AND key = ?", (old.namespace, old.key))
            connection.execute(_INSERT, _values(row))

        self._database.write(work)

    def remove(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Forget pages, given as (namespace, key)."""
        query = "DELETE FROM pages WHERE namespace = ? AND key = ?"
        self._database.write(lambda connection: connection.executemany(query, rows))

    def rewrite(self) -> None:
        """Leave no byte of pages that were removed in the file. Raises StoreUnwritable."""
        self._database.rewrite()

    def used(self, namespace: str, saved: Sequence[tuple[bytes, float]], now: float) -> None:
        """Pages (key, seconds that they saved) were just reused."""
        query = (
            "UPDATE pages SET hits = hits + 1, last_use = ?, "  # noqa: S608 (constants only)
            f"seconds_saved = min(seconds_saved + ?, {LONGEST}) WHERE namespace = ? AND key = ?"
        )
        values = [(now, seconds, namespace, key) for key, seconds in saved]
        self._database.write(lambda connection: connection.executemany(query, values))

    def touch(self, namespace: str, keys: Collection[bytes], now: float, *, draft: bool = False) -> None:
        """Pages are in use, by a draft or not: they shall be the last to go, in the eyes of every process."""
        query = "UPDATE pages SET last_use = ?, draft = min(draft, ?) WHERE namespace = ? AND key = ?"
        values = [(now, draft, namespace, key) for key in keys]
        self._database.write(lambda connection: connection.executemany(query, values))

    def pin(self, pin: Pin) -> None:
        """Pages that are not evicted from now on, whenever they are there, in place of those that the prefix had in the
        namespace."""

        def work(connection: sqlite3.Connection) -> None:
            _unpin(connection, pin.prefix, pin.namespace)
            _put_pin(connection, pin)
            connection.executemany(_SET_PINNED, [(pin.namespace, key) for key in pin.keys])

        self._database.write(work)

    def renew_pins(self, pins: Sequence[Pin]) -> None:
        """These are all pins, whatever was known before. Nothing is written where that is so already."""
        query = "SELECT prefix, namespace, key FROM pins"
        nothing: set[tuple[str, str, bytes]] = set()
        known = self._database.read(lambda connection: set(connection.execute(query)), nothing)
        if known == {(pin.prefix, pin.namespace, key) for pin in pins for key in pin.keys}:
            return

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM pins")
            for pin in pins:
                _put_pin(connection, pin)
            connection.execute(f"UPDATE pages SET pinned = {_IS_PINNED.format('pages.namespace', 'pages.key')}")  # noqa: S608

        self._database.write(work)

    def unpin(self, prefix: str, namespace: str) -> None:
        """What a prefix had in a namespace may go, unless another one has it too."""
        self._database.write(lambda connection: _unpin(connection, prefix, namespace))

    def _siblings(self, namespace: str, parent: bytes, tag: str, condition: str, *values: object) -> list[Row]:
        where = f"WHERE namespace = ? AND parent = ? AND kind = 'page' AND tag = ? {condition}"
        return self._select(where, namespace, parent, tag, *values)

    def _select(self, condition: str, *values: object) -> list[Row]:
        return self._database.read(lambda connection: _rows(connection.execute(f"{_SELECT} {condition}", values)), [])


def _values(row: Row) -> tuple[object, ...]:
    return (*astuple(row), worth(row))


def _put_pin(connection: sqlite3.Connection, pin: Pin) -> None:
    values = [(pin.prefix, pin.namespace, key) for key in pin.keys]
    connection.executemany("INSERT OR IGNORE INTO pins (prefix, namespace, key) VALUES (?, ?, ?)", values)


def _unpin(connection: sqlite3.Connection, prefix: str, namespace: str) -> None:
    which = "FROM pins WHERE prefix = ? AND namespace = ?"
    keys = connection.execute(f"SELECT key {which}", (prefix, namespace)).fetchall()
    connection.execute(f"DELETE {which}", (prefix, namespace))
    connection.executemany(_SET_PINNED, [(namespace, key) for (key,) in keys])


def _rows(cursor: sqlite3.Cursor) -> list[Row]:
    return [_row(values) for values in cursor.fetchall()]


def _row(values: Sequence[Any]) -> Row:
    """SQLite has no booleans: the last columns come as 0 or 1. Raises sqlite3.DatabaseError about a damaged file."""
    converted = [*values[:-2], *map(bool, values[-2:])]
    try:
        return check_row(Row(*converted))
    except FormatError as error:
        raise sqlite3.DatabaseError(str(error)) from None

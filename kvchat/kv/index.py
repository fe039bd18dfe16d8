"""The SQLite index beside the pages: which pages there are, by key and by parent, and how they were used.

Owns `index.db`. The page files are the truth: an index that is missing, damaged or of another version is rebuilt from
their headers without a word, and where it cannot be opened at all, one in memory stands in for reading. Must not open
payloads or decide what is kept. Used by several threads and several processes at once.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

from kvchat.kv.folder import PageFolder, make_private
from kvchat.kv.problems import StoreUnwritable
from kvchat.kv.rows import Row, scan

T = TypeVar("T")

VERSION = 1
BUSY_SECONDS = 5.0

_COLUMNS = ", ".join(field.name for field in fields(Row))
_SELECT = f"SELECT {_COLUMNS} FROM pages"  # noqa: S608 (constants only)
_INSERT = (
    f"INSERT INTO pages ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(Row)))}) "  # noqa: S608
    "ON CONFLICT (namespace, key) DO UPDATE SET bytes = excluded.bytes, seconds = excluded.seconds, "
    "last_use = max(last_use, excluded.last_use)"
)
_SCHEMA = (
    "DROP TABLE IF EXISTS pages",
    """CREATE TABLE pages (
        namespace TEXT NOT NULL, key BLOB NOT NULL, parent BLOB NOT NULL, tag TEXT NOT NULL, ids BLOB NOT NULL,
        position INTEGER NOT NULL, bytes INTEGER NOT NULL, seconds REAL NOT NULL, last_use REAL NOT NULL,
        hits INTEGER NOT NULL, seconds_saved REAL NOT NULL, pinned INTEGER NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX pages_by_parent ON pages (namespace, parent, tag, ids)",
    "CREATE INDEX pages_by_use ON pages (last_use, position DESC)",
    "CREATE INDEX pages_by_size ON pages (bytes)",
)
_LEAVES = (
    f"{_SELECT} AS page WHERE NOT pinned AND NOT EXISTS "  # noqa: S608
    "(SELECT 1 FROM pages AS child WHERE child.namespace = page.namespace AND child.parent = page.key) "
    "ORDER BY last_use, position DESC LIMIT ?"
)
_DAMAGE = {  # anything else is a problem of the disk or of another process, and the file may be sound
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}


class PageIndex:
    """The rows of all namespaces of one store. Reading never fails; writing raises StoreUnwritable.

    While memory stands in for the file, what is written is known to this object only.
    """

    def __init__(self, folder: PageFolder) -> None:
        self._folder = folder
        self._file = folder.index_file
        self._lock = threading.RLock()
        self._identity: tuple[int, int] | None = None  # device and inode of the open file; None: in memory
        self._connection = self._open()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # -------------------------------------------------------------- reading

    def get(self, namespace: str, key: bytes) -> Row | None:
        """The page of that key, or None when there is none."""
        rows = self._select("WHERE namespace = ? AND key = ?", namespace, key)
        return rows[0] if rows else None

    def tags(self, namespace: str, parent: bytes) -> list[str]:
        """Tags of the pages that go on after `parent`, the empty one first."""
        query = "SELECT DISTINCT tag FROM pages WHERE namespace = ? AND parent = ? ORDER BY tag"
        return self._run(lambda connection: [tag for (tag,) in connection.execute(query, (namespace, parent))])

    def neighbours(self, namespace: str, parent: bytes, tag: str, ids: bytes) -> list[Row]:
        """Some pages after `parent` whose ids are next to `ids` in byte order: the one with the most leading tokens in
        common is among them."""
        below = self._siblings(namespace, parent, tag, "AND ids < ? ORDER BY ids DESC LIMIT 4", ids)
        return below + self._siblings(namespace, parent, tag, "AND ids >= ? ORDER BY ids LIMIT 4", ids)

    def prefixes(self, namespace: str, parent: bytes, tag: str, ids: bytes) -> list[Row]:
        """Pages after `parent` with which `ids` begin, without `ids` themselves."""
        shorter = [ids[:size] for size in range(4, len(ids), 4)]
        return self._siblings(namespace, parent, tag, f"AND ids IN ({', '.join('?' * len(shorter))})", *shorter)

    def has_children(self, namespace: str, parent: bytes) -> bool:
        return bool(self._select("WHERE namespace = ? AND parent = ? LIMIT 1", namespace, parent))

    def rows(self) -> list[Row]:
        """All pages of all namespaces, parents before children of one chain."""
        return self._select("ORDER BY namespace, position, key")

    def leaves(self, limit: int) -> list[Row]:
        """Pages that may be deleted without losing others: no child, not pinned; least recently used first."""
        return self._run(lambda connection: _rows(connection.execute(_LEAVES, (limit,))))

    def total_bytes(self) -> int:
        query = "SELECT coalesce(sum(bytes), 0) FROM pages"
        return self._run(lambda connection: int(connection.execute(query).fetchone()[0]))

    # -------------------------------------------------------------- writing

    def need_file(self) -> None:
        """Before pages are written: try again to open the file if memory stands in for it. Raises StoreUnwritable."""
        with self._lock:
            if self._identity is not None:
                return
            try:
                connection = self._open_file(None)
            except OSError as error:
                raise StoreUnwritable.because(error) from error
            except sqlite3.DatabaseError as error:
                raise _unwritable(error) from error
            self._connection.close()
            self._connection = connection

    def add(self, row: Row, replaced: Sequence[Row] = ()) -> None:
        """Add a page, or note that its file is new, and forget those that it replaces."""

        def work(connection: sqlite3.Connection) -> None:
            for old in replaced:
                connection.execute("DELETE FROM pages WHERE namespace = ? AND key = ?", (old.namespace, old.key))
            connection.execute(_INSERT, astuple(row))

        self._run(work, writing=True)

    def remove(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Forget pages, given as (namespace, key)."""
        query = "DELETE FROM pages WHERE namespace = ? AND key = ?"
        self._run(lambda connection: connection.executemany(query, rows), writing=True)

    def used(self, namespace: str, saved: Sequence[tuple[bytes, float]], now: float) -> None:
        """Pages (key, seconds that they saved) were just reused."""
        query = (
            "UPDATE pages SET hits = hits + 1, last_use = ?, seconds_saved = seconds_saved + ? "
            "WHERE namespace = ? AND key = ?"
        )
        values = [(now, seconds, namespace, key) for key, seconds in saved]
        self._run(lambda connection: connection.executemany(query, values), writing=True)

    def touch(self, namespace: str, keys: Collection[bytes], now: float) -> None:
        """Pages are in use: they shall be the last to go, in the eyes of every process."""
        query = "UPDATE pages SET last_use = ? WHERE namespace = ? AND key = ?"
        values = [(now, namespace, key) for key in keys]
        self._run(lambda connection: connection.executemany(query, values), writing=True)

    # -------------------------------------------------------------- the file

    def _siblings(self, namespace: str, parent: bytes, tag: str, condition: str, *values: object) -> list[Row]:
        where = f"WHERE namespace = ? AND parent = ? AND tag = ? {condition}"
        return self._select(where, namespace, parent, tag, *values)

    def _select(self, condition: str, *values: object) -> list[Row]:
        return self._run(lambda connection: _rows(connection.execute(f"{_SELECT} {condition}", values)))

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T:
        """Do `work`, in a transaction if it writes; once more after repairing the index, if that is what it needs."""
        with self._lock:
            if self._identity is not None and self._identity != _identity(self._file):
                self._reopen()  # somebody deleted or replaced the file
            try:
                return _transaction(self._connection, work, writing=writing)
            except sqlite3.ProgrammingError:
                raise
            except sqlite3.DatabaseError as error:
                if writing and not _damaged(error):
                    raise _unwritable(error) from error
                self._reopen(damaged=_damaged(error))
            return _transaction(self._connection, work, writing=writing)

    def _reopen(self, *, damaged: bool = True) -> None:
        """After damage: a new file, unless another process made one already. Else: memory stands in."""
        self._connection.close()
        self._connection = self._open(distrusted=self._identity) if damaged else self._open_memory()

    def _open(self, distrusted: tuple[int, int] | None = None) -> sqlite3.Connection:
        try:
            return self._open_file(distrusted)
        except (OSError, sqlite3.DatabaseError):
            return self._open_memory()

    def _open_memory(self) -> sqlite3.Connection:
        self._identity = None
        connection = _connect(":memory:")
        _rebuild(connection, self._folder)
        return connection

    def _open_file(self, distrusted: tuple[int, int] | None) -> sqlite3.Connection:
        """Open the file, and rebuild it when it is new, damaged, `distrusted` or of another version."""
        make_private(self._file.parent)
        with _locked(self._folder.lock_file):
            if distrusted is not None and _identity(self._file) == distrusted:
                _discard(self._file)
            try:
                connection = self._open_sound()
            except sqlite3.DatabaseError as error:
                if not _damaged(error):
                    raise
                _discard(self._file)
                connection = self._open_sound()
            self._identity = _identity(self._file)
            return connection

    def _open_sound(self) -> sqlite3.Connection:
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = _connect(self._file)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                _rebuild(connection, self._folder)
            connection.execute(f"{_SELECT} LIMIT 1")
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection


def _connect(file: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _rebuild(connection: sqlite3.Connection, folder: PageFolder) -> None:
    def work(connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.executemany(_INSERT, (astuple(row) for row in scan(folder)))
        connection.execute(f"PRAGMA user_version = {VERSION}")

    _transaction(connection, work, writing=True)


def _transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], *, writing: bool) -> T:
    if not writing:
        return work(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return result


def _rows(cursor: sqlite3.Cursor) -> list[Row]:
    return [_row(values) for values in cursor.fetchall()]


def _row(values: Sequence[Any]) -> Row:
    """SQLite has no booleans: the last column comes as 0 or 1."""
    converted = [*values[:-1], bool(values[-1])]
    return Row(*converted)


def _damaged(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # absent where Python cannot read a value
    return code & 0xFF in _DAMAGE


def _unwritable(error: sqlite3.DatabaseError) -> StoreUnwritable:
    return StoreUnwritable(f"KV is not saved: its index cannot be written ({error})", "is the disk full or read-only?")


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _discard(file: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock among processes. Raises TimeoutError (an OSError) when another one holds it for too long."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + 2 * BUSY_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds the index") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)

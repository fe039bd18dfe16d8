"""The SQLite file behind the index: opened, shared, repaired, and replaced by memory where there can be none.

Owns `index.db` and its lock. The page files are the truth, so a file that is missing, damaged or of another version
is filled anew, by a function that the caller gives, without a word. Must not know what the rows mean.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kvchat.kv.folder import make_private
from kvchat.kv.problems import StoreUnwritable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

BUSY_SECONDS = 5.0

_DAMAGE = {  # anything else is a problem of the disk or of another process, and the file may be sound
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}


class Database:
    """One connection for all threads of a process. No error of SQLite leaves it: reading never fails, writing raises
    StoreUnwritable.

    While memory stands in for the file, what is written is known to this object only.
    """

    def __init__(self, file: Path, lock_file: Path, version: int, fill: Work[None]) -> None:
        """`fill` makes the tables and their rows, in a transaction; it drops what is there. `version` is that of the
        tables."""
        self._file = file
        self._lock_file = lock_file
        self._version = version
        self._fill = fill
        self._lock = threading.RLock()
        self._identity: tuple[int, int] | None = None  # device and inode of the open file; None: in memory
        self._closed = False
        self._connection = self._open()

    def close(self) -> None:
        """From now on nothing is found and nothing can be written."""
        with self._lock:
            self._closed = True
            self._connection.close()

    def read(self, work: Work[T], nothing: T) -> T:
        """What `work` finds; `nothing` when the database is closed or cannot be repaired. `work` may raise
        sqlite3.DatabaseError about what it read: the file is then damaged."""
        with self._lock:
            try:
                return self._attempt(work, writing=False)
            except sqlite3.Error:
                return nothing

    def write(self, work: Work[object]) -> None:
        """Do `work` in a transaction. Raises StoreUnwritable."""
        with self._lock:
            try:
                self._attempt(work, writing=True)
            except sqlite3.Error as error:
                raise _unwritable(error) from error

    def rewrite(self) -> None:
        """Leave no byte of rows that are gone in the file and its log. Raises StoreUnwritable."""
        with self._lock:
            try:
                self._need_open()
                self._connection.execute("PRAGMA temp_store = MEMORY")
                self._connection.execute("VACUUM")
                busy = self._connection.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()[0]
            except sqlite3.Error as error:
                raise _unwritable(error) from error
        if busy:
            raise StoreUnwritable("the index of the KV store is in use elsewhere", "close other programs that use it")

    def _attempt(self, work: Work[T], *, writing: bool) -> T:
        """Do `work`, again after a repair if that is what it needs. Raises sqlite3.Error."""
        self._need_open()
        if self._identity is not None and self._identity != _identity(self._file):
            self._reopen(damaged=True)  # somebody deleted or replaced the file
        for repairable in (True, False):
            try:
                return _transaction(self._connection, work, writing=writing)
            except sqlite3.Error as error:
                damaged = _is_damage(error)
                if writing and not damaged:
                    raise
                self._reopen(damaged=damaged and repairable)
        return _transaction(self._connection, work, writing=writing)

    def _need_open(self) -> None:
        if self._closed:
            raise sqlite3.ProgrammingError("it is closed")

    def need_file(self) -> None:
        """Try again to open the file if memory stands in for it. Raises StoreUnwritable."""
        with self._lock:
            if self._identity is not None and not self._closed:
                return
            try:
                self._need_open()
                connection = self._open_file(None)
            except OSError as error:
                raise StoreUnwritable.because(error) from error
            except sqlite3.Error as error:
                raise _unwritable(error) from error
            self._connection.close()
            self._connection = connection

    def _reopen(self, *, damaged: bool) -> None:
        """After damage: a new file, unless another process made one already. Else: memory stands in."""
        self._connection.close()
        self._connection = self._open(distrusted=self._identity) if damaged else self._open_memory()

    def _open(self, distrusted: tuple[int, int] | None = None) -> sqlite3.Connection:
        try:
            return self._open_file(distrusted)
        except (OSError, sqlite3.Error):
            return self._open_memory()

    def _open_memory(self) -> sqlite3.Connection:
        self._identity = None
        connection = _connect(":memory:")
        _transaction(connection, self._fill, writing=True)
        return connection

    def _open_file(self, distrusted: tuple[int, int] | None) -> sqlite3.Connection:
        """Open the file, and fill it when it is new, damaged, `distrusted` or of another version."""
        make_private(self._file.parent)
        with _locked(self._lock_file):
            if distrusted is not None and _identity(self._file) == distrusted:
                _discard(self._file)
            try:
                connection = self._open_sound()
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise
                _discard(self._file)
                connection = self._open_sound()
            self._identity = _identity(self._file)
            return connection

    def _open_sound(self) -> sqlite3.Connection:
        _create_private(self._file)
        connection = _connect(self._file)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] != self._version:
                _transaction(connection, self._fill_and_mark, writing=True)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _fill_and_mark(self, connection: sqlite3.Connection) -> None:
        self._fill(connection)
        connection.execute(f"PRAGMA user_version = {self._version}")


def _create_private(file: Path) -> None:
    """SQLite gives its journals the mode of the file. One that exists is not opened: closing any descriptor of it
    would release all locks that this process holds on it, and another process could delete the journal under us."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _connect(file: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _transaction(connection: sqlite3.Connection, work: Work[T], *, writing: bool) -> T:
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


def _is_damage(error: sqlite3.Error) -> bool:
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # absent where Python cannot read a value
    return code & 0xFF in _DAMAGE


def _unwritable(error: sqlite3.Error) -> StoreUnwritable:
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

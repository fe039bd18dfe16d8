"""The chat database as a file. Owns its schema, versions, migrations, pragmas, modes and what SQLite's errors mean.

Must not know what a turn is. `PRAGMA user_version` is the version, `PRAGMA application_id` says that the file is ours.
A file that is not ours, damaged or of a newer version is refused and left as it is: it may hold the only copy of
somebody's words. What becomes of a damaged one is for kvchat.chats.rescue.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvchat.chats.backup import back_up, told
from kvchat.chats.damage import DamagedError, mark
from kvchat.errors import KvchatError
from kvchat.paths import ensure_private

APPLICATION_ID = 0x6B766368  # "kvch"
IN_MEMORY = Path("the chats in memory")  # what errors call a database that has no file
_SMALLEST = 512  # bytes of the smallest page, so of the smallest database
_BUSY_SECONDS = 10.0
_WAL_ATTEMPTS = 50

Migration = tuple[str, ...]
"""Statements that bring a file from one version to the next."""

# `number` is an explicit row id: the full-text index refers to it, and VACUUM renumbers implicit ones.
_VERSION_1: Migration = (
    """CREATE TABLE chats (
        id TEXT PRIMARY KEY NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        system TEXT NOT NULL,
        clock REAL NOT NULL,
        model TEXT NOT NULL,
        head TEXT REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
        deleted_at REAL,
        settings TEXT NOT NULL
    )""",
    """CREATE TABLE messages (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent TEXT REFERENCES messages (id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        created REAL NOT NULL,
        finish TEXT,
        model TEXT NOT NULL,
        usage TEXT,
        deleted_at REAL
    )""",
    """CREATE TABLE message_ids (
        message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        ids BLOB NOT NULL CHECK (length(ids) % 4 = 0),
        PRIMARY KEY (message, key)
    )""",
    "CREATE INDEX chats_by_updated ON chats (updated)",
    "CREATE INDEX messages_by_chat ON messages (chat, parent)",
    "CREATE INDEX messages_by_parent ON messages (parent)",
    """CREATE VIRTUAL TABLE message_text USING fts5 (
        text, content = 'messages', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER message_text_insert AFTER INSERT ON messages BEGIN
        INSERT INTO message_text (rowid, text) VALUES (new.number, new.text);
    END""",
    """CREATE TRIGGER message_text_delete AFTER DELETE ON messages BEGIN
        INSERT INTO message_text (message_text, rowid, text) VALUES ('delete', old.number, old.text);
    END""",
    """CREATE TRIGGER message_text_update AFTER UPDATE OF text ON messages BEGIN
        INSERT INTO message_text (message_text, rowid, text) VALUES ('delete', old.number, old.text);
        INSERT INTO message_text (rowid, text) VALUES (new.number, new.text);
    END""",
)
# Who gave the titles of version 1 is not known: they stay what they are.
_VERSION_2: Migration = (
    "ALTER TABLE chats ADD COLUMN pinned_at REAL",
    "ALTER TABLE chats ADD COLUMN title_by TEXT NOT NULL DEFAULT 'person'",
    "ALTER TABLE chats ADD COLUMN origin TEXT",
    "CREATE UNIQUE INDEX chats_by_origin ON chats (origin) WHERE origin IS NOT NULL",
)
# The draft of a chat without a message, so without a row, has the chat "": no foreign key.
_VERSION_3: Migration = (
    "CREATE TABLE drafts (chat TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL, labels TEXT NOT NULL)",
    """CREATE TRIGGER drafts_of_chat AFTER DELETE ON chats BEGIN
        DELETE FROM drafts WHERE chat = old.id;
    END""",
)
# What left the context while a reply was made, under the same keys as token ids.
_VERSION_4: Migration = (
    """CREATE TABLE message_evictions (
        message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        log TEXT NOT NULL,
        PRIMARY KEY (message, key)
    )""",
)
_VERSION_5: Migration = (
    "ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE summaries (
        id TEXT PRIMARY KEY NOT NULL,
        message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        created REAL NOT NULL,
        model TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        replaced INTEGER NOT NULL
    )""",
    "CREATE INDEX summaries_by_message ON summaries (message)",
)
# Beginnings with a name, and what computing them came to, once for each model and cache type. `folded` is the name in
# one case. A prefix can be removed while chats are on it: they keep its text.
_VERSION_6: Migration = (
    """CREATE TABLE prefixes (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL,
        folded TEXT NOT NULL UNIQUE,
        system TEXT NOT NULL,
        documents TEXT NOT NULL,
        created REAL NOT NULL,
        clock REAL NOT NULL,
        uses INTEGER NOT NULL DEFAULT 0,
        seconds_saved REAL NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE prefix_computations (
        prefix TEXT NOT NULL REFERENCES prefixes (id) ON DELETE CASCADE,
        fingerprint TEXT NOT NULL,
        type_k TEXT NOT NULL,
        type_v TEXT NOT NULL,
        namespace TEXT NOT NULL,
        model TEXT NOT NULL,
        model_path TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        seconds REAL NOT NULL,
        computed_at REAL NOT NULL,
        last_key BLOB NOT NULL,
        PRIMARY KEY (prefix, fingerprint, type_k, type_v)
    )""",
    "ALTER TABLE chats ADD COLUMN prefix TEXT REFERENCES prefixes (id) ON DELETE SET NULL",
    "CREATE INDEX chats_by_prefix ON chats (prefix) WHERE prefix IS NOT NULL",
)
MIGRATIONS: tuple[Migration, ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6)


class NotSavedError(KvchatError):
    """A write that may succeed later, when the disk has room again or the other program is done."""


_BUSY = (NotSavedError, "another program keeps {path} locked", "close it, or try again later")
_UNWRITABLE = (KvchatError, "{path} cannot be written: {error}", "look at who owns the file and its folder")
_REFUSED = (KvchatError, "{path} refused a change: {error}", "is it in use by another version of kvchat?")
_MEANINGS: dict[int, tuple[type[KvchatError], str, str]] = {
    sqlite3.SQLITE_FULL: (NotSavedError, "the disk is full, {path} cannot grow", "free some space and try again"),
    sqlite3.SQLITE_IOERR: (NotSavedError, "reading or writing {path} failed: {error}", "look at the disk"),
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
}


def connect(
    path: Path, migrations: tuple[Migration, ...] = MIGRATIONS, remark: Callable[[str], object] = lambda _: None
) -> sqlite3.Connection:
    """Opens or creates the database at `path` (mode 0600 in a 0700 folder) in the newest version, in autocommit mode.
    `remark` hears what a person should know of it.

    KvchatError: it cannot be opened, is not ours, is damaged, or was written by a newer version.
    """
    ensure_private(path.parent)
    _make_private(path, remark)
    with translated(path):
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            _refuse_foreign(connection, path, len(migrations))
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")  # what is removed is overwritten
            connection.text_factory = _text
            _migrate(connection, path, migrations, remark)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_in_memory(migrations: tuple[Migration, ...] = MIGRATIONS) -> sqlite3.Connection:
    """A database of this version that lies in memory alone and ends with its connection; nothing of it is written to
    the disk, not even what SQLite sorts."""
    with translated(IN_MEMORY):
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.text_factory = _text
        _migrate(connection, IN_MEMORY, migrations, lambda _: None)
    return connection


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors, a full disk among them, SQLite has rolled back by itself
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns errors that SQLite itself reports into KvchatError, and marks a file that is damaged. Misuse of the sqlite3
    module stays what it is."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is None:
            raise
        raise _explained(path, error, code & 0xFF) from error


def _explained(path: Path, error: sqlite3.Error, code: int) -> KvchatError:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        if path != IN_MEMORY:
            with suppress(OSError):
                mark(path)
        return DamagedError(f"{path} is damaged: {error}")
    kind, message, hint = _MEANINGS.get(code, _REFUSED)
    return kind(message.format(path=path, error=error), hint.format(path=path))


def _foreign(path: Path) -> KvchatError:
    return KvchatError(
        f"{path} is not a chat database of kvchat",
        "nothing was changed; move the file away, or choose another folder with KVCHAT_HOME",
    )


def _make_private(path: Path, remark: Callable[[str], object]) -> None:
    """Creates the file if need be, and closes it to others. SQLite gives its -wal and -shm files the same mode.

    A file that exists is not opened here: closing it would drop the locks of other connections of this process
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _foreign(path)
        if 0 < status.st_size < _SMALLEST:  # SQLite takes short files for new ones
            raise DamagedError(f"{path} is damaged: it has only {status.st_size} bytes")
        if status.st_mode & 0o077:
            path.chmod(0o600)
            remark(f"others had rights to {path}: it is closed to them now")
    except OSError as error:
        raise KvchatError(
            f"{path} cannot be opened: {error.strerror}", "look at who owns the file and its folder"
        ) from error


def _refuse_foreign(connection: sqlite3.Connection, path: Path, newest: int) -> None:
    connection.execute("BEGIN")  # one snapshot: another process may be creating the file right now
    version = _number(connection, "PRAGMA user_version")
    application = _number(connection, "PRAGMA application_id")
    objects = _number(connection, "SELECT count(*) FROM sqlite_master")
    connection.execute("COMMIT")
    if objects == 0 and version == 0 and application == 0:
        return
    if application != APPLICATION_ID or version == 0:
        raise _foreign(path)
    if version > newest:
        raise KvchatError(
            f"{path} was written by a newer kvchat (version {version} of the file, this program knows {newest})",
            "update kvchat, or choose another folder with KVCHAT_HOME",
        )


def _use_wal(connection: sqlite3.Connection) -> None:
    """Two processes that create the file at the same time can collide here without SQLite waiting by itself."""
    for attempt in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.05)


def _migrate(
    connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...], remark: Callable[[str], object]
) -> None:
    if _number(connection, "PRAGMA user_version") == len(migrations):
        return
    with immediate(connection):
        version = _number(connection, "PRAGMA user_version")
        backup = _backed_up(path, version) if 0 < version < len(migrations) else None
        for migration in migrations[version:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
    if backup is not None:
        remark(told(backup, len(migrations)))


def _backed_up(path: Path, version: int) -> Path:
    try:
        return back_up(path, version)
    except OSError as error:
        raise KvchatError(
            f"{path} is of an older version, and cannot be copied before it is changed: {error.strerror}",
            "nothing was changed; free some space, or look at the rights of its folder",
        ) from error


def _text(stored: bytes) -> str:
    """A text as it is read. SQLite does not check what others write: one bad byte must not hide a whole chat."""
    return stored.decode("utf-8", "replace")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])

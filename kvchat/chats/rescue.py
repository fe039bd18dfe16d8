"""A chat database is opened, also one that is damaged: that is put aside, and all that can be read of it takes its
place. Owns the order of these steps, such that a program that is killed between two of them loses nothing.

Must not know how rows are read from a damaged file. Nothing is deleted. A database that is locked, unreadable, of
another program or of a newer version is not damaged, and is left alone.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvchat.chats import trash
from kvchat.chats.backup import backups
from kvchat.chats.damage import (
    SUFFIXES,
    DamagedError,
    beside,
    free_aside,
    is_marked,
    mark,
    marked_aside,
    move,
    unmark,
)
from kvchat.chats.presence import identity
from kvchat.chats.schema import connect, translated
from kvchat.errors import KvchatError
from kvchat.paths import ensure_private

_MOMENT = 10.0  # seconds; an empty file of this age is not one that is being made
_HINT = "nothing was changed; free some space, or look at the rights of its folder, and start again"


def open_sound(path: Path, remark: Callable[[str], object]) -> sqlite3.Connection:
    """`connect`, and a rescue where that shows damage. `remark` hears what a person should know of the file.

    KvchatError: it cannot be opened for another reason, or nothing can be put in its place.
    """
    ensure_private(path.parent)
    before = identity(path)
    try:
        return _checked(path, remark)
    except DamagedError as error:
        _rescue(path, before, error, remark)
    return _checked(path, remark)


def _checked(path: Path, remark: Callable[[str], object]) -> sqlite3.Connection:
    with _holding(path.parent, fcntl.LOCK_SH):  # nobody makes a file while another process puts one in its place
        _look(path)
        connection = connect(path, remark=remark)
        try:
            with translated(path):
                trash.expired(connection)  # reads what everything begins with
                if is_marked(path):
                    _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _look(path: Path) -> None:
    """DamagedError for what SQLite would take for a new file, or would pass over."""
    if marked_aside(path) is not None:
        raise DamagedError(f"{path} was damaged")
    try:
        about = path.stat()
        log = beside(path, "-wal")
        if about.st_size == 0 and time.time() - about.st_mtime > _MOMENT and (log.exists() or any(backups(path))):
            raise DamagedError(f"{path} is empty")
        if log.exists() and not _is_sound(log):
            raise DamagedError(f"the log of {path} is damaged")
    except OSError:  # there is none, or `connect` says why it cannot be read
        return


def _is_sound(log: Path) -> bool:
    """Another process may be writing to it: what looks damaged is looked at again."""
    from kvchat.formats.sqlite_file import is_sound_log

    if is_sound_log(log):
        return True
    time.sleep(0.1)
    return is_sound_log(log)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """After damage was met while the file was open. sqlite3.Error, DamagedError: there it is."""
    found = connection.execute("PRAGMA integrity_check (1)").fetchone()[0]
    if found != "ok":
        raise DamagedError(f"{path} is damaged: {found}")
    connection.execute("INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)")
    unmark(path)


def _rescue(path: Path, before: tuple[int, int] | None, error: DamagedError, remark: Callable[[str], object]) -> None:
    real = Path(os.path.realpath(path))
    with _holding(path.parent, fcntl.LOCK_EX):
        try:
            aside = marked_aside(path)
            if aside is None:
                if identity(path) != before:  # another process has done it
                    return
                aside = free_aside(real)
                mark(real, aside)
            move(real, aside)
            remark(_replace(real, aside, list(backups(path)), error))
        except OSError as failure:
            raise KvchatError(f"{error.message}, and cannot be put aside: {failure.strerror}", _HINT) from failure
        unmark(path)


def _replace(path: Path, aside: Path, older: list[Path], error: DamagedError) -> str:
    """Put what can be read of the file in its place; what a person is told about it. Where that cannot be done the file
    has its name again."""
    from kvchat.chats.salvage import salvage, told

    new = path.with_name(f"{path.name}.recovered")
    for suffix in SUFFIXES:
        beside(new, suffix).unlink(missing_ok=True)
    try:
        with translated(new):
            found = salvage(aside, older, new)
    except (OSError, KvchatError) as failure:
        for suffix in SUFFIXES:
            with suppress(OSError):
                beside(new, suffix).unlink(missing_ok=True)
        move(aside, path)
        why = failure.message if isinstance(failure, KvchatError) else failure.strerror
        raise KvchatError(
            f"{error.message}, and what can be read of it cannot be brought over: {why}", _HINT
        ) from failure
    new.replace(path)
    return f"{error.message}; {told(found)}. The damaged file is kept as {aside}"


@contextmanager
def _holding(folder: Path, how: int) -> Iterator[None]:
    """Among processes, as far as the file system knows such locks."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # a folder that cannot be read has no files that can
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)

"""Copies of the chat database from before it became one of a newer version. Owns their names and how many are kept.

Must not know what a version changes. A copy holds chats as surely as the database does: it is as private, and what is
purged there is purged here.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

KEPT = 2  # of the newest versions
_NAME = re.compile(r"\.v([0-9]{1,6})\.backup")


def back_up(path: Path, version: int) -> Path:
    """A whole copy beside the file, as of the last commit (the caller holds the write lock), in place of the oldest
    ones. OSError, sqlite3.Error: it cannot be made."""
    backup = path.with_name(f"{path.name}.v{version}.backup")
    unfinished = backup.with_name(f"{backup.name}.tmp")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
        source.backup(target)
    unfinished.replace(backup)
    for old in list(backups(path))[KEPT:]:
        old.unlink(missing_ok=True)
    return backup


def backups(path: Path) -> Iterator[Path]:
    """The copies of this database, those of the newest version first."""
    found = []
    for each in path.parent.iterdir():
        match = _NAME.fullmatch(each.name.removeprefix(path.name))
        if match and each.name.startswith(path.name):
            found.append((int(match[1]), each))
    yield from (each for _, each in sorted(found, reverse=True))


def told(backup: Path, version: int) -> str:
    """What a person is told about one that was just made."""
    return f"the chats are kept as version {version} of their file now; a copy from before is {backup}"

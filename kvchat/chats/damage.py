"""What lies beside a chat database that is damaged, or may be. Owns the names of these files, and what the mark says.

The mark remembers between starts that SQLite met damage, and where a damaged file was put. Must not open the database.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kvchat.errors import KvchatError

SUFFIXES = ("", "-wal", "-shm")  # of the files that are one database
_ASIDE = ".damaged-"


class DamagedError(KvchatError):
    """A database that SQLite cannot read, or not all of it."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, "nothing was deleted; what can be read is brought over into a new file when kvchat starts again"
        )


def is_marked(path: Path) -> bool:
    """Whether damage was met since the database was checked last."""
    return _mark_of(path).exists()


def mark(path: Path, aside: Path | None = None) -> None:
    """Remember that there is damage, and where the file is put because of it. OSError: it cannot be written."""
    with open(_mark_of(path), "w", encoding="utf-8", opener=_private) as file:
        file.write("" if aside is None else aside.name)
        file.flush()
        os.fsync(file.fileno())


def unmark(path: Path) -> None:
    """The database is sound."""
    with suppress(OSError):
        _mark_of(path).unlink()


def marked_aside(path: Path) -> Path | None:
    """Where a damaged file was put by somebody who did not come to put another one in its place."""
    try:
        path = _real(path)
        name = _mark_of(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    aside = path.with_name(name) if name.startswith(f"{path.name}{_ASIDE}") and "/" not in name else None
    return aside if aside is not None and aside.exists() and not path.exists() else None


def free_aside(path: Path) -> Path:
    """A name for a damaged file of today that nothing has."""
    first = path.with_name(f"{path.name}{_ASIDE}{time.strftime('%Y-%m-%d')}")
    number, aside = 1, first
    while any(os.path.lexists(beside(aside, suffix)) for suffix in SUFFIXES):
        number += 1
        aside = first.with_name(f"{first.name}-{number}")
    return aside


def all_aside(path: Path) -> Iterator[Path]:
    """The damaged files that were put aside, without their logs."""
    path = _real(path)
    for each in sorted(path.parent.glob(f"{path.name}{_ASIDE}*")):
        if not each.name.endswith(SUFFIXES[1:]):
            yield each


def move(path: Path, target: Path) -> None:
    """Give a database another name, its log with it; closed to others. OSError: that cannot be done."""
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            beside(path, suffix).rename(beside(target, suffix))
            with suppress(PermissionError):
                beside(target, suffix).chmod(0o600)


def beside(path: Path, suffix: str) -> Path:
    """One of the files of a database."""
    return path.with_name(path.name + suffix)


def _mark_of(path: Path) -> Path:
    return beside(_real(path), ".suspect")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

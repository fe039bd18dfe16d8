"""The engine's log file. Owns its size and its modes; must not be given chat text.

llama.cpp and anything else native writes to it by file descriptor, so it is a plain file, cut before it is opened.
"""

from __future__ import annotations

import os
from pathlib import Path

from kvchat.paths import ensure_private

LARGEST = 2**20  # bytes; a longer log of earlier runs is set aside when the next run begins
TAIL_BYTES = 8192


def open_log(file: Path) -> int:
    """A file descriptor that appends to the log, 0600 in a 0700 folder. KvchatError if there is no such place."""
    ensure_private(file.parent)
    if file.exists() and file.stat().st_size > LARGEST:
        file.replace(file.with_suffix(".old.log"))
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def size(file: Path) -> int:
    """Bytes in the log now: where the next run begins."""
    return file.stat().st_size if file.exists() else 0


def tail(file: Path, start: int, lines: int = 12) -> tuple[str, ...]:
    """The last lines written after byte `start`."""
    try:
        with file.open("rb") as log:
            log.seek(max(start, size(file) - TAIL_BYTES))
            text = log.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-lines:]

"""Whether a database that is open still has its name. Owns what it was when it was opened.

SQLite goes on with a file that somebody deleted or moved away: what it writes then is gone with the last process that
has it open, and nobody is told. Must not open the file: closing it would drop the locks of other connections.
"""

from __future__ import annotations

from pathlib import Path

from kvchat.chats.schema import NotSavedError


class Presence:
    """The file at `path` as it is now; None: a database without a file, which is always there."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._identity = path and identity(path)

    def check(self) -> None:
        """NotSavedError when another file, or none, has the name now."""
        if self._path is not None and identity(self._path) != self._identity:
            raise NotSavedError(
                f"{self._path} was moved or deleted while kvchat had it open: nothing is saved there any more",
                "put the file back, or keep a copy of what you need and start kvchat again",
            )


def identity(path: Path) -> tuple[int, int] | None:
    """Which file has this name now; None: none that can be seen."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino

"""What has come of a file that is not whole yet, and what is known of it. Owns `NAME.part` and `NAME.part.json`.

Must not know networks.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from kvchat.config_write import replace_file
from kvchat.errors import KvchatError
from kvchat.library.walk import PART_SUFFIX


@dataclass(frozen=True, slots=True)
class Known:
    """What the server said of the file whose beginning we have. `etag` "" and the others None: nothing."""

    url: str
    etag: str
    total: int | None
    sha256: str | None


def part_of(target: Path) -> Path:
    """Where the bytes of a file are until it is whole."""
    return target.with_name(target.name + PART_SUFFIX)


@contextmanager
def locked(part: Path) -> Iterator[FileIO]:
    """The unfinished file, for this process alone; it is not left behind empty. KvchatError: somebody else has it, or
    the disk refuses."""
    try:
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise KvchatError(f"{part} cannot be written: {error.strerror}", "look at its rights and the disk") from error
    with FileIO(fd, "r+b") as file:
        if not _alone(fd, part):
            raise KvchatError(f"{part.name.removesuffix(PART_SUFFIX)} is being fetched already", "wait for it to end")
        try:
            yield file
        finally:
            if os.fstat(fd).st_size == 0:
                forget(part)


def keep(part: Path, known: Known) -> None:
    """Write it down. KvchatError when the disk refuses."""
    replace_file(_beside(part), json.dumps(asdict(known)))


def read(part: Path, url: str, sha256: str | None) -> Known | None:
    """What was known when the file was fetched last; None when it was another URL or had another checksum."""
    try:
        found = json.loads(_beside(part).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    match found:
        case {"url": str(before), "etag": str(etag), "total": int() | None as total, "sha256": str() | None as known}:
            if before == url and sha256 in (None, known):
                return Known(url, etag, total, known)
    return None


def forget(part: Path) -> None:
    """Remove what has come, and what is known of it."""
    part.unlink(missing_ok=True)
    forget_known(part)


def forget_known(part: Path) -> None:
    """The file is whole, and has its name."""
    _beside(part).unlink(missing_ok=True)


def _alone(fd: int, part: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), part.stat())
    except OSError:  # locked by another one, or whole since it was opened
        return False


def _beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")

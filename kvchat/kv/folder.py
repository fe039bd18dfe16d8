"""Where page files lie: names, atomic writes, what is set aside, what a walk finds.

Owns the tree below `pages/` and `damaged/`, and the unfinished files of all of the store; must not know the index,
budgets or what makes a page useful. Files are 0600 in 0700 folders, since keys and values hold the conversation.
Nothing is synced to the disk: a page that a crash tore fails its checksum.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import FormatError
from kvchat.kv.namespace import Namespace, loads
from kvchat.kv.pagefile import write_all
from kvchat.kv.problems import StoreUnwritable

STALE_SECONDS = 3600.0  # a temporary file of this age belongs to no writer any more, whatever locks say
QUIET_SECONDS = 10.0  # one that was written to just now is about to get its lock, or its name
KEPT_DAMAGED = 16  # damaged files that are kept for a look
NAMESPACE_FILE = "namespace.json"

_NAMESPACE = re.compile(r"[0-9a-f]{16}")
_KEY = re.compile(r"[0-9a-f]{64}")
_KEY_START = re.compile(r"[0-9a-f]{2}")
_TEMPORARY = re.compile(r"\..+\.tmp")
_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that has the name of a page."""

    namespace: str
    key: bytes
    path: Path
    size: int
    changed: float  # seconds since the epoch


class PageFolder:
    """The page files of one store. Holds no state but its path, so any number may exist side by side."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.index_file = folder / "index.db"
        self.lock_file = folder / "index.lock"
        self.damaged = folder / "damaged"
        self.pins = folder / "pins"
        self._pages = folder / "pages"

    def path(self, namespace: str, key: bytes) -> Path:
        name = key.hex()
        return self._pages / namespace / name[:2] / name

    def has(self, namespace: str, key: bytes) -> bool:
        """Whether there is a file of that name; what cannot be looked at is not there."""
        try:
            return self.path(namespace, key).is_file()
        except OSError:
            return False

    def write(self, namespace: Namespace, key: bytes, parts: Sequence[memoryview]) -> int:
        """Write a page under a temporary name and rename it. Returns its bytes. Raises StoreUnwritable."""
        target = self.path(namespace.id, key)
        try:
            described = self._pages / namespace.id / NAMESPACE_FILE
            text = namespace.dumps().encode()
            if not described.is_file() or described.read_bytes() != text:
                write_file(described, [memoryview(text)])
            write_file(target, parts)
        except OSError as error:
            raise StoreUnwritable.because(error) from error
        return sum(part.nbytes for part in parts)

    def remove(self, namespace: str, key: bytes) -> None:
        """Delete a page; one that is gone already is fine. Raises StoreUnwritable."""
        try:
            self.path(namespace, key).unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnwritable.because(error) from error

    def set_aside(self, namespace: str, key: bytes) -> None:
        """Move a damaged page to where nothing reads it; the last few are kept. Raises StoreUnwritable."""
        try:
            make_private(self.damaged)
            self.path(namespace, key).replace(self.damaged / f"{namespace}-{key.hex()}")
            kept = sorted(self.damaged.iterdir(), key=lambda path: path.lstat().st_mtime)
            for path in kept[:-KEPT_DAMAGED]:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnwritable.because(error) from error

    def empty_damaged(self) -> int:
        """Delete what was set aside. Returns how many files. Raises StoreUnwritable."""
        kept = _entries(self.damaged)
        try:
            for path in kept:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnwritable.because(error) from error
        return len(kept)

    def namespaces(self) -> dict[str, Namespace]:
        """Namespaces whose description can be read, by id."""
        found = {}
        for folder in _folders(self._pages, _NAMESPACE):
            try:
                found[folder.name] = loads((folder / NAMESPACE_FILE).read_bytes())
            except (OSError, FormatError):
                continue  # its pages are unusable without it, and the next put writes it again
        return found

    def files(self) -> Iterator[FoundFile]:
        """Everything that has the name of a page, in no order. Files that vanish meanwhile are left out."""
        for namespace in _folders(self._pages, _NAMESPACE):
            for folder in _folders(namespace, _KEY_START):
                for path in _entries(folder):
                    if _KEY.fullmatch(path.name) and path.name.startswith(folder.name):
                        try:
                            about = path.lstat()
                        except OSError:
                            continue
                        key = bytes.fromhex(path.name)
                        yield FoundFile(namespace.name, key, path, about.st_size, about.st_mtime)

    def remove_stale(self) -> int:
        """Delete temporary files of writers that died. Returns how many; what cannot be deleted stays."""
        removed = 0
        now = time.time()
        for top in (self.pins, *_folders(self._pages, _NAMESPACE)):
            for folder in (top, *_folders(top, _KEY_START)):
                for path in _entries(folder):
                    removed += bool(_TEMPORARY.fullmatch(path.name)) and _remove_unfinished(path, now)
        return removed


def is_namespace(name: str) -> bool:
    """Whether a folder of pages may be called so."""
    return _NAMESPACE.fullmatch(name) is not None


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, 0700. Raises OSError."""
    missing = list(itertools.takewhile(lambda path: not path.is_dir(), (folder, *folder.parents)))
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def write_file(target: Path, parts: Sequence[memoryview]) -> None:
    """Write a file of mode 0600 under a temporary name and rename it. Raises OSError."""
    make_private(target.parent)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{next(_counter)}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(fd)  # so that nobody takes it for one that was left behind
            write_all(fd, parts)
        finally:
            os.close(fd)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _remove_unfinished(path: Path, now: float) -> bool:
    """Delete a temporary file unless somebody is writing it; whether that was done."""
    try:
        age = now - path.lstat().st_mtime
        if age < QUIET_SECONDS or (age < STALE_SECONDS and _is_being_written(path)):
            return False
        path.unlink()
    except OSError:
        return False
    return True


def _is_being_written(path: Path) -> bool:
    """Whether a process holds the lock of `write_file`, or nobody can say. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Hold an open file among processes until it is closed; False where another one does, or it cannot be done here."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _folders(parent: Path, name: re.Pattern[str]) -> list[Path]:
    return [path for path in _entries(parent) if name.fullmatch(path.name) and _is_folder(path)]


def _is_folder(path: Path) -> bool:
    """Not one that a link leads to, nor one that cannot be looked at."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

"""Which pages belong to a pinned prefix, and so are never evicted.

Owns the files in `pins/`, one for each prefix and namespace, from which the index knows it: an index that is lost is
filled anew, and what is pinned stays so. Must not know names or texts: a prefix has an id here, its pages have keys.
Files are 0600 in a 0700 folder.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from kvchat.formats.page import KEY_BYTES
from kvchat.kv.folder import PageFolder, is_namespace, write_file
from kvchat.kv.problems import StoreUnwritable

MOST_BYTES = 16 << 20  # of a file: keys of 30 million tokens
_PREFIX = re.compile(r"[0-9A-Za-z]{1,40}")


@dataclass(frozen=True, slots=True)
class Pin:
    """What a prefix has in one namespace: `keys` of the pages of its `tokens` in order, then of its checkpoints."""

    prefix: str
    namespace: str
    tokens: int
    keys: tuple[bytes, ...]


class PinFolder:
    """The pins of one page store. Holds no state but its path."""

    def __init__(self, folder: Path) -> None:
        """`folder`: that of the store."""
        self._folder = PageFolder(folder).pins

    def write(self, pin: Pin) -> None:
        """Keep a pin, in place of the one of its prefix in its namespace. Raises StoreUnwritable, and ValueError for an
        id that cannot be that of a prefix."""
        if not _PREFIX.fullmatch(pin.prefix):
            raise ValueError(f"{pin.prefix!r} cannot be the id of a prefix")
        text = json.dumps({"tokens": pin.tokens, "keys": [key.hex() for key in pin.keys]}).encode()
        try:
            write_file(self._path(pin.prefix, pin.namespace), [memoryview(text)])
        except OSError as error:
            raise StoreUnwritable.because(error) from error

    def remove(self, pin: Pin) -> None:
        """Forget a pin; one that is gone already is fine. Raises StoreUnwritable."""
        try:
            self._path(pin.prefix, pin.namespace).unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnwritable.because(error) from error

    def made(self, pin: Pin) -> float:
        """When a pin was written, in seconds since the epoch; now, where nobody can say."""
        try:
            return self._path(pin.prefix, pin.namespace).stat().st_mtime
        except OSError:
            return time.time()

    def read(self, prefix: str | None = None) -> list[Pin]:
        """All pins, or those of one prefix. Files that cannot be read, or are no pins, are left out."""
        found = []
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return []
        for path in paths:
            name, _, namespace = path.stem.partition("-")
            wanted = prefix in (None, name) and _PREFIX.fullmatch(name) is not None and is_namespace(namespace)
            if wanted and path.suffix == ".json" and (pin := _read(path, name, namespace)) is not None:
                found.append(pin)
        return found

    def _path(self, prefix: str, namespace: str) -> Path:
        return self._folder / f"{prefix}-{namespace}.json"


def _read(path: Path, prefix: str, namespace: str) -> Pin | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        stored = json.loads(path.read_bytes())
        tokens, keys = stored["tokens"], tuple(map(bytes.fromhex, stored["keys"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if type(tokens) is not int or tokens < 1 or not keys or any(len(key) != KEY_BYTES for key in keys):
        return None
    return Pin(prefix, namespace, tokens, keys)

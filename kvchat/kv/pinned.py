"""The pinned prefixes of a page store, as a person sees them, and how one is let go. Owns neither files nor index: it
keeps the two together. Needs no engine or model; other processes may use the store meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.namespace import Namespace
from kvchat.kv.pins import Pin, PinFolder


@dataclass(frozen=True, slots=True)
class Held:
    """What there is of a pin: so many of its pages and checkpoints, their bytes, and how many are `missing`.
    `namespace` is None where nothing describes it; `made`: seconds since the epoch."""

    pin: Pin
    namespace: Namespace | None
    pages: int
    bytes: int
    missing: int
    made: float

    @property
    def state(self) -> str:
        """Whether it is whole, in words."""
        return f"{self.missing} of {len(self.pin.keys)} pages missing" if self.missing else "pinned"


def one_of(found: Sequence[Held], prefix: str, namespace: str, last_key: bytes) -> Held | None:
    """What is held of a prefix in a namespace, if it has the page of that key."""
    wanted = prefix, namespace
    kept = (each for each in found if (each.pin.prefix, each.pin.namespace) == wanted and last_key in each.pin.keys)
    return next(kept, None)


def held(path: Path) -> list[Held]:
    """All pins of the page store in this folder."""
    files = PinFolder(path)
    pins = files.read()
    if not pins:
        return []
    folder = PageFolder(path)
    namespaces = folder.namespaces()
    with closing(PageIndex(folder)) as index:
        return [_held(pin, index, namespaces.get(pin.namespace), files.made(pin)) for pin in pins]


def _held(pin: Pin, index: PageIndex, namespace: Namespace | None, made: float) -> Held:
    rows = [row for key in pin.keys if (row := index.get(pin.namespace, key)) is not None]
    return Held(pin, namespace, len(rows), sum(row.bytes for row in rows), len(pin.keys) - len(rows), made)


def unpin(path: Path, prefix: str, namespaces: frozenset[str] | None = None) -> int:
    """Let the pages of a prefix go like others, in all namespaces or only in these, and delete those that nothing else
    needs: tails with which a longer page begins. How many pins there were. Raises StoreUnwritable."""
    files = PinFolder(path)
    pins = [pin for pin in files.read(prefix) if namespaces is None or pin.namespace in namespaces]
    if not pins:
        return 0
    folder = PageFolder(path)
    with closing(PageIndex(folder)) as index:
        index.need_file()
        for pin in pins:
            files.remove(pin)
            index.unpin(pin.prefix, pin.namespace)
            _drop_tails(pin, folder, index)
    return len(pins)


def _drop_tails(pin: Pin, folder: PageFolder, index: PageIndex) -> None:
    for key in pin.keys:
        row = index.get(pin.namespace, key)
        if row is None or row.kind != "page" or row.pinned or index.has_children(pin.namespace, key):
            continue
        beside = index.neighbours(pin.namespace, row.parent, row.tag, row.ids)
        if any(other.key != key and other.ids.startswith(row.ids) for other in beside):
            index.remove([(pin.namespace, key)])
            folder.remove(pin.namespace, key)

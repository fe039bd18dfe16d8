"""What the index knows of a page, and how it is read back from the page's own header.

Owns `Row`; must not know SQLite or budgets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kvchat.errors import FormatError
from kvchat.formats.page import KEY_BYTES, KINDS, Kind, OtherVersionError, PageHeader, pack_ids
from kvchat.kv.folder import FoundFile, PageFolder, is_namespace
from kvchat.kv.pagefile import opened, read_header

Key = bytes

MOST = 2**50  # bytes of a page, positions, hits
LONGEST = 1e15  # seconds
ROLE, DRAFT = "role", "draft"  # label of pages that were saved for drafting, and its value
AFTER = "after"  # label of pages right before which something was evicted: the key of what came before that, in hex
LATEST = 1e11  # seconds since the epoch: year 5138, within what calendars can say
HALF_LIFE = 86400.0  # seconds without use after which a page counts for half
_USUAL = 1 << 20  # bytes that take about a second to compute
_MOST_DOUBLINGS = 20.0
_HEX_KEY = re.compile(f"[0-9a-f]{{{2 * KEY_BYTES}}}")


@dataclass(frozen=True, slots=True)
class Row:
    """One page or checkpoint. `ids` packed as little-endian int32, `bytes` of the file, `last_use` in seconds since the
    epoch.

    `complete`: so many of its last tokens have all their rows; it is less where a window had left some behind when the
    page was saved. `seconds` is what computing it took, `seconds_saved` what its reuse has saved so far. `after`: see
    `NewPage`; it is told, and proved by nothing. `draft`: only a draft model has had a use for it, and it is the first
    to go. A page of another version of the format has no ids, and `parent` is zero: it takes room on the disk, and more
    is not known.
    """

    namespace: str
    key: bytes
    kind: Kind
    parent: bytes
    tag: str
    ids: bytes
    position: int
    complete: int
    bytes: int
    seconds: float
    last_use: float
    hits: int = 0
    seconds_saved: float = 0.0
    after: Key = b""
    draft: bool = False
    pinned: bool = False

    @property
    def tokens(self) -> int:
        return len(self.ids) // 4

    @property
    def before(self) -> Key:
        """Key of the page before it in the conversation."""
        return self.after or self.parent

    @property
    def facts(self) -> tuple[object, ...]:
        """What the page's file says, as opposed to how it was used."""
        return (
            self.namespace,
            self.key,
            self.kind,
            self.parent,
            self.tag,
            self.ids,
            self.position,
            self.complete,
            self.bytes,
            self.seconds,
            self.after,
        )


def row_of(header: PageHeader, size: int, last_use: float) -> Row:
    return Row(
        namespace=header.namespace,
        key=header.key,
        kind=header.kind,
        parent=header.parent,
        tag=header.tag,
        ids=pack_ids(header.ids),
        position=header.position,
        complete=header.complete,
        bytes=size,
        seconds=_within(header.seconds, LONGEST),
        last_use=_within(last_use, LATEST),
        after=_key(header.labels.get(AFTER, "")),
        draft=header.labels.get(ROLE) == DRAFT,
    )


def worth(row: Row) -> float:
    """By how many seconds the last use of a page counts as later than it was, since computing it again would take long
    for its size: HALF_LIFE for each doubling. So the order in which pages go is that of seconds per byte, halved with
    every HALF_LIFE since the last use, and does not depend on when it is asked for."""
    if row.seconds <= 0 or row.bytes <= 0:
        return 0.0
    doublings = math.log2(row.seconds / row.bytes * _USUAL)
    return HALF_LIFE * max(-_MOST_DOUBLINGS, min(_MOST_DOUBLINGS, doublings))


def _key(text: str) -> bytes:
    """The key that a label names; empty where it is none."""
    return bytes.fromhex(text) if _HEX_KEY.fullmatch(text) else b""


def row_of_other_version(found: FoundFile) -> Row:
    """For a page that cannot be read here, so that it counts, and can be evicted."""
    last_use = _within(found.changed, LATEST)
    return Row(found.namespace, found.key, "page", bytes(KEY_BYTES), "", b"", 0, 0, found.size, 0.0, last_use)


def check_row(row: Row) -> Row:
    """The row itself. Raises FormatError when no page can have it: what stands in a damaged index is of any type."""
    blobs = (row.key, row.parent, row.ids, row.after)
    counts = (row.position, row.complete, row.bytes, row.hits)
    times = ((row.seconds, LONGEST), (row.seconds_saved, LONGEST), (row.last_use, LATEST))
    if not (
        isinstance(row.namespace, str)
        and is_namespace(row.namespace)
        and row.kind in KINDS
        and isinstance(row.tag, str)
        and all(isinstance(blob, bytes) for blob in blobs)
        and len(row.key) == len(row.parent) == KEY_BYTES
        and len(row.after) in (0, KEY_BYTES)
        and len(row.ids) % 4 == 0
        and all(isinstance(count, int) and 0 <= count <= MOST for count in counts)
        and all(isinstance(time, (int, float)) and 0 <= time <= most for time, most in times)
    ):
        raise FormatError("the index has a row that no page can have")
    return row


def _within(number: float, most: float) -> float:
    return min(max(number, 0.0), most)


def check_name(header: PageHeader, namespace: str, key: bytes) -> None:
    """Raises FormatError when a page does not belong under this name."""
    if header.namespace != namespace or header.key != key:
        raise FormatError("the page is another one than its name says")


def scan(folder: PageFolder, known: Collection[tuple[str, Key]] = ()) -> Iterator[Row]:
    """Rows of all page files whose headers are sound or of another version, without those of the `known` namespaces and
    keys; payloads are not read. Others are left for `verify`."""
    for found in folder.files():
        if (found.namespace, found.key) in known:
            continue
        try:
            yield _read(found)
        except OtherVersionError:
            yield row_of_other_version(found)
        except (OSError, FormatError):
            continue


def _read(found: FoundFile) -> Row:
    with opened(found.path) as fd:
        header = read_header(fd)
    check_name(header, found.namespace, found.key)
    return row_of(header, found.size, found.changed)

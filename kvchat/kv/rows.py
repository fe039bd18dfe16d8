"""What the index knows of a page, and how it is read back from the page's own header.

Owns `Row`; must not know SQLite or budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvchat.errors import FormatError
from kvchat.formats.page import PageHeader, pack_ids
from kvchat.kv.folder import FoundFile, PageFolder
from kvchat.kv.pagefile import opened, read_header


@dataclass(frozen=True, slots=True)
class Row:
    """One page. `ids` packed as little-endian int32, `bytes` of the file, `last_use` in seconds since the epoch.

    `seconds` is what computing it took, `seconds_saved` what its reuse has saved so far.
    """

    namespace: str
    key: bytes
    parent: bytes
    tag: str
    ids: bytes
    position: int
    bytes: int
    seconds: float
    last_use: float
    hits: int = 0
    seconds_saved: float = 0.0
    pinned: bool = False

    @property
    def tokens(self) -> int:
        return len(self.ids) // 4


def row_of(header: PageHeader, size: int, last_use: float) -> Row:
    return Row(
        namespace=header.namespace,
        key=header.key,
        parent=header.parent,
        tag=header.tag,
        ids=pack_ids(header.ids),
        position=header.position,
        bytes=size,
        seconds=header.seconds,
        last_use=last_use,
    )


def check_name(header: PageHeader, namespace: str, key: bytes) -> None:
    """Raises FormatError when a page does not belong under this name."""
    if header.namespace != namespace or header.key != key:
        raise FormatError("the page is another one than its name says")


def scan(folder: PageFolder) -> Iterator[Row]:
    """Rows of all page files whose headers are sound; payloads are not read. Others are left for `verify`."""
    for found in folder.files():
        try:
            yield _read(found)
        except (OSError, FormatError):
            continue


def _read(found: FoundFile) -> Row:
    with opened(found.path) as fd:
        header = read_header(fd)
    check_name(header, found.namespace, found.key)
    return row_of(header, found.size, found.changed)

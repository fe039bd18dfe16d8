"""Every page file checked, byte for byte, and the index brought in line with what is there.

Owns the repair of a store; must not need an engine or a model. Other processes may use the store meanwhile.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import FormatError
from kvchat.kv.folder import FoundFile, PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.pagefile import opened, read_header, verify_payload
from kvchat.kv.rows import Row, check_name, row_of


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    `pages` and `bytes` are sound and stay; `damaged` were moved to `damaged/`; `unreadable` could not be opened and
    stay; `stale` index rows had no file; `added` pages were not in the index; `temporary` files of writers that died
    were deleted.
    """

    pages: int = 0
    bytes: int = 0
    damaged: int = 0
    unreadable: int = 0
    stale: int = 0
    added: int = 0
    temporary: int = 0


def verify(path: Path) -> VerifyReport:
    """Check the page store in a folder. Raises StoreUnwritable when what must be repaired cannot be."""
    if not path.is_dir():
        return VerifyReport()
    folder = PageFolder(path)
    pages = size = damaged = unreadable = added = 0
    with closing(PageIndex(folder)) as index:
        known = {(row.namespace, row.key) for row in index.rows()}
        for file in folder.files():
            try:
                row = _checked(file)
            except FileNotFoundError:
                continue
            except OSError:
                unreadable += 1
            except FormatError:
                damaged += 1
                folder.set_aside(file.namespace, file.key)
                index.remove([(file.namespace, file.key)])
            else:
                pages += 1
                size += row.bytes
                if (row.namespace, row.key) not in known:
                    added += 1
                    index.add(row)
        stale = [(row.namespace, row.key) for row in index.rows() if not folder.has(row.namespace, row.key)]
        if stale:
            index.remove(stale)
    return VerifyReport(pages, size, damaged, unreadable, len(stale), added, folder.remove_stale())


def _checked(file: FoundFile) -> Row:
    with opened(file.path) as fd:
        header = read_header(fd)
        check_name(header, file.namespace, file.key)
        verify_payload(fd, header)
    return row_of(header, file.size, file.changed)

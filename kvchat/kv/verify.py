"""Every page file checked, byte for byte, and the index brought in line with what is there.

Owns the repair of a store; must not need an engine or a model. Other processes may use the store meanwhile.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import FormatError
from kvchat.formats.page import OtherVersionError
from kvchat.kv.folder import FoundFile, PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.pagefile import opened, read_header, verify_payload
from kvchat.kv.pins import PinFolder
from kvchat.kv.rows import Row, check_name, row_of, row_of_other_version


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    `pages` and `bytes` are sound and stay; `damaged` were moved to `damaged/`; `unreadable` could not be opened and
    stay; `foreign` are of another version of the format and stay, but count in the budget; `stale` index rows had no
    file; `added` pages were not in the index; `corrected` rows said something else than their page; `temporary` files
    of writers that died were deleted.
    """

    pages: int = 0
    bytes: int = 0
    damaged: int = 0
    unreadable: int = 0
    foreign: int = 0
    stale: int = 0
    added: int = 0
    corrected: int = 0
    temporary: int = 0


def verify(path: Path) -> VerifyReport:
    """Check the page store in a folder. Raises StoreUnwritable when what must be repaired cannot be."""
    if not path.is_dir():
        return VerifyReport()
    folder = PageFolder(path)
    counts: Counter[str] = Counter()
    with closing(PageIndex(folder)) as index:
        known = {(row.namespace, row.key): row for row in index.rows()}
        for file in folder.files():
            counts.update(_verify_page(file, folder, index, known.get((file.namespace, file.key))))
        stale = [(row.namespace, row.key) for row in index.rows() if not folder.has(row.namespace, row.key)]
        if stale:
            index.remove(stale)
        index.renew_pins(PinFolder(path).read())
    return VerifyReport(**counts, stale=len(stale), temporary=folder.remove_stale())


def _verify_page(file: FoundFile, folder: PageFolder, index: PageIndex, known: Row | None) -> dict[str, int]:
    """Check one page against its checksums and its row against the page; what is to be counted of it."""
    try:
        row = _checked(file)
    except FileNotFoundError:
        return {}
    except OSError:
        return {"unreadable": 1}
    except OtherVersionError:
        if known is None:  # else the version that wrote it knows more about it
            index.add(row_of_other_version(file))
        return {"foreign": 1}
    except FormatError:
        folder.set_aside(file.namespace, file.key)
        index.remove([(file.namespace, file.key)])
        return {"damaged": 1}
    if known is not None and known.facts == row.facts:
        return {"pages": 1, "bytes": row.bytes}
    index.add(row)
    return {"pages": 1, "bytes": row.bytes, "added" if known is None else "corrected": 1}


def _checked(file: FoundFile) -> Row:
    with opened(file.path) as fd:
        header = read_header(fd)
        check_name(header, file.namespace, file.key)
        verify_payload(fd, header)
    return row_of(header, file.size, file.changed)

"""What a page store does not need: files of writers that died, damaged pages that were kept for a look, rows without a
file, and what is beyond the budget.

Owns the sweep; must not need an engine or a model. Other processes may use the store meanwhile. Which pinned prefixes
are still wanted is the caller's to know.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.kv.budget import effective_budget, make_room
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.pins import PinFolder
from kvchat.kv.problems import StoreUnwritable
from kvchat.kv.rows import scan


@dataclass(frozen=True, slots=True)
class Collected:
    """What was swept. `temporary`: unfinished files; `damaged`: pages that had been moved away; `stale`: index rows
    without a file; `added`: pages that the index did not know, and so did not count; `evicted` pages that made
    `freed` bytes of room. `pages` and `bytes` are left, within `budget` unless `over` more may not be deleted."""

    temporary: int = 0
    damaged: int = 0
    stale: int = 0
    added: int = 0
    evicted: int = 0
    freed: int = 0
    pages: int = 0
    bytes: int = 0
    budget: int = 0
    over: int = 0


def collect(path: Path, budget: int) -> Collected:
    """Sweep the page store in a folder, down to `budget` bytes (0 chooses, see `effective_budget`). Raises
    StoreUnwritable when something cannot be deleted."""
    if not path.is_dir():
        return Collected()
    folder = PageFolder(path)
    temporary, damaged = folder.remove_stale(), folder.empty_damaged()
    with closing(PageIndex(folder)) as index:
        index.need_file()
        index.renew_pins(PinFolder(path).read())
        stale, added = bring_in_line(folder, index)
        before = index.total_bytes()
        pages = len(index.rows())
        try:
            limit = effective_budget(budget, path, before)
        except OSError as error:
            raise StoreUnwritable.because(error) from error
        _evict(folder, index, before - limit)
        rows = index.rows()
    left = sum(row.bytes for row in rows)
    freed, over = before - left, max(0, left - limit)
    return Collected(temporary, damaged, stale, added, pages - len(rows), freed, len(rows), left, limit, over)


def bring_in_line(folder: PageFolder, index: PageIndex) -> tuple[int, int]:
    """How many rows without a file were forgotten, and how many pages were added to the index, as a writer that was
    killed before it did so leaves them. Payloads are not read, and pages that are not sound are left to `verify`.
    Raises StoreUnwritable."""
    known = {(row.namespace, row.key) for row in index.rows()}
    stale = [name for name in known if not folder.has(*name)]
    if stale:
        index.remove(stale)
    missing = list(scan(folder, known))
    for row in missing:
        index.add(row)
    return len(stale), len(missing)


def _evict(folder: PageFolder, index: PageIndex, excess: int) -> None:
    """Make room, as far as what is left is not pinned."""
    try:
        make_room(folder, index, excess, ())
    except StoreUnwritable:
        if index.leaves(1):  # there is something to delete, and it cannot be
            raise

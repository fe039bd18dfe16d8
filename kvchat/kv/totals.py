"""How much there is in the page store: in all, and of one history. Owns these sums; reads the index only.

Pages of another version of the format count as what they take of the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.formats.past import Past
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.matching import Match, longest_prefix, reachable
from kvchat.kv.rows import Row


@dataclass(frozen=True, slots=True)
class Totals:
    """Of some pages and checkpoints: their number, the bytes of both, how often one was read back (`hits`), what that
    saved, and how many are pinned."""

    pages: int = 0
    checkpoints: int = 0
    bytes: int = 0
    hits: int = 0
    seconds_saved: float = 0.0
    pinned: int = 0


@dataclass(frozen=True, slots=True)
class Sought:
    """A history, and in which configuration it is looked for first."""

    fingerprint: str
    type_k: str
    type_v: str
    past: Past


@dataclass(frozen=True, slots=True)
class Kept:
    """`every`: all that is there. `history`: what holds the first `tokens` of the history that was sought."""

    every: Totals = Totals()
    history: Totals = Totals()
    tokens: int = 0


def kept(path: Path, sought: Sought | None = None) -> Kept:
    """The sums of the page store in this folder."""
    if not path.is_dir():
        return Kept()
    folder = PageFolder(path)
    with closing(PageIndex(folder)) as index:
        rows = index.rows()
        match, keys = (Match(), frozenset[bytes]()) if sought is None else _search(folder, index, sought)
    return Kept(_sum(rows), _sum(row for row in rows if row.key in keys), match.tokens)


def _search(folder: PageFolder, index: PageIndex, sought: Sought) -> tuple[Match, frozenset[bytes]]:
    """The longest match, and the keys of its pages and of the checkpoints within it. A model can have several
    namespaces, such as one for each version of llama.cpp, and pages of other cache types are transcoded: those of the
    types that are sought win where others reach as far."""
    best, namespace = Match(), ""
    spaces = [each for each in folder.namespaces().values() if each.fingerprint == sought.fingerprint]
    wanted = sought.type_k, sought.type_v
    for each in sorted(spaces, key=lambda space: (space.type_k, space.type_v) != wanted):
        past = sought.past
        found = longest_prefix(index, each.id, past.root or each.root, past.ids, (), past.evictions)
        if found.tokens > best.tokens:
            best, namespace = found, each.id
    states = reachable(best, index.checkpoints(namespace, best.spans()))
    return best, frozenset([*(hit.key for hit in best.hits), *(state.key for state in states)])


def _sum(rows: Iterable[Row]) -> Totals:
    some = list(rows)
    return Totals(
        pages=sum(row.kind == "page" for row in some),
        checkpoints=sum(row.kind == "checkpoint" for row in some),
        bytes=sum(row.bytes for row in some),
        hits=sum(row.hits for row in some),
        seconds_saved=sum(row.seconds_saved for row in some),
        pinned=sum(row.pinned for row in some),
    )

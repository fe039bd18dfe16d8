"""The longest prefix that pages hold, token by token.

Owns the walk along the chain keys; must not read page files: the index is believed here and checked at the read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from kvchat.formats.page import chain_packed, pack_ids
from kvchat.kv.index import PageIndex
from kvchat.kv.rows import Row

PAGE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Hit:
    """A page whose first `take` of `rows` tokens are those at [start, start + take) of the ids that were asked for.

    `ids` are all of its tokens, packed; `seconds` is what computing all of its rows took. Only the last `complete` of
    its tokens have their rows of a window.
    """

    key: bytes
    parent: bytes
    tag: str
    ids: bytes
    start: int
    rows: int
    take: int
    seconds: float
    complete: int

    def lacks(self, end: int, window: int) -> bool:
        """Whether the page does not have the rows of a window that the token after the first `end` looks back at."""
        gap = self.start + self.rows - self.complete
        return window > 1 and self.start < gap and end - window + 1 < gap


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A recurrent state after the first `end` of the ids that were asked for; `ids` are the last of them, packed, those
    within one page, and come after the history `parent`."""

    key: bytes
    parent: bytes
    ids: bytes
    end: int
    bytes: int
    seconds: float
    tag: str = ""

    @property
    def rows(self) -> int:
        return len(self.ids) // 4

    take = rows
    complete = rows


@dataclass(frozen=True, slots=True)
class Match:
    """Pages, in order, that hold the first `tokens` of the ids that were asked for."""

    hits: tuple[Hit, ...] = ()
    tokens: int = 0

    def usable(self, window: int) -> int:
        """The most leading tokens whose next one finds all that it looks back at: rows of the last `window` - 1 tokens
        where layers have a window, 0 where none has. All of them, unless a page lacks rows of the window."""
        end = self.tokens
        for hit in reversed(self.hits):
            if hit.lacks(end, window):
                end = hit.start
        return end

    @property
    def spans(self) -> list[tuple[bytes, bytes]]:
        """Of each page the history in front of it, and its ids as far as they were matched, packed."""
        return [(hit.parent, hit.ids[: 4 * hit.take]) for hit in self.hits]

    def reaches(self, end: int, window: int) -> bool:
        """Whether the token after the first `end` finds all that it looks back at. A page may lack what it needs and
        have what a later one needs."""
        return end <= self.tokens and not any(hit.lacks(end, window) for hit in self.hits if hit.start < end)


def longest_prefix(
    index: PageIndex, namespace: str, parent: bytes, ids: Sequence[int], distrusted: Collection[bytes]
) -> Match:
    """Follow full pages from `parent` on, then take what the best child of the last one has in common.

    Computed rows (the empty tag) win over others that reach as far. Pages in `distrusted` do not exist.
    """
    hits: list[Hit] = []
    at = 0
    while at < len(ids):
        wanted = pack_ids(ids[at : at + PAGE_TOKENS])
        row, take = _next(index, namespace, parent, wanted, distrusted)
        if row is None:
            break
        hits.append(Hit(row.key, row.parent, row.tag, row.ids, at, row.tokens, take, row.seconds, row.complete))
        at += take
        if take < row.tokens or take < PAGE_TOKENS:
            break
        parent = row.key
    return Match(tuple(hits), at)


def _next(
    index: PageIndex, namespace: str, parent: bytes, wanted: bytes, distrusted: Collection[bytes]
) -> tuple[Row | None, int]:
    """The page after `parent` that has the most of `wanted`, and how many tokens of it."""
    exact = index.get(namespace, chain_packed(parent, "", wanted))
    if exact is not None and exact.ids == wanted and exact.key not in distrusted:
        return exact, exact.tokens
    best: tuple[Row | None, int] = (None, 0)
    for tag in index.tags(namespace, parent):
        for row in index.neighbours(namespace, parent, tag, wanted):
            take = common_tokens(row.ids, wanted)
            if take > best[1] and row.key not in distrusted:
                best = row, take
    return best


def reachable(match: Match, rows: Sequence[Row]) -> list[Checkpoint]:
    """Those of the checkpoints `rows` whose tokens are the matched ones, in the order of their tokens."""
    hits = {hit.parent: hit for hit in match.hits}
    found = []
    for row in rows:
        hit = hits[row.parent]
        if row.tokens <= hit.take and hit.ids.startswith(row.ids):
            end = hit.start + row.tokens
            found.append(Checkpoint(row.key, row.parent, row.ids, end, row.bytes, row.seconds))
    return sorted(found, key=lambda checkpoint: checkpoint.end)


def common_tokens(a: bytes, b: bytes) -> int:
    """Number of leading tokens that two packed sequences share."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // 4
    different = np.frombuffer(a[:size], "<i4") != np.frombuffer(b[:size], "<i4")
    return int(np.argmax(different))

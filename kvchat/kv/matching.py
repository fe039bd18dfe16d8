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

    `ids` are all of its tokens, packed; `seconds` is what computing all of its rows took.
    """

    key: bytes
    parent: bytes
    tag: str
    ids: bytes
    start: int
    rows: int
    take: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Match:
    """Pages, in order, that hold the first `tokens` of the ids that were asked for."""

    hits: tuple[Hit, ...] = ()
    tokens: int = 0


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
        hits.append(Hit(row.key, row.parent, row.tag, row.ids, at, row.tokens, take, row.seconds))
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


def common_tokens(a: bytes, b: bytes) -> int:
    """Number of leading tokens that two packed sequences share."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // 4
    different = np.frombuffer(a[:size], "<i4") != np.frombuffer(b[:size], "<i4")
    return int(np.argmax(different))

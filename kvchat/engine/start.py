"""From where a prompt can go on: the values that a reuse plan is made of, and which rows that means.

Pure. Must not look for anything, or read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvchat.formats.past import Range
from kvchat.formats.rows import Positions
from kvchat.kv.store import Checkpoint, Match

NOTHING = Match()


@dataclass(frozen=True, slots=True)
class Reuse:
    """How the beginning of a prompt came to be in the cells: token counts, seconds, why it ended early. `shared`: in
    cells that another chat has, too. `transcoded`: the cache types of pages that were transcoded on the way, with so
    many of the tokens."""

    resident: int = 0
    pages: int = 0
    checkpoint: int = 0
    seconds: float = 0.0
    saved_seconds: float = 0.0
    cut: str | None = None
    transcoded: str | None = None
    transcoded_tokens: int = 0
    shared: int = 0

    @property
    def reused(self) -> int:
        return self.resident + self.shared + self.pages + self.checkpoint


@dataclass(frozen=True, slots=True)
class Start:
    """From where a prompt can go on.

    The cells can be cut to `kept` tokens; `end` are there after a load from disk, if that is more. `match`: what pages
    hold. `checkpoint`: the recurrent state to go on from, where there is one. `same`: so many tokens in the cells are
    those of the prompt. `whole`: a load brings all rows, since other tokens are evicted than in the cells.
    """

    kept: int
    end: int
    same: int
    match: Match = NOTHING
    checkpoint: Checkpoint | None = None
    whole: bool = False

    @property
    def loads(self) -> bool:
        return self.end > self.kept


def positions(ranges: Sequence[Range]) -> Positions:
    parts = [np.arange(start, end, dtype=np.int32) for start, end in ranges]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def runs_within(ranges: Sequence[Range], start: int, end: int) -> list[tuple[int, Range]]:
    """What of `ranges`, whose tokens lie in cells one after the other, is within [start, end): each with its first
    cell."""
    found, cell = [], 0
    for low, high in ranges:
        first, last = max(low, start), min(high, end)
        if first < last:
            found.append((cell + first - low, (first, last)))
        cell += high - low
    return found

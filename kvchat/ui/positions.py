"""Where each entry of the transcript begins. Owns heights and offsets; must not know what an entry is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class Positions:
    """Heights in lines, estimated or exact, and their running sum."""

    def __init__(self) -> None:
        self._offsets = [0]
        self._exact: list[bool] = []

    def reset(self, estimates: Sequence[int]) -> None:
        """Start over with estimated heights."""
        self._offsets = [0, *accumulate(estimates)]
        self._exact = [False] * len(estimates)

    def __len__(self) -> int:
        return len(self._exact)

    @property
    def total(self) -> int:
        """Lines of all entries together."""
        return self._offsets[-1]

    def top(self, index: int) -> int:
        """First line of entry `index`."""
        return self._offsets[index]

    def exact(self, index: int) -> bool:
        """Whether the height of entry `index` was measured."""
        return self._exact[index]

    def at(self, line: int) -> int:
        """The entry that holds `line`; the nearest one for a line outside."""
        return min(max(0, bisect_right(self._offsets, line) - 1), len(self._exact) - 1)

    def add(self, height: int) -> None:
        """One more entry at the end, measured."""
        self._offsets.append(self._offsets[-1] + height)
        self._exact.append(True)

    def set(self, index: int, height: int) -> int:
        """The measured height of entry `index`. Returns by how much all that follows moved."""
        moved = height - (self._offsets[index + 1] - self._offsets[index])
        self._exact[index] = True
        if moved:
            offsets = self._offsets
            offsets[index + 1 :] = [offset + moved for offset in offsets[index + 1 :]]
        return moved

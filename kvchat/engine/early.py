"""Which tokens in a chat's cells were read while the person typed, and which of them no message has yet.

Owns this record. `Cells` keeps it true when cells go, `typing_ahead` adds to it, and a turn settles it: from then on
all that the cells hold is committed. Must not touch cells.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.formats.past import Range, count, joined, live


class Early:
    """Token numbers are those of the cells' history."""

    def __init__(self) -> None:
        self._read: list[Range] = []
        self._committed: int | None = None
        self._wasted = 0

    @property
    def ranges(self) -> Sequence[Range]:
        """Where they are."""
        return self._read

    @property
    def from_the_start(self) -> int:
        """So many leading tokens were all read so."""
        return self._read[0][1] if self._read and self._read[0][0] == 0 else 0

    def used(self, same: int) -> int:
        """How many of the first `same` tokens were read so."""
        return count(self._within(same))

    def wasted(self, same: int) -> int:
        """How many were read so since the last turn for nothing, if only the first `same` tokens are wanted now."""
        return self._wasted + count(self._read) - self.used(same)

    def committed(self, length: int) -> int:
        """How many of the first `length` tokens may be written to disk."""
        return length if self._committed is None else min(length, self._committed)

    def hold(self, committed: int) -> None:
        """What will be read behind the first `committed` tokens belongs to no message yet."""
        self._committed = committed

    def commit(self) -> None:
        """All that is there is a part of messages."""
        self._committed = None

    def read(self, start: int, end: int) -> None:
        """The tokens [start, end) were just computed."""
        self._read = joined([*self._read, (start, end)])

    def lost(self, tokens: int) -> None:
        """So many were as good as computed, and are not there."""
        self._wasted += tokens

    def cut(self, length: int) -> None:
        """The cells hold only the first `length` tokens of what they held."""
        self._wasted = self.wasted(length)
        self._read = self._within(length)
        if self.committed(length) == length:  # and whatever comes behind it is of somebody else
            self._committed = None

    def adopt(self, other: Early) -> None:
        """What was read in vain in another chat's cells is told with the next turn of this one."""
        self._wasted, other._wasted = self._wasted + other._wasted, 0

    def settle(self, resident: int) -> tuple[int, int]:
        """A turn has its prompt, and `resident` of its tokens stayed in the cells. How many of those were read early,
        and how many more were since the turn before, in vain."""
        read = count(self._read)
        used = min(resident, read)
        wasted = self._wasted + read - used
        self._read, self._committed, self._wasted = [], None, 0
        return used, wasted

    def _within(self, length: int) -> list[Range]:
        return live(0, length, live(0, length, self._read))

"""One sequence of a context, as llama.cpp has it: its cells and its state as bytes.

Owns whether its cells lie by themselves. Must not know what may be done with which kind of memory: that is `Memory`.
"""

from __future__ import annotations

from kvchat.engine.llama import NativeContext
from kvchat.errors import KvchatError

CHAT, SCRATCH = 0, 1


class NativeSequence:
    """A sequence by its number. `scattered`: cells were taken while other sequences had some."""

    def __init__(self, native: NativeContext, number: int) -> None:
        self.native = native
        self.number = number
        self.scattered = False

    @property
    def is_alone(self) -> bool:
        """Whether no other sequence has cells."""
        others = (each for each in range(self.native.sequences) if each != self.number)
        return all(self.native.last_position(each) < 0 for each in others)

    def took_cells(self) -> None:
        """It has cells that it did not have."""
        self.scattered = self.scattered or not self.is_alone

    @property
    def first(self) -> int:
        """The first position that it has, -1: none."""
        return self.native.first_position(self.number)

    @property
    def last(self) -> int:
        """The last position that it has, -1: none."""
        return self.native.last_position(self.number)

    def clear(self) -> None:
        """Give all cells back."""
        if self.is_alone:
            self.native.clear()
        else:
            self.native.remove(self.number, -1, -1)
        self.scattered = False

    def remove(self, start: int, end: int) -> bool:
        """As NativeContext.remove: true is no proof."""
        return self.native.remove(self.number, start, end)

    def share(self, other: int, start: int, end: int) -> None:
        """Let sequence number `other` own the cells of these positions, too."""
        self.native.share(self.number, other, start, end)

    def state(self, *, partial: bool = False) -> memoryview:
        """As NativeContext.state. Raises KvchatError."""
        return state_of(self.native, self.number, partial=partial)

    def load(self, blob: memoryview, *, partial: bool = False) -> bool:
        """As NativeContext.set_state."""
        accepted = self.native.set_state(blob, self.number, partial=partial)
        self.took_cells()
        return accepted


def state_of(native: NativeContext, number: int, *, partial: bool = False) -> memoryview:
    """The state of a sequence. Raises KvchatError."""
    try:
        return native.state(number, partial=partial)
    except (ValueError, MemoryError) as error:
        hint = "KV is not saved; the log has llama.cpp's own words"
        raise KvchatError(f"the state cannot be copied: {error!r}", hint) from None

"""The chat's sequence in llama.cpp's memory, of whatever kind: what may be cut, copied out, put back.

Owns the discipline of llama.cpp's sequence calls: what a cut really did is asked and not believed, state goes in so
that a refusal leaves a sequence that can be used, and a window lies in position order when a turn begins. Must not
know token ids, pages on disk or turns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvchat.engine.llama import NativeContext
from kvchat.errors import FormatError, KvchatError
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.rows import Part, PartShape, Rows, joined
from kvchat.formats.state import Layout, parse
from kvchat.kv.geometry import Geometry

CHAT, SCRATCH = 0, 1

_NOT_SAVED = "KV is not saved; the log has llama.cpp's own words"


class Memory:
    """Positions [0, length) of the chat. It lives alone in the context, but for a scratch sequence that state passes
    through."""

    def __init__(self, native: NativeContext, geometry: Geometry) -> None:
        self._native = native
        self._geometry = geometry
        self._rollback = native.rollback
        self._last_batch = 0  # tokens of the last decode: their states are those that can be rolled back to
        self._spoilt = False
        self.window = geometry.window if "window" in geometry.parts else 0
        self.layout = Layout(geometry.parts, geometry.has_v, geometry.plane_positions)
        self.shapes: Mapping[Part, PartShape] = {}

    @property
    def recurrent(self) -> bool:
        """Whether there is a recurrent state: the past is then not cell by cell, and only checkpoints lead back."""
        return "state" in self.layout.parts

    @property
    def spoilt(self) -> bool:
        """A decode broke off in the middle of a recurrent state: nothing may be computed from it."""
        return self._spoilt

    @property
    def length(self) -> int:
        return 0 if self._spoilt else self._native.last_position(CHAT) + 1

    def first_needed(self, length: int) -> int:
        """The first position whose rows of a window must be there after `length` tokens; 0 without a window. One is
        there in any case: where the sequence ends is read off it."""
        return min(self._geometry.first_visible(length), length - 1) if self.window else 0

    def probe(self) -> None:
        """Learn the shapes of all parts from a few tokens that were just decoded. Raises KvchatError."""
        rows = self._parsed(self._state(CHAT), self.layout)
        self.shapes = {part: rows[part].shape for part in self.layout.parts}

    def decoded(self, tokens: int) -> None:
        """So many tokens were just computed."""
        self._last_batch = tokens

    def broken_off(self, position: int) -> None:
        """A decode that began at `position` ended early. A recurrent state is then spoilt, whatever llama.cpp says: it
        rolls back a few tokens by itself, to states that this decode never wrote."""
        self._spoilt = not self.truncate(position) or (self.recurrent and position > 0)

    def clear(self) -> None:
        self._native.clear()
        self._spoilt = False
        self._last_batch = 0

    # ---------------------------------------------------------------- going back

    def can_truncate(self, length: int) -> bool:
        """Whether `truncate` would work."""
        now = self.length
        if length >= now or length == 0:
            return length in (0, now)
        return self._can_roll_back(now - length) if self.recurrent else self._has_window(length)

    def truncate(self, length: int) -> bool:
        """Keep positions [0, length). False: this memory cannot go back so far, nothing may be trusted.

        `seq_rm` returns true without having kept a sliding window, does nothing in the middle of a recurrent state, and
        rolls back to states that were never written, so what is there is asked before and afterwards.
        """
        if length == 0:
            self.clear()
            return True
        if self.length == length:
            return True
        if not self.can_truncate(length) or not self._native.remove(CHAT, length, -1):
            return False
        self._last_batch = 0  # a rollback is pending, and there can be only one
        return self.length == length and (self.recurrent or self._has_window(length))

    def rewind(self, snapshot: memoryview, length: int) -> bool:
        """Go back to the state that `snapshot` holds, that after the first `length` tokens. False: nothing is left."""
        accepted = self._native.set_state(snapshot, CHAT, partial=True)
        self._spoilt = False
        self._last_batch = 0
        if accepted and self._native.remove(CHAT, length, -1) and self.length == length:
            return True
        self.clear()
        return False

    def _can_roll_back(self, tokens: int) -> bool:
        """llama.cpp promises `n_rs_seq` tokens, but has only the states of the last batch."""
        return not self.window and 0 < tokens <= min(self._rollback, self._last_batch - 1)

    def _has_window(self, length: int) -> bool:
        return not self.window or self._native.first_position(CHAT) <= self.first_needed(length)

    # ---------------------------------------------------------------- state out and in

    def copy_out(self, start: int, end: int) -> Mapping[Part, Rows]:
        """Rows of positions [start, end), through the scratch sequence; of a window, those that are still there, which
        are the last ones. A recurrent state is not among them. Raises KvchatError."""
        step = min(end - start, self.window or end - start)  # a longer stretch is masked to its last `window` rows
        pieces = [self._stretch(at, min(end, at + step)) for at in range(start, end, step)]
        found: dict[Part, Rows] = {}
        for part in self.layout.parts:
            rows = [piece[part] for piece in pieces if part in piece]
            if rows:
                found[part] = joined(rows)
                count = end - start if part == "full" else len(found[part].positions)
                if not np.array_equal(found[part].positions, np.arange(end - count, end)):
                    raise KvchatError(f"tokens {start} to {end} are not where they should be", "KV is not saved")
        return found

    def snapshot(self) -> memoryview:
        """What `rewind` needs to come back to the present state. Raises KvchatError."""
        return self._state(CHAT, partial=True)

    def state_rows(self, snapshot: memoryview) -> Rows:
        """The recurrent state in a snapshot. Raises KvchatError."""
        return self._parsed(snapshot, self.layout.only("window", "state"))["state"]

    def append(self, blob: memoryview) -> None:
        """Add the cells of a blob behind those of the chat. Raises KvchatError when llama.cpp refuses; the chat is then
        as it was."""
        accepted = self._native.set_state(blob, SCRATCH)
        self._last_batch = 0
        if accepted:
            self._native.share(SCRATCH, CHAT, -1, -1)
        self._native.remove(SCRATCH, -1, -1)
        if not accepted:
            raise KvchatError("llama.cpp refused the saved KV", "it is computed again")

    def replace(self, blob: memoryview, length: int) -> None:
        """The cells of a blob, of `length` tokens, and nothing else. Raises KvchatError when llama.cpp refuses; the
        chat is then empty."""
        self.clear()
        if not self._native.set_state(blob, CHAT) or self.length != length:
            self.clear()
            raise KvchatError("llama.cpp refused the saved KV", "it is computed again")

    def settle(self) -> None:
        """Put the rows of a window in position order, without those that no later token looks at.

        A window is a ring of cells, and sums run in cell order. So a chat that goes on and one that is restored have
        the same sums only if both begin a turn with the same cells.
        """
        length = self.length
        if not length or not self.first_needed(length):
            return
        rows = self._parsed(self.snapshot(), self.layout.only("window", "state"))
        first = dict.fromkeys(rows, 0)
        first["window"] = int(np.searchsorted(rows["window"].positions, self.first_needed(length)))
        cells = {part: PartCells(each.shape, each.positions[first[part] :]) for part, each in rows.items()}
        blob = BlobBuffer(cells, CHAT, [0] * length if self.layout.plane else None)
        for part, each in rows.items():
            views = blob.views(part, 0, len(cells[part].positions))
            for view, raw in zip(views, each.payload(first[part]), strict=True):
                view[:] = raw
        if not self._native.set_state(blob.finish(), CHAT, partial=True) or self.length != length:
            self.clear()
            raise KvchatError("llama.cpp refused its own window", "the chat is read again")

    def _stretch(self, start: int, end: int) -> Mapping[Part, Rows]:
        self._native.share(CHAT, SCRATCH, start, end)
        try:
            rows = self._parsed(self._state(SCRATCH), self.layout)
        finally:
            self._native.remove(SCRATCH, -1, -1)
        if not self.recurrent:
            return rows
        # The blob has the recurrent state too, which can be far larger, and must not wait with a page for the disk.
        return {part: each.detached() for part, each in rows.items() if part != "state"}

    def _state(self, sequence: int, *, partial: bool = False) -> memoryview:
        try:
            return self._native.state(sequence, partial=partial)
        except (ValueError, MemoryError) as error:
            raise KvchatError(f"the state cannot be copied: {error!r}", _NOT_SAVED) from None

    def _parsed(self, blob: memoryview, layout: Layout) -> Mapping[Part, Rows]:
        try:
            return parse(blob, layout)
        except FormatError as error:
            raise KvchatError(str(error), _NOT_SAVED) from None

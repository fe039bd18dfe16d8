"""One sequence in llama.cpp's memory, of whatever kind: what may be cut, copied out, put back, shared.

Owns the discipline of llama.cpp's sequence calls: what a cut really did is asked and not believed, state goes in so
that a refusal leaves a sequence that can be used, and a window lies in position order when a turn begins. Must not
know token ids, pages on disk or turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kvchat.engine.llama import DECODED, NativeContext
from kvchat.engine.sequence import CHAT, SCRATCH, NativeSequence, state_of
from kvchat.errors import FormatError, KvchatError
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.ggml import GGML_TYPES
from kvchat.formats.past import Range, count, first_live, live
from kvchat.formats.rows import Part, PartShape, Rows, joined
from kvchat.formats.state import Layout, parse
from kvchat.kv.geometry import Geometry

__all__ = ["CHAT", "SCRATCH", "Memory"]

_NOT_SAVED = "KV is not saved; the log has llama.cpp's own words"


class Memory:
    """Positions [0, length) of a chat without its `holes`, what was evicted. `shared` of its first tokens lie in cells
    that another sequence has, too. There is a scratch sequence that state passes through."""

    def __init__(
        self, native: NativeContext, geometry: Geometry, *, sequence: int = CHAT, turns_whole: bool = False
    ) -> None:
        """`turns_whole`: RoPE turns all elements of a head."""
        self._native = native
        self._own = NativeSequence(native, sequence)
        self._geometry = geometry
        self._turns_whole = turns_whole
        self._rollback = native.rollback
        self._last_batch = 0  # tokens of the last decode: their states are those that can be rolled back to
        self._spoilt = False
        self.shared = 0
        self.lender: tuple[Memory, int] | None = None
        self.epoch = 0  # so often all cells were given up
        self.window = geometry.window if "window" in geometry.parts else 0
        self.layout = Layout(geometry.parts, geometry.has_v, geometry.plane_positions)
        self.shapes: Mapping[Part, PartShape] = {}
        self.holes: Sequence[Range] = ()

    @property
    def recurrent(self) -> bool:
        """Whether there is a recurrent state: the past is then not cell by cell, and only checkpoints lead back."""
        return "state" in self.layout.parts

    @property
    def spoilt(self) -> bool:
        """A decode broke off in the middle of a recurrent state: nothing may be computed from it."""
        return self._spoilt

    @property
    def rollback(self) -> int | None:
        """How many of the last tokens of one batch `truncate` can take back; None: all of them. 0: none, a snapshot
        must lead back."""
        if not self.recurrent:
            return None
        return 0 if self.window else self._rollback

    @property
    def length(self) -> int:
        return 0 if self._spoilt else self._own.last + 1

    def first_needed(self, length: int, holes: Sequence[Range] | None = None) -> int:
        """The first position whose rows of a window must be there after `length` tokens; 0 without a window. One is
        there in any case: where the sequence ends is read off it. `holes`: not the present ones."""
        if not self.window:
            return 0
        first = min(self._geometry.first_visible(length), length - 1)
        return first_live(first, self.holes if holes is None else holes)

    def sees_as_before(self, length: int) -> bool:
        """Whether the token at position `length` - 1, computed once more, would see what it saw: all rows or, of a
        window, all but the very first, which is not kept for it."""
        return not self.recurrent and (not self.window or self._own.first <= self.first_needed(length - 1) + 1)

    def probe(self) -> None:
        """Learn the shapes of all parts from a few tokens that were just decoded. Raises KvchatError."""
        rows = self._parsed(self._own.state(), self.layout)
        self.shapes = {part: rows[part].shape for part in self.layout.parts}

    def decoded(self, tokens: int) -> None:
        """So many tokens were just computed."""
        self._last_batch = tokens
        self._own.took_cells()

    def broken_off(self, position: int) -> None:
        """A decode that began at `position` ended early. A recurrent state is then spoilt, whatever llama.cpp says: it
        rolls back a few tokens by itself, to states that this decode never wrote."""
        self._spoilt = not self.truncate(position) or (self.recurrent and position > 0)

    def clear(self) -> None:
        self._own.clear()
        self.holes = ()
        self.shared = 0
        self.epoch += 1
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
        if not self.can_truncate(length) or not self._own.remove(length, -1):
            return False
        self._last_batch = 0  # a rollback is pending, and there can be only one
        self.shared = min(self.shared, length)
        self.holes = tuple(hole for hole in self.holes if hole[1] <= length)
        return self.length == length and (self.recurrent or self._has_window(length))

    def evict(self, ranges: Sequence[Range], holes: Sequence[Range], ids: Sequence[int]) -> None:
        """Let the positions of `ranges` go, of which none is the last one, and close up the cells of the others, in
        position order: sums run in cell order, and a chat that goes on must have those of one that is restored. Beside
        other sequences that waits for `compact`: there may be no room for a copy of what is shared with them.
        `holes`: all that is gone then; `ids`: of all tokens, by position.

        Positions stay, so keys need no rotation, whatever their type. Raises KvchatError: a recurrent state cannot let
        go (nothing has changed then), or llama.cpp refused (the chat is then empty).
        """
        if self.recurrent:
            raise KvchatError("a recurrent state cannot forget single tokens", "use another overflow policy")
        length = self.length
        before, left = _positions(length, self.holes), _positions(length, holes)
        for start, end in ranges:
            self._own.remove(start, end)
        rows = self._parsed(self._own.state(), self.layout)
        if "full" in rows and not np.array_equal(rows["full"].positions, left):
            self.clear()
            raise KvchatError("llama.cpp did not let these tokens go", "the chat is read again")
        if self._own.is_alone:
            self.replace(self._blob(rows, ids), length, holes)
            return
        lent = set(before[: self.shared])
        self.shared, self.holes, self._own.scattered = len(lent.intersection(left)), tuple(holes), True

    def _blob(self, rows: Mapping[Part, Rows], ids: Sequence[int]) -> memoryview:
        cells = {part: PartCells(each.shape, each.positions) for part, each in rows.items()}
        blob = BlobBuffer(cells, self._own.number, ids if self.layout.plane else None)
        for part, each in rows.items():
            for view, raw in zip(blob.views(part, 0, len(each.positions)), each.payload(), strict=True):
                view[:] = raw
        return blob.finish()

    def compact(self, ids: Sequence[int]) -> None:
        """Close up the cells in position order where they were taken beside those of other sequences, which are gone
        by now. `ids` as in `evict`. Raises KvchatError when llama.cpp refuses; the chat is then empty."""
        if self._own.scattered and self.length and self._own.is_alone:
            rows = self._parsed(self._own.state(), self.layout)
            self.replace(self._blob(rows, ids), self.length, self.holes)

    def rewind(self, snapshot: memoryview, length: int) -> bool:
        """Go back to the state that `snapshot` holds, that after the first `length` tokens. False: nothing is left."""
        accepted = self._own.load(snapshot, partial=True)
        self._spoilt = False
        self._last_batch = 0
        if accepted and self._own.remove(length, -1) and self.length == length:
            return True
        self.clear()
        return False

    def _can_roll_back(self, tokens: int) -> bool:
        """llama.cpp promises `n_rs_seq` tokens, but has only the states of the last batch."""
        return not self.window and 0 < tokens <= min(self._rollback, self._last_batch - 1)

    def _has_window(self, length: int) -> bool:
        return not self.window or self._own.first <= self.first_needed(length)

    # ---------------------------------------------------------------- state out and in

    @property
    def can_move(self) -> bool:
        """Whether `move` is safe: llama.cpp turns keys to new positions, and where it says that it can, it may abort
        (quantized keys that are not rotated, or of which RoPE turns a part only)."""
        if self.layout.parts != ("full",) or self.layout.plane or not self._native.can_move:
            return False
        kinds = {GGML_TYPES[layer.k_type].name for layer in self.shapes["full"].layers}
        return kinds <= {"f16", "bf16"} or (self._turns_whole and self._geometry.rotates[0])

    def move(self, ranges: Sequence[Range], kept: Sequence[Range]) -> None:
        """Let the positions of `ranges` go; `kept` are left, and get the positions from 0 on. Raises KvchatError: this
        memory cannot (nothing has changed then), or llama.cpp refused (the chat is then empty)."""
        if not self.can_move:
            raise KvchatError("the keys of this model cannot be moved", "the chat is read again")
        if not self._own.is_alone:
            self.swap_in(self.swap_out())  # what moves in a cell moves for all sequences that have it
        for start, end in ranges:
            self._own.remove(start, end)
        length = 0
        for start, end in kept:
            self._native.move(self._own.number, start, end, length - start)
            length += end - start
        rows = self._turned()
        if rows is None or list(rows.positions) != list(range(length)):
            self.clear()
            raise KvchatError("llama.cpp did not move these tokens", "the chat is read again")
        self.replace(self._blob({"full": rows}, ()), length)

    def _turned(self) -> Rows | None:
        """All rows, after llama.cpp has turned the keys: it does so in front of the next decode, whatever that is."""
        code = self._native.decode([0], 0, SCRATCH, output=0)
        self._native.remove(SCRATCH, -1, -1)
        self._last_batch = 0
        return self.live_rows("full") if code == DECODED else None

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

    def live_rows(self, part: Part) -> Rows | None:
        """All rows of a part that are there; None: the model has no such part. Raises KvchatError."""
        return self._parsed(self._own.state(), self.layout).get(part)

    def snapshot(self) -> memoryview:
        """What `rewind` needs to come back to the present state. Raises KvchatError."""
        return self._own.state(partial=True)

    def state_rows(self, snapshot: memoryview) -> Rows:
        """The recurrent state in a snapshot. Raises KvchatError."""
        return self._parsed(snapshot, self.layout.only("window", "state"))["state"]

    def append(self, blob: memoryview) -> None:
        """Add the cells of a blob behind those of the chat. Raises KvchatError when llama.cpp refuses; the chat is then
        as it was."""
        accepted = self._native.set_state(blob, SCRATCH)
        self._last_batch = 0
        if accepted:
            self._native.share(SCRATCH, self._own.number, -1, -1)
        self._native.remove(SCRATCH, -1, -1)
        self._own.took_cells()
        if not accepted:
            raise KvchatError("llama.cpp refused the saved KV", "it is computed again")

    def replace(self, blob: memoryview, length: int, holes: Sequence[Range] = ()) -> None:
        """The cells of a blob, of `length` tokens but for `holes`, and nothing else. Raises KvchatError when llama.cpp
        refuses; the chat is then empty."""
        self.clear()
        if not self._own.load(blob) or self.length != length:
            self.clear()
            raise KvchatError("llama.cpp refused the saved KV", "it is computed again")
        self.holes = tuple(holes)

    def swap_out(self) -> memoryview:
        """All that the sequence holds, which gives its cells back. Raises KvchatError; then it has them still."""
        blob = self._own.state()
        self._own.remove(-1, -1)
        self.shared = 0
        self.epoch += 1
        return blob

    def swap_in(self, blob: memoryview) -> None:
        """What `swap_out` took away, in cells of its own. Raises KvchatError; the chat is then empty."""
        if not self._own.load(blob):
            self.clear()
            raise KvchatError("llama.cpp refused KV of its own", "the chat is read again")
        self._last_batch = 0

    @property
    def is_lent_still(self) -> bool:
        """Whether the lender has the cells that are shared with it."""
        return self.lender is not None and self.lender[0].epoch == self.lender[1]

    def join(self, lender: Memory, length: int, snapshot: memoryview | None) -> bool:
        """The first `length` tokens of another sequence, and nothing else: their cells belong to both from now on.
        `snapshot` leads a recurrent state there; None: it is there. False: that cannot be, and the chat is empty."""
        self.clear()
        lender._own.share(self._own.number, 0, length)
        self.holes = tuple(hole for hole in lender.holes if hole[1] <= length)
        self._own.scattered = True
        if snapshot is not None and not self.rewind(snapshot, length):
            return False
        if self.length != length or not self._has_window(length):
            self.clear()
            return False
        self.shared = length - count(self.holes) if self.layout.parts != ("state",) else 0
        passed_on = lender.is_lent_still and self.shared <= lender.shared
        self.lender = lender.lender if passed_on else (lender, lender.epoch)
        return True

    def settle(self) -> None:
        """Put the rows of a window in position order, without those that no later token looks at.

        A window is a ring of cells, and sums run in cell order. So a chat that goes on and one that is restored have
        the same sums only if both begin a turn with the same cells.
        """
        length = self.length
        if not length or not self.first_needed(length):
            return
        rows = dict(self._parsed(self.snapshot(), self.layout.only("window", "state")))
        rows["window"] = rows["window"].between(self.first_needed(length), length)
        if not self._own.load(self._blob(rows, [0] * length), partial=True) or self.length != length:
            self.clear()
            raise KvchatError("llama.cpp refused its own window", "the chat is read again")

    def _stretch(self, start: int, end: int) -> Mapping[Part, Rows]:
        self._own.share(SCRATCH, start, end)
        try:
            rows = self._parsed(state_of(self._native, SCRATCH), self.layout)
        finally:
            self._native.remove(SCRATCH, -1, -1)
        if not self.recurrent:
            return rows
        # The blob has the recurrent state too, which can be far larger, and must not wait with a page for the disk.
        return {part: each.detached() for part, each in rows.items() if part != "state"}

    def _parsed(self, blob: memoryview, layout: Layout) -> Mapping[Part, Rows]:
        try:
            return parse(blob, layout)
        except FormatError as error:
            raise KvchatError(str(error), _NOT_SAVED) from None


def _positions(length: int, holes: Sequence[Range]) -> list[int]:
    return [position for low, high in live(0, length, holes) for position in range(low, high)]

"""What to keep, restore and compute: the longest valid start of a prompt.

Owns the choice among what is resident, what pages hold and where a checkpoint stands. Reads pages into the cells;
must not tokenize, sample or write pages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvchat.engine.cells import Cells, common
from kvchat.errors import KvchatError
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.rows import Part
from kvchat.kv.store import PAGE_TOKENS, Checkpoint, Hit, Match, PageDamaged, PageMissing, PageStore, Wanted

NOTHING = Match()


@dataclass(frozen=True, slots=True)
class Reuse:
    """How the beginning of a prompt came to be in the cells: token counts, seconds, why it ended early."""

    resident: int = 0
    pages: int = 0
    checkpoint: int = 0
    seconds: float = 0.0
    saved_seconds: float = 0.0
    cut: str | None = None

    @property
    def reused(self) -> int:
        return self.resident + self.pages + self.checkpoint


@dataclass(frozen=True, slots=True)
class Start:
    """From where a prompt can go on.

    The cells can be cut to `kept` tokens; `end` are there after a load from disk, if that is more. `match`: what pages
    hold. `checkpoint`: the recurrent state to go on from, where there is one. `same`: so many tokens in the cells are
    those of the prompt.
    """

    kept: int
    end: int
    same: int
    match: Match = NOTHING
    checkpoint: Checkpoint | None = None

    @property
    def loads(self) -> bool:
        return self.end > self.kept


class Reuser:
    """Brings the past of a prompt into the cells."""

    def __init__(self, cells: Cells, store: PageStore | None) -> None:
        """`store` None: nothing is kept on disk."""
        self._cells = cells
        self._memory = cells.memory
        self._store = store

    def plan(self, wanted: Sequence[int]) -> Start:
        """The longest valid start of `wanted`; nothing is changed."""
        same = common(self._cells.ids, wanted)
        kept = self._cells.reachable(same)
        if self._store is None:
            return Start(kept, kept, same)
        match = self._store.match(wanted)
        if not self._memory.recurrent:
            return Start(kept, max(kept, match.usable(self._memory.window)), same, match)
        window = self._memory.window
        states = [
            state for state in self._store.checkpoints(match) if kept < state.end and match.reaches(state.end, window)
        ]
        best = states[-1] if states else None
        return Start(kept, best.end if best else kept, same, match, best)

    def outlook(self, ids: Sequence[int]) -> Reuse:
        """What `prepare` would find for this prompt, without doing it."""
        return self._sources(self.plan(ids[:-1]))

    def reason(self, ids: Sequence[int]) -> str:
        """Why a prompt's past would not be found to its end."""
        return self._reason(ids[:-1], self.plan(ids[:-1]))

    def prepare(self, ids: Sequence[int], past: int, *, keep: bool) -> Reuse:
        """Bring as much of `ids` as possible into the cells, all but the last one, whose logits are wanted.

        `past`: number of leading ids that the chat had before. `keep` False: start from nothing.
        """
        began = time.perf_counter()
        if not keep:
            self._cells.truncate(0)
            return Reuse(cut="no-kv" if past else None)
        wanted = ids[:-1]
        start, trouble = self._bring(wanted)
        if not start.loads and not self._cut(start.kept):
            trouble = "refused"
        self._cells.pages_on_disk = _saved(start.match, len(self._cells))
        reuse = self._sources(start) if start.loads and len(self._cells) else Reuse(resident=len(self._cells))
        reuse = replace(
            reuse,
            seconds=time.perf_counter() - began,
            saved_seconds=self._cells.seconds_of(0, len(self._cells)),
        )
        if reuse.reused >= min(past - 1, len(wanted)):
            return reuse
        return replace(reuse, cut=trouble or self._reason(wanted, start))

    def _cut(self, length: int) -> bool:
        """Keep so many tokens, their window in the order in which a load would bring it. False: they had to go."""
        self._cells.truncate(length)
        try:
            self._memory.settle()
        except KvchatError:
            self._cells.resync()
            return False
        return True

    # ---------------------------------------------------------------- loading

    def _bring(self, wanted: Sequence[int]) -> tuple[Start, str | None]:
        """Load what is on disk beyond what is resident; the start that was used, and what went wrong on the way."""
        trouble = None
        while True:
            start = self.plan(wanted)
            if self._store is None or not start.loads:
                return start, trouble
            try:
                self._load(self._store, start, wanted)
            except PageDamaged:
                trouble = "corrupt page"
            except PageMissing:
                trouble = trouble or "missing page"
            except KvchatError:
                self._cells.resync()
                return Start(len(self._cells), len(self._cells), len(self._cells)), "refused"
            else:
                self._record(self._store, start, wanted)
                return start, trouble

    def _load(self, store: PageStore, start: Start, wanted: Sequence[int]) -> None:
        """All is read before a cell is touched. Plain cells are added to those that stay, a window or a recurrent state
        comes whole; where only the recurrent state goes back, the other cells stay."""
        memory = self._memory
        back = start.checkpoint is not None and start.end <= start.same and not memory.window
        plain = not memory.recurrent and not memory.window
        first = start.kept if plain else start.end if back else 0
        ranges: dict[Part, range] = {
            "full": range(first, start.end),
            "window": range(memory.first_needed(start.end), start.end),
            "state": range(start.end - 1, start.end),
        }
        parts = memory.layout.only("state").parts if back else memory.layout.parts
        cells = {part: PartCells(memory.shapes[part], np.array(ranges[part], np.int32)) for part in parts}
        blob = BlobBuffer(cells, ids=wanted if memory.layout.plane else None)
        for hit in start.match.hits:
            self._read(store, blob, hit, {part: ranges[part] for part in parts if part != "state"})
        if start.checkpoint is not None:
            last = start.checkpoint.rows
            store.read(start.checkpoint, [Wanted("state", last - 1, last, blob.views("state", 0, 1))])
        if plain:
            self._cells.truncate(start.kept)
            memory.append(blob.finish())
        elif not back:
            memory.replace(blob.finish(), start.end)
        elif not memory.rewind(blob.finish(), start.end):
            raise KvchatError("llama.cpp refused the saved state", "it is computed again")

    def _read(self, store: PageStore, blob: BlobBuffer, hit: Hit, ranges: dict[Part, range]) -> None:
        wanted = []
        for part, cells in ranges.items():
            low, high = max(cells.start, hit.start), min(cells.stop, hit.start + hit.take)
            if low < high and self._memory.shapes[part].layers:
                views = blob.views(part, low - cells.start, high - low)
                wanted.append(Wanted(part, low - hit.start, high - hit.start, views))
        if wanted:
            store.read(hit, wanted)

    def _record(self, store: PageStore, start: Start, wanted: Sequence[int]) -> None:
        kept = min(start.same, start.end) if self._memory.recurrent or self._memory.window else start.kept
        seconds: list[float] = []
        for hit in start.match.hits:
            low, high = max(kept, hit.start), min(start.end, hit.start + hit.take)
            seconds += [hit.seconds / hit.rows] * max(0, high - low)
        keys = [hit.key for hit in _full(start.match, start.end)]
        self._cells.restored(wanted[: start.end], seconds, keys, kept)
        used: list[Hit | Checkpoint] = [hit for hit in start.match.hits if kept < hit.start + hit.take <= start.end]
        store.used([*used, start.checkpoint] if start.checkpoint is not None else used)

    # ---------------------------------------------------------------- in words

    def _sources(self, start: Start) -> Reuse:
        if not start.loads:
            return Reuse(resident=start.kept)
        if start.checkpoint is not None:
            return Reuse(checkpoint=start.end)
        kept = 0 if self._memory.window else start.kept
        return Reuse(resident=kept, pages=start.end - kept)

    def _reason(self, wanted: Sequence[int], start: Start) -> str:
        """Why the past of a prompt is not found to its end."""
        if self._store is None:
            return "no-kv" if self._memory.layout.parts else "architecture"
        memory = self._memory
        elsewhere = self._store.reason_elsewhere(
            wanted, max(start.end, start.match.tokens), window=memory.window, recurrent=memory.recurrent
        )
        if elsewhere is None and start.match.tokens > start.end:
            return "checkpoint" if self._memory.recurrent else "window"
        return elsewhere or "missing page"


def _saved(match: Match, computed: int) -> int:
    """Leading full pages that need not be written when what follows the first `computed` tokens is computed: one that
    lacks rows of a window then gets them."""
    full = _full(match, match.tokens)
    return next(
        (i for i, hit in enumerate(full) if hit.start + hit.take > computed and hit.complete < hit.rows), len(full)
    )


def _full(match: Match, end: int) -> list[Hit]:
    """The leading pages that are full, and lie within the first `end` tokens."""
    return [hit for hit in match.hits if hit.take == hit.rows == PAGE_TOKENS and hit.start + hit.take <= end]

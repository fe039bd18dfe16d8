"""What to keep, restore and compute: the longest valid start of a prompt.

Owns the choice among what is resident, what pages hold and where a checkpoint stands. Reads pages into the cells;
must not tokenize, sample or write pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from kvchat.engine.borrowing import Borrowing
from kvchat.engine.cells import Cells
from kvchat.engine.check import NEXT, ResumeCheck
from kvchat.engine.lending import best_loan
from kvchat.engine.start import Reuse, Start, positions, runs_within
from kvchat.errors import KvchatError
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.past import Past, Range, count, dead, live, shared
from kvchat.formats.rows import Part
from kvchat.kv.elsewhere import reason_elsewhere
from kvchat.kv.lineage import COMPUTED, sources_of
from kvchat.kv.store import Checkpoint, Hit, Match, PageDamaged, PageMissing, PageStore, Wanted
from kvchat.kv.transcode import form_of


class Reuser:
    """Brings the past of a prompt into the cells."""

    def __init__(self, cells: Cells, store: PageStore | None, borrowing: Borrowing | None = None) -> None:
        """`store` None: nothing is kept on disk. `borrowing` None: pages of other cache types are of no use."""
        self._cells = cells
        self._memory = cells.memory
        self._store = store
        self._borrowing = borrowing
        self._untold: tuple[str | None, int] = None, 0  # what was transcoded since the last turn
        self.lenders: Callable[[], Iterable[Cells]] = tuple  # of other chats
        self.check = ResumeCheck()

    def plan(self, wanted: Past, past: int) -> Start:
        """The longest valid start of `wanted`; nothing is changed. For its first `past` tokens, which the chat had
        before, pages of other cache types count too where there are none of these."""
        return self._planned(wanted, past)[0]

    def _planned(self, wanted: Past, past: int) -> tuple[Start, Past]:
        """The longest valid start, and the history that it is of: where not all rows that were moved are to be had,
        none of them counts. What is computed in their place is a history without them, or it would bear their names."""
        start = self._longest(wanted, past)
        if start.end >= wanted.moved:
            return start, wanted
        return self._longest(wanted.anew, past), wanted.anew

    def _longest(self, wanted: Past, past: int) -> Start:
        same, stand = shared(self._cells.past, wanted)
        kept = self._cells.reachable(same, stand)
        if self._store is None:
            return Start(kept, kept, same)
        return self._find(self._store, self._borrowing, wanted, past, Start(kept, kept, same))

    def abroad(self, borrowing: Borrowing, past: Past) -> tuple[int, int]:
        """How many leading tokens of `past`, that of a chat, would come from pages into cells of another configuration,
        those of `borrowing`; and how many of them from pages of other cache types than these."""
        if self._store is None:
            return 0, 0
        start = self._find(self._store, borrowing, past, len(past.ids), Start(0, 0, 0))
        if start.end < past.moved:
            start = self._find(self._store, borrowing, past.anew, len(past.ids), Start(0, 0, 0))
        foreign = [hit for hit in start.match.hits if borrowing.is_foreign(hit.namespace) and self._has_rows]
        return start.end, sum(max(0, min(hit.start + hit.take, start.end) - hit.first) for hit in foreign)

    def _find(self, store: PageStore, borrowing: Borrowing | None, wanted: Past, past: int, resident: Start) -> Start:
        window = self._memory.window
        if borrowing is not None:
            match = borrowing.match(wanted, window)
        else:
            match = store.match(wanted.ids, wanted.root, evictions=wanted.evictions)
        best = self._start(store, match, resident, wanted)
        if borrowing is None or best.end >= min(past, len(wanted.ids)):
            return best
        starts = [self._start(store, each, resident, wanted) for each in borrowing.wider(match, wanted, window)]
        return max([best, *starts], key=lambda start: start.end)

    def _start(self, store: PageStore, match: Match, resident: Start, wanted: Past) -> Start:
        window, kept, same = self._memory.window, resident.kept, resident.same
        if not self._memory.recurrent:
            end = max(kept, match.usable(window))
            whole = wanted.upto(end).evictions != self._cells.past.upto(kept).evictions
            return Start(kept, end, same, match, whole=whole)
        states = [state for state in store.checkpoints(match) if kept < state.end and match.reaches(state.end, window)]
        best = states[-1] if states else None
        return Start(kept, best.end if best else kept, same, match, best)

    def outlook(self, prompt: Past, past: int) -> Reuse:
        """What `prepare` would find for this prompt, without doing it."""
        wanted = prompt.upto(len(prompt.ids) - 1)
        return self._sources(self.plan(wanted, past), wanted)

    def reason(self, prompt: Past, past: int) -> str:
        """Why a prompt's past would not be found to its end."""
        wanted = prompt.upto(len(prompt.ids) - 1)
        return self._reason(wanted, self.plan(wanted, past))

    def warm(self, past: Past) -> Reuse:
        """Bring what there is of `past`, that of a chat, into the cells. The next turn tells what was transcoded."""
        # the last id of a prompt is never restored, since its logits are wanted; here none are, so one is added
        reuse = self.prepare(replace(past, ids=(*past.ids, 0)), len(past.ids), keep=True)
        self._untold = reuse.transcoded, reuse.transcoded_tokens
        return reuse

    def prepare(self, prompt: Past, past: int, *, keep: bool, joins: bool = False) -> Reuse:
        """Bring as much of the prompt as possible into the cells, all but its last token, whose logits are wanted. What
        is to be evicted at the end of that is still there.

        `past`: number of leading ids that the chat had before. `keep` False: start from nothing but what was read while
        the person typed; `joins`: or what another chat in the context has.
        """
        began = time.perf_counter()
        (names, tokens), self._untold = self._untold, (None, 0)
        if not keep:
            wanted = prompt.upto(len(prompt.ids) - 1)
            self._cells.truncate(self.read_early(wanted))
            joined = self._join(wanted) if joins else 0
            resident = self._cells.live - joined
            return Reuse(resident, shared=joined, cut="no-kv" if past > len(self._cells) else None)
        joined = self._join(prompt.upto(len(prompt.ids) - 1))
        start, trouble, wanted = self._bring(prompt.upto(len(prompt.ids) - 1), past)
        if not start.loads and not self._cut(start.kept):
            trouble = "refused"
        if len(self._cells) < wanted.moved:  # what was moved is not there, and is not computed under its name
            self._cells.truncate(0)
            wanted = wanted.anew
        if self._store is not None:
            there = self._store.holds(self._cells.page_keys(wanted), len(self._cells))
            self._cells.pages_on_disk = max(there, self._cells.lost_pages)
        reuse = self._sources(start, wanted) if start.loads and len(self._cells) else Reuse(resident=self._cells.live)
        if reuse.transcoded is None and (tokens := min(tokens, reuse.resident)):
            reuse = replace(reuse, transcoded=names, transcoded_tokens=tokens)
        joined = min(joined, reuse.resident)
        reuse = replace(
            reuse,
            resident=reuse.resident - joined,
            shared=joined,
            seconds=time.perf_counter() - began,
            saved_seconds=self._cells.seconds_of(0, len(self._cells)),
        )
        if len(self._cells) >= min(past - 1, len(wanted.ids)):
            return reuse
        return replace(reuse, cut=trouble or self._reason(wanted, start))

    def read_early(self, wanted: Past) -> int:
        """How many tokens the cells have of `wanted`, where that counts only if all of it was read while the person
        typed."""
        kept = self._cells.reachable(*shared(self._cells.past, wanted))
        return min(kept, self._cells.early.from_the_start)

    def _join(self, wanted: Past) -> int:
        """Begin with what another chat has, where that is more than is here. Live tokens of it."""
        loan = best_loan(self.lenders(), wanted)
        if loan is None or loan.length <= self._cells.reachable(*shared(self._cells.past, wanted)):
            return 0
        return self._cells.live if self._cells.join(loan.cells, loan.length, loan.snapshot) else 0

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

    def _bring(self, history: Past, past: int) -> tuple[Start, str | None, Past]:
        """Load what is on disk beyond what is resident; the start that was used, what went wrong on the way, and the
        history of which it is the start."""
        trouble = None
        while True:
            start, wanted = self._planned(history, past)
            if self._store is None or not start.loads:
                return start, trouble, wanted
            try:
                self._load(self._store, start, wanted)
            except PageDamaged:
                trouble = "corrupt page"
            except PageMissing:
                trouble = trouble or "missing page"
            except KvchatError:
                self._cells.resync()
                return Start(len(self._cells), len(self._cells), len(self._cells)), "refused", wanted
            else:
                self._record(self._store, start, wanted)
                self._note_mark(self._store, start, wanted)
                return start, trouble, wanted

    def _load(self, store: PageStore, start: Start, wanted: Past) -> None:
        """All is read before a cell is touched. Plain cells are added to those that stay, a window or a recurrent state
        comes whole; where only the recurrent state goes back, the other cells stay."""
        memory = self._memory
        first = self._first_read(start)
        back, plain = first == start.end, not memory.recurrent and not memory.window and not start.whole
        holes = dead(wanted.evictions, start.end)
        ranges: dict[Part, list[Range]] = {
            "full": live(first, start.end, holes),
            "window": live(memory.first_needed(start.end, holes), start.end, holes),
            "state": [(start.end - 1, start.end)],
        }
        parts = memory.layout.only("state").parts if back else memory.layout.parts
        cells = {part: PartCells(memory.shapes[part], positions(ranges[part])) for part in parts}
        blob = BlobBuffer(cells, ids=wanted.ids if memory.layout.plane else None)
        for hit in start.match.hits:
            self._read(store, blob, hit, {part: ranges[part] for part in parts if part != "state"})
        if start.checkpoint is not None:
            last = start.checkpoint.rows
            store.read(start.checkpoint, [Wanted("state", last - 1, last, blob.views("state", 0, 1))])
        if plain:
            self._cells.truncate(start.kept)
            memory.append(blob.finish())
        elif not back:
            memory.replace(blob.finish(), start.end, holes)
        elif not memory.rewind(blob.finish(), start.end):
            raise KvchatError("llama.cpp refused the saved state", "it is computed again")

    def _first_read(self, start: Start) -> int:
        """The first token whose rows a load reads; the end where only the recurrent state goes back."""
        if start.whole:
            return 0
        if not self._memory.recurrent and not self._memory.window:
            return start.kept
        return start.end if start.checkpoint is not None and start.end <= start.same and not self._memory.window else 0

    def _read(self, store: PageStore, blob: BlobBuffer, hit: Hit, ranges: dict[Part, list[Range]]) -> None:
        """The live rows of a page, a run of them in each part at a time: buffers for rows are lent for one run only."""
        found: dict[Part, list[tuple[int, Range]]] = {}
        for part, cells in ranges.items():
            if self._memory.shapes[part].layers:
                found[part] = runs_within(cells, hit.first, hit.start + hit.take)
        for number in range(max(map(len, found.values()), default=0)):
            self._read_runs(
                store, blob, hit, {part: each[number] for part, each in found.items() if number < len(each)}
            )

    def _read_runs(self, store: PageStore, blob: BlobBuffer, hit: Hit, runs: dict[Part, tuple[int, Range]]) -> None:
        borrowing = self._borrowing if self._is_foreign(hit) else None
        wanted, targets = [], []
        for part, (cell, (low, high)) in runs.items():
            shapes = self._memory.shapes[part].layers
            views = blob.views(part, cell, high - low)
            rows = borrowing.room(hit.namespace, part, shapes, high - low) if borrowing is not None else views
            wanted.append(Wanted(part, low - hit.start, high - hit.start, rows))
            targets.append((part, shapes, rows, views))
        store.read(hit, wanted)
        if borrowing is not None:
            for target in targets:
                borrowing.fill(hit.namespace, *target)

    @property
    def _has_rows(self) -> bool:
        """Whether there are keys and values, and not a recurrent state alone, which has no cache type."""
        return self._memory.layout.parts != ("state",)

    def _is_foreign(self, hit: Hit | Checkpoint) -> bool:
        return self._borrowing is not None and self._borrowing.is_foreign(hit.namespace)

    def _record(self, store: PageStore, start: Start, wanted: Past) -> None:
        kept = min(start.same, start.end) if self._memory.recurrent or self._memory.window else start.kept
        kept = 0 if start.whole else kept
        read = self._first_read(start)
        seconds = [0.0] * start.end  # and so it stays for tokens that are gone, and whose page is gone
        sources = [COMPUTED] * start.end
        for hit in start.match.hits:
            first, end = hit.first, min(start.end, hit.start + hit.take)
            if first < end:
                seconds[first:end] = [hit.seconds / hit.rows] * (end - first)
                sources[first:end] = self._sources_of(hit)[first - hit.start : end - hit.start]
        self._cells.restored(wanted.upto(start.end), seconds[kept:], sources[read:])
        used: list[Hit | Checkpoint] = [hit for hit in start.match.hits if kept < hit.start + hit.take <= start.end]
        store.used([*used, start.checkpoint] if start.checkpoint is not None else used)

    def _sources_of(self, hit: Hit) -> list[str]:
        return self._borrowing.sources(hit) if self._borrowing is not None else sources_of(hit.tag, hit.rows)

    # ---------------------------------------------------------------- the check on resume

    def _note_mark(self, store: PageStore, start: Start, wanted: Past) -> None:
        """What is to be compared: of the last page that is in the cells, if need be without its last token. Rows that
        were transcoded are other rows."""
        self.check.forget()
        hits = [hit for hit in start.match.hits if hit.start < start.end]
        if self._memory.recurrent or any(map(self._is_foreign, hits)):
            return
        for hit in reversed(hits):
            end, missing = hit.start + hit.rows, hit.start + hit.rows - min(start.end, hit.start + hit.take)
            if missing <= 1:
                last = int.from_bytes(hit.ids[-4:], "little", signed=True)
                evictions = wanted.upto(start.end).evictions
                self.check.restored(Past((*wanted.ids[: end - 1], last), evictions), store.label(hit, NEXT))
                return

    def condemn(self) -> None:
        """What was restored is wrong: nothing of it stays, in the cells or on disk."""
        if self._store is not None:
            past = self._cells.past
            self._store.condemn(past.ids, past.root, evictions=past.evictions)
        self._cells.truncate(0)

    # ---------------------------------------------------------------- in words

    def _sources(self, start: Start, wanted: Past) -> Reuse:
        if not start.loads:
            return Reuse(resident=count(live(0, start.kept, dead(wanted.evictions, start.kept))))
        if start.checkpoint is not None:
            return self._with_transcoded(Reuse(checkpoint=start.end), start)
        kept = 0 if self._memory.window or start.whole else start.kept
        holes = dead(wanted.evictions, start.end)
        resident, all_live = count(live(0, kept, holes)), count(live(0, start.end, holes))
        return self._with_transcoded(Reuse(resident=resident, pages=all_live - resident), start)

    def _with_transcoded(self, reuse: Reuse, start: Start) -> Reuse:
        """The types of the pages that are transcoded are those of the first tokens first."""
        if self._borrowing is None or not self._has_rows:
            return reuse
        read = self._first_read(start)
        foreign = [hit for hit in start.match.hits if self._is_foreign(hit)]
        counts = [(hit, min(hit.start + hit.take, start.end) - max(hit.first, read)) for hit in foreign]
        counts = [(hit, count) for hit, count in counts if count > 0]
        names = dict.fromkeys(form_of(self._borrowing.of(hit.namespace)).name for hit, _ in counts)
        tokens = sum(count for _, count in counts)
        return replace(reuse, transcoded=", ".join(names) or None, transcoded_tokens=tokens)

    def _reason(self, wanted: Past, start: Start) -> str:
        """Why the past of a prompt is not found to its end."""
        if self._store is None:
            return "no-kv" if self._memory.layout.parts else "architecture"
        memory = self._memory
        elsewhere = reason_elsewhere(
            self._store,
            wanted.ids,
            max(start.end, start.match.tokens),
            evictions=wanted.evictions,
            window=memory.window,
            recurrent=memory.recurrent,
        )
        if elsewhere is None and start.match.tokens > start.end:
            return "checkpoint" if self._memory.recurrent else "window"
        if self._store.goes_on_evicted(start.match, wanted.ids):
            return "eviction taken back"
        return elsewhere or "missing page"

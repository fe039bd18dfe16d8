"""Pages and checkpoints on their way to the disk: cut out of the cells as they fill, handed to the writer.

Owns the page boundaries, and how many checkpoints a chat keeps; must not restore or write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kvchat.engine.cells import Cells, Snapshot
from kvchat.engine.check import NEXT, label
from kvchat.engine.divergence import Logits
from kvchat.engine.writing import Account, PageWriter, Saved
from kvchat.errors import KvchatError
from kvchat.formats.page import Kind
from kvchat.formats.past import Past, Range, shared
from kvchat.formats.rows import Part, Rows
from kvchat.kv.store import PAGE_TOKENS, Checkpoint, NewPage, NewRows, PageStore

PATIENCE = 3.0  # seconds that the end of a turn waits for the disk
CHECKPOINT_TOKENS = 2048  # in a long prompt there is one after so many tokens
PAGES_AT_ONCE = 16  # of a model with a recurrent state, of which every copy out of the cells brings one along
MOST_CHECKPOINTS = 8  # of one chat, and those that one turn adds
MOST_CHECKPOINT_BYTES = 2**30  # of one chat; the last two are kept in any case


class Saver:
    """Cuts what the cells hold into pages and hands them to the writer."""

    def __init__(
        self,
        cells: Cells,
        writer: PageWriter,
        store: PageStore,
        labels: Mapping[str, str],
        logits_after: Callable[[int], Logits | None],
    ) -> None:
        """`labels` of all pages. `logits_after`: those of the token after so many tokens, if they are known."""
        self._cells = cells
        self._writer = writer
        self._account = Account()
        self._store = store
        self._labels = dict(labels)
        self._logits_after = logits_after
        self.apart = False  # part-filled pages are wanted as they are, also where a longer one begins with one of them
        self._has_begun = False  # the turn that begins has handed out pages already
        self._late: list[Snapshot] = []  # states for which there was no room in the queue
        memory = cells.memory  # rows of a window cannot wait: they leave the cells
        self._at_once = PAGES_AT_ONCE if memory.recurrent and not memory.window else 1

    def begin_again(self) -> None:
        """What could not be saved before is tried once more."""
        self._writer.begin(self._account)

    def begin(self) -> None:
        """A turn begins, its restore is over: the chain that the cells hold now is not to be evicted, and checkpoints
        that are too many go."""
        if not self._has_begun:
            self._writer.begin(self._account)
        self._has_begun = False
        self._late = []
        pages = [self._cells.key(page) for page in range(len(self._cells.closed(len(self._cells))))]
        checkpoints: list[Checkpoint] = []
        if self._cells.memory.recurrent:
            checkpoints = self._store.checkpoints(self._store.match(self._cells.ids))
            self._store.drop(surplus(checkpoints))
        # Of the checkpoints only the one that this turn goes on from: a small budget must have room for those to come.
        self._writer.protect(self._account, [*pages, *(checkpoint.key for checkpoint in checkpoints[-1:])])

    def let_go(self) -> None:
        """The chat leaves the cells: its pages may be evicted for those of others."""
        self._writer.let_go(self._account)

    def take_early(self, wanted: Past) -> None:
        """What was read while the person typed is a part of `wanted`, the prompt of a turn, now. Of a window, hand out
        its full pages: rows that no later token looks at go when the turn puts it in order."""
        cells = self._cells
        if cells.memory.window and cells.early.ranges:
            cells.truncate(cells.reachable(*shared(cells.past, wanted)))
            cells.early.commit()
            self._writer.begin(self._account)
            self._has_begun = True
            self.advance(len(cells))

    def advance(self, end: int) -> None:
        """Hand out full pages of the first `end` tokens that are not on disk yet, as far as the disk keeps up."""
        if self._waiting_pages(end) >= self._at_once:
            self._hand_out_pages(end)

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Hand out a recurrent state, that after the first `snapshot.length` of the tokens in the cells, and the
        pages up to it, without which it would not be found."""
        self._hand_out_pages(snapshot.length)
        if snapshot.length % PAGE_TOKENS:
            self._offer([(_page_start(snapshot), snapshot.length)], snapshot.length // PAGE_TOKENS)
        if not self._offer_state(snapshot):
            self._late = [*self._late[-1:], snapshot]  # a state can be large: the ends of prompt and answer are enough

    def before_eviction(self) -> None:
        """Hand out all that the cells hold, before some of it goes: the page that is being filled then ends here."""
        end = self._cells.writable
        self._hand_out_pages(end)
        closed = self._cells.closed(end)
        start = closed[-1][1] if closed else 0
        if self._cells.pages_on_disk == len(closed) and start < end:
            self._offer([(start, end)], len(closed))

    def refuse(self, error: KvchatError) -> None:
        """What should be saved cannot be had: nothing more is saved in this turn, and the turn says why."""
        self._writer.refuse(self._account, error.message)

    def finish(self) -> Saved:
        """The end of a turn: what is left of full pages, the tail, and the count of what was written."""
        deadline = time.monotonic() + PATIENCE
        saved = self._hand_out_all(deadline)
        late, self._late = self._late, []
        left = self._cells.writable - self._end_on_disk()
        if saved.problem is None and left >= PAGE_TOKENS:
            return replace(saved, problem=f"the disk is too slow, {left} tokens wait for the next turn")
        if saved.problem is None and late:
            problem = f"the disk is too slow, the state after {late[-1].length} tokens is not kept"
            return replace(saved, problem=problem)
        return saved

    def hand_out(self) -> None:
        """What is left of full pages, and the tail, as far as the queue has room; the disk is not waited for."""
        self._hand_out_rest()

    def _hand_out_all(self, deadline: float) -> Saved:
        while True:
            done = self._hand_out_rest()
            saved = self._writer.wait(self._account, deadline)
            if done or saved.problem is not None or time.monotonic() >= deadline:
                return saved

    def _hand_out_rest(self) -> bool:
        """Pages, states that were late, the tail; False when the queue has no room for all of that."""
        end = self._cells.writable
        self._hand_out_pages(end)
        self._late = [each for each in self._late if each.length <= end and not self._offer_state(each)]
        start = self._end_on_disk()
        if self._late or end - start >= PAGE_TOKENS:
            return False
        return start >= end or self._offer([(start, end)], self._cells.pages_on_disk) > 0

    def _end_on_disk(self) -> int:
        """Where the closed pages end that the store has: it may have more than this chat may write."""
        count = self._cells.pages_on_disk
        return self._cells.closed(len(self._cells))[count - 1][1] if count else 0

    def _offer_state(self, snapshot: Snapshot) -> bool:
        try:
            rows = self._cells.memory.state_rows(snapshot.blob)
        except KvchatError as error:
            self.refuse(error)
            return False
        groups = (NewRows("state", rows.shape.layers, 1, tuple(rows.payload())),)
        page = _page_start(snapshot)
        return self._hand_out(page // PAGE_TOKENS, page, snapshot.length, groups, kind="checkpoint")

    def _waiting_pages(self, end: int) -> int:
        return len(self._cells.closed(end)) - self._cells.pages_on_disk

    def _hand_out_pages(self, end: int) -> None:
        """Every closed page of the first `end` tokens that is not on disk yet."""
        closed = self._cells.closed(end)
        while pages := closed[self._cells.pages_on_disk :][: self._at_once]:
            taken = self._offer(pages, self._cells.pages_on_disk)
            self._cells.pages_on_disk += taken
            if taken < len(pages):
                return

    def _offer(self, pages: Sequence[Range], first: int) -> int:
        """Hand out pages that follow one another, the first of which has the number `first`, and the last may be
        part-filled; how many were taken."""
        began = time.perf_counter()
        try:
            found = self._cells.copy_out(pages[0][0], pages[-1][1])
        except KvchatError as error:
            self.refuse(error)
            return 0
        self._writer.copied(self._account, time.perf_counter() - began)
        for number, (start, end) in enumerate(pages):
            groups = self._groups({part: rows.between(start, end) for part, rows in found.items()})
            if not self._hand_out(first + number, start, end, groups):
                return number
        return len(pages)

    def _groups(self, found: Mapping[Part, Rows]) -> tuple[NewRows, ...]:
        shapes = self._cells.memory.shapes
        groups = []
        for part in self._cells.memory.layout.parts:
            if part != "state" and (layers := shapes[part].layers):
                rows = found.get(part)
                cells, parts = (len(rows.positions), tuple(rows.payload())) if rows is not None else (0, ())
                groups.append(NewRows(part, layers, cells, parts))
        return tuple(groups)

    def _hand_out(self, number: int, start: int, end: int, groups: tuple[NewRows, ...], kind: Kind = "page") -> bool:
        page = NewPage(
            parent=self._cells.history_key(number, start),
            tag=self._cells.tag(start, end) if kind == "page" else "",
            ids=tuple(self._cells.ids[start:end]),
            position=start,
            groups=groups,
            labels=self._labels if kind == "checkpoint" else self._labels | self._next(end),
            seconds=self._cells.seconds_of(start, end) if kind == "page" else 0.0,
            kind=kind,
            after=self._cells.evicted_after(number, start) if kind == "page" else b"",
            apart=self.apart,
        )
        return self._writer.offer(self._account, page, page.payload_bytes)

    def _next(self, end: int) -> dict[str, str]:
        """What the check on resume compares with, where the last decode told it: at the end of an answer, as a rule."""
        logits = None if self._cells.memory.recurrent else self._logits_after(end)
        return {} if logits is None else {NEXT: label(logits)}


def _page_start(snapshot: Snapshot) -> int:
    """Where the page begins in which a state lies."""
    return (snapshot.length - 1) // PAGE_TOKENS * PAGE_TOKENS


def marks(start: int, total: int) -> list[int]:
    """After how many tokens of a prompt its recurrent state is kept, when it is computed from `start` on.

    Before the last token, whose logits another answer wants again; and on the way, so that a long prompt that is
    stopped, or shared in part, is not read from the beginning.
    """
    interval = max(CHECKPOINT_TOKENS, -(-(total - start) // MOST_CHECKPOINTS))
    first = start - start % interval + interval
    return [mark for mark in (*range(first, total - 1, interval), total - 1) if mark > start]


def surplus(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Those, in the order of their tokens, that go so that a chat does not keep too many or too large ones.

    The last two stay: the ends of the last prompt and of its answer. Of the others goes, one by one, the one whose
    neighbours are nearest to each other, so that what stays covers the whole chat.
    """
    kept = list(checkpoints)
    gone: list[Checkpoint] = []
    while len(kept) > 2 and (len(kept) > MOST_CHECKPOINTS or sum(each.bytes for each in kept) > MOST_CHECKPOINT_BYTES):
        ends = [0, *(each.end for each in kept)]
        gaps = [ends[i + 2] - ends[i] for i in range(len(kept) - 2)]
        gone.append(kept.pop(gaps.index(min(gaps))))
    return gone

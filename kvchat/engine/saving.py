"""Pages on their way to the disk: copied out of the cells as they fill, written on a thread of their own.

Owns the writer thread and the page boundaries; must not restore, and never touches llama.cpp from its thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvchat.engine.reuse import Cells
from kvchat.errors import KvchatError
from kvchat.kv.store import PAGE_TOKENS, NewPage, PageStore

BACKLOG = 256 * 2**20  # bytes that may wait for a slow disk before pages stay in the cells for now
PATIENCE = 3.0  # seconds that the end of a turn waits for the disk


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written since the turn began: pages, bytes, and what went wrong."""

    pages: int = 0
    bytes: int = 0
    problem: str | None = None


class PageWriter:
    """The I/O thread. Takes pages, counts what reached the disk, remembers the first problem of a turn."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[NewPage | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._waiting = 0
        self._pages = 0
        self._bytes = 0
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """A turn begins: count from zero, and try again after a problem."""
        with self._changed:
            self._pages = self._bytes = 0
            self._problem = None

    def offer(self, page: NewPage, size: int) -> bool:
        """Queue a page of `size` bytes; False when the disk is behind or refused the last one."""
        with self._changed:
            if self._problem is not None or (self._waiting and self._waiting + size > BACKLOG):
                return False
            self._waiting += size
        self._queue.put(page)
        return True

    def wait(self, deadline: float) -> Saved:
        """Wait until everything is written, or until `deadline` (of time.monotonic())."""
        with self._changed:
            while self._waiting and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return Saved(self._pages, self._bytes, self._problem)

    def refuse(self, problem: str) -> None:
        """Nothing more is taken in this turn, and the turn says why."""
        with self._changed:
            self._problem = self._problem or problem

    def close(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._store.tidy()
        while (page := self._queue.get()) is not None:
            written, problem = 0, None
            if self._problem is None:
                try:
                    written = self._store.put(page)
                except KvchatError as error:
                    problem = error.message
                except (ValueError, MemoryError) as error:  # a page that cannot be must not end the thread
                    problem = f"a page could not be made: {error!r}"
            with self._changed:
                self._waiting -= page.payload_bytes
                self._pages += bool(written)
                self._bytes += written
                self._problem = self._problem or problem
                self._changed.notify_all()


class Saver:
    """Cuts what the cells hold into pages and hands them to the writer."""

    def __init__(self, cells: Cells, writer: PageWriter, store: PageStore, labels: Mapping[str, str]) -> None:
        self._cells = cells
        self._writer = writer
        self._store = store
        self._labels = dict(labels)

    def begin(self) -> None:
        """A turn begins, its restore is over: the chain that the cells hold now is not to be evicted."""
        self._writer.begin()
        self._store.protect([self._cells.history_key(page) for page in range(len(self._cells) // PAGE_TOKENS + 1)])

    def advance(self, end: int) -> None:
        """Hand out every full page of the first `end` tokens that is not on disk yet, as far as the disk keeps up."""
        while (self._cells.pages_on_disk + 1) * PAGE_TOKENS <= min(end, len(self._cells)):
            start = self._cells.pages_on_disk * PAGE_TOKENS
            if not self._offer(start, start + PAGE_TOKENS):
                return
            self._cells.page_saved()

    def finish(self) -> Saved:
        """The end of a turn: what is left of full pages, the tail, and the count of what was written."""
        deadline = time.monotonic() + PATIENCE
        saved = self._hand_out_all(deadline)
        left = len(self._cells) - self._cells.pages_on_disk * PAGE_TOKENS
        if saved.problem is None and left >= PAGE_TOKENS:
            return replace(saved, problem=f"the disk is too slow, {left} tokens wait for the next turn")
        return saved

    def _hand_out_all(self, deadline: float) -> Saved:
        while True:
            self.advance(len(self._cells))
            start = self._cells.pages_on_disk * PAGE_TOKENS
            behind = len(self._cells) - start >= PAGE_TOKENS
            if not behind and start < len(self._cells):
                self._offer(start, len(self._cells))
            saved = self._writer.wait(deadline)
            if not behind or saved.problem is not None or time.monotonic() >= deadline:
                return saved

    def _offer(self, start: int, end: int) -> bool:
        try:
            state = self._cells.copy_out(start, end)
        except KvchatError as error:
            self._writer.refuse(error.message)
            return False
        page = NewPage(
            parent=self._cells.history_key(start // PAGE_TOKENS),
            tag="",
            ids=tuple(self._cells.ids[start:end]),
            position=start,
            layers=state.layers,
            parts=tuple(state.payload_parts()),
            labels=self._labels,
            seconds=self._cells.seconds_of(start, end),
        )
        return self._writer.offer(page, page.payload_bytes)

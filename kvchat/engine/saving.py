"""Pages on their way to the disk: copied out of the cells as they fill, written on a thread of their own.

Owns the writer thread and the page boundaries; must not restore, and never touches llama.cpp from its thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.engine.reuse import Cells, chain
from kvchat.errors import KvchatError
from kvchat.formats.page import chain_tokens
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

    def drain(self) -> Saved:
        """Wait, not for ever, until everything is written."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while self._waiting and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return Saved(self._pages, self._bytes, self._problem)

    def refuse(self, problem: str) -> None:
        """Nothing more is taken in this turn, and the turn says why."""
        with self._changed:
            self._problem = self._problem or problem

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while (page := self._queue.get()) is not None:
            written, problem = 0, None
            if self._problem is None:
                try:
                    written = self._store.put(page)
                except KvchatError as error:
                    problem = error.message
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
        self._keys: list[bytes] = []

    def begin(self) -> None:
        """A turn begins, its restore is over: the chain that the cells hold now is not to be evicted."""
        self._writer.begin()
        self._keys = chain(self._store.namespace.root, self._cells.ids)
        self._store.protect(self._keys)

    def advance(self) -> None:
        """Hand out every full page that is not on disk yet, as far as the disk keeps up."""
        while (self._cells.pages_on_disk + 1) * PAGE_TOKENS <= len(self._cells):
            start = self._cells.pages_on_disk * PAGE_TOKENS
            if not self._offer(start, start + PAGE_TOKENS):
                return
            self._cells.page_saved()

    def finish(self) -> Saved:
        """The end of a turn: what is left of full pages, the tail, and the count of what was written."""
        self.advance()
        start = self._cells.pages_on_disk * PAGE_TOKENS
        if start < len(self._cells) < start + PAGE_TOKENS:
            self._offer(start, len(self._cells))
        return self._writer.drain()

    def _offer(self, start: int, end: int) -> bool:
        try:
            state = self._cells.copy_out(start, end)
        except KvchatError as error:
            self._writer.refuse(error.message)
            return False
        page = NewPage(
            parent=self._parent(start),
            tag="",
            ids=tuple(self._cells.ids[start:end]),
            position=start,
            layers=state.layers,
            parts=tuple(state.payload_parts()),
            labels=self._labels,
            seconds=self._cells.seconds_of(start, end),
        )
        return self._writer.offer(page, page.payload_bytes)

    def _parent(self, start: int) -> bytes:
        """Key of the page that ends where `start` is; hashes only pages that filled since the last one."""
        while len(self._keys) <= start // PAGE_TOKENS:
            first = (len(self._keys) - 1) * PAGE_TOKENS
            self._keys.append(chain_tokens(self._keys[-1], "", self._cells.ids[first : first + PAGE_TOKENS]))
        return self._keys[start // PAGE_TOKENS]

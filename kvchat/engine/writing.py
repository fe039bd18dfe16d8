"""The thread that writes pages.

Owns the thread, its queue, and for each place with a chat the count of what reached the disk and the pages that are not
to be evicted; must not know cells, and never touches llama.cpp.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from kvchat.errors import KvchatError
from kvchat.kv.store import NewPage, PageStore

BACKLOG = 256 * 2**20  # bytes that may wait for a slow disk before pages stay in the cells for now


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written since the turn began: pages, bytes, what went wrong, and the seconds that copying rows out of
    the cells and writing them took."""

    pages: int = 0
    bytes: int = 0
    problem: str | None = None
    seconds: float = 0.0


class Account:
    """What was handed to the writer from one place since its turn began."""

    def __init__(self) -> None:
        self.waiting = 0  # bytes
        self.saved = Saved()

    @property
    def problem(self) -> str | None:
        """Why nothing more is taken in this turn."""
        return self.saved.problem


class PageWriter:
    """The I/O thread. Takes pages, counts what reached the disk, remembers the first problem of a turn."""

    def __init__(self, store: PageStore, shaped: Callable[[NewPage], NewPage] | None = None) -> None:
        """`shaped`: makes of a page the one that is written, where pages lie in other cache types than the cells."""
        self._store = store
        self._shaped = shaped
        self._queue: queue.SimpleQueue[tuple[NewPage, Account] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._waiting = 0
        self._protected: dict[Account, Collection[bytes]] = {}
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        self._thread.start()

    def begin(self, account: Account) -> None:
        """A turn begins: count from zero, and try again after a problem."""
        with self._changed:
            account.saved = Saved()

    def protect(self, account: Account, keys: Collection[bytes]) -> None:
        """These pages are not to be evicted, in place of those that were told of this place before."""
        self._protected[account] = keys
        self._store.protect([key for each in self._protected.values() for key in each])

    def let_go(self, account: Account) -> None:
        """Nothing of this place is protected any more, from the next `protect` of any place on."""
        self._protected.pop(account, None)

    def offer(self, account: Account, page: NewPage, size: int) -> bool:
        """Queue a page of `size` bytes; False when the disk is behind or refused the last one."""
        with self._changed:
            if account.problem is not None or (self._waiting and self._waiting + size > BACKLOG):
                return False
            self._waiting += size
            account.waiting += size
        self._queue.put((page, account))
        return True

    def wait(self, account: Account, deadline: float) -> Saved:
        """Wait until everything is written, or until `deadline` (of time.monotonic())."""
        with self._changed:
            while account.waiting and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return account.saved

    def drain(self, deadline: float) -> None:
        """Wait until everything is written, of all places, or until `deadline` (of time.monotonic())."""
        with self._changed:
            while self._waiting and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def copied(self, account: Account, seconds: float) -> None:
        """Copying rows out of the cells took so long."""
        with self._changed:
            account.saved = replace(account.saved, seconds=account.saved.seconds + seconds)

    def refuse(self, account: Account, problem: str) -> None:
        """Nothing more is taken in this turn, and the turn says why."""
        with self._changed:
            account.saved = replace(account.saved, problem=account.problem or problem)

    def close(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._store.tidy()
        while self._carry_out(self._queue.get()):
            pass  # no page is held here while none waits: it is a view of all that was copied out of the cells with it

    def _carry_out(self, job: tuple[NewPage, Account] | None) -> bool:
        """Write a page and count it. False: that was the end."""
        if job is None:
            return False
        page, account = job
        written, problem, began = 0, None, time.perf_counter()
        if account.problem is None:
            try:
                written = self._store.put(self._shaped(page) if self._shaped is not None else page)
            except KvchatError as error:
                problem = error.message
            except (ValueError, MemoryError) as error:  # a page that cannot be must not end the thread
                problem = f"a page could not be made: {error!r}"
        with self._changed:
            self._waiting -= page.payload_bytes
            account.waiting -= page.payload_bytes
            before, took = account.saved, time.perf_counter() - began
            account.saved = Saved(
                before.pages + bool(written),
                before.bytes + written,
                before.problem or problem,
                before.seconds + took,
            )
            self._changed.notify_all()
        return True

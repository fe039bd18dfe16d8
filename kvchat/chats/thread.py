"""StoreThread: the one thread on which the chats are read and written. Owns the ChatStore and what waits to be written.

Must not know what a job does. Jobs run in the order of the time at which they are due, those of the same time in the
order in which they were given: a debounced change is never overtaken by a later `run` that was due after it.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.errors import KvchatError

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS = 5.0
INCOGNITO_GONE = "What was incognito is gone."  # said at the end
_REMEMBERED = 60.0  # seconds after which the last write of a key no longer delays the next one


@dataclass(order=True, slots=True)
class _Job:
    due: float
    number: int
    call: Callable[[ChatStore], Any] = field(compare=False)
    future: Future[Any] = field(compare=False)
    key: str | None = field(compare=False, default=None)
    replaced: bool = field(compare=False, default=False)


def _nothing(_store: ChatStore) -> None:
    """What a job does whose place another one took."""


class StoreThread:
    """Runs jobs on the store at `path`, which is opened by the first of them; None: one in memory, for incognito chats.
    Methods may be called on any thread.

    `on_failure` hears, on the store thread, of changes that nobody waits for and that could not be written, once
    per key until it works again. Those that may work later (a full disk) are tried again every RETRY_SECONDS, unless
    a newer change of the same key takes their place, and a last time by `close`: what fails then is told again, and is
    lost.
    """

    def __init__(self, path: Path | None, on_failure: Callable[[KvchatError], None]) -> None:
        self._path = path
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._jobs: list[_Job] = []
        self._waiting: dict[str, _Job] = {}
        self._written: dict[str, float] = {}  # when the last change of a key was written, while that matters
        self._failing: dict[str, KvchatError] = {}
        self._numbers = itertools.count()
        self._closing = False
        self._store: ChatStore | None = None
        self._thread = threading.Thread(target=self._loop, name="chat store", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # the thread is a daemon; an app that ends without close must not lose words

    @property
    def incognito(self) -> bool:
        """Whether nothing of it is on disk, and all of it is gone once it is closed."""
        return self._path is None

    def run(self, job: Callable[Concatenate[ChatStore, P], T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs `job(store, ...)`. What it returns or raises comes out of the future."""
        future: Future[T] = Future()
        with self._changed:
            self._push(_Job(time.monotonic(), next(self._numbers), lambda store: job(store, *args, **kwargs), future))
        return future

    def debounce(
        self,
        key: str,
        seconds: float,
        job: Callable[Concatenate[ChatStore, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Runs `job(store, ...)` at most `seconds` from now, and at once if the last one of this `key` was that long
        ago; a newer call with the same key takes the place of one that still waits."""
        with self._changed:
            now = time.monotonic()
            due = max(now, self._written.get(key, now - seconds) + seconds)
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.replaced = True
                waiting.call = _nothing  # until it is due it would hold what it was to write
            self._push(self._debounced(key, due, lambda store: job(store, *args, **kwargs)))

    def failure(self, key: str) -> KvchatError | None:
        """Why the last debounced change of this key is not on disk. None: it is, or was not tried yet; after `close`,
        that it is."""
        with self._changed:
            return self._failing.get(key)

    def close(self) -> None:
        """Writes everything that waits, closes the store and ends the thread. Nothing can be run afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        atexit.unregister(self.close)

    # ------------------------------------------------------------------ with the lock held

    def _push(self, job: _Job) -> None:
        if self._closing:
            raise RuntimeError("the chat store is closed")
        if job.key is not None:
            self._waiting[job.key] = job
        heapq.heappush(self._jobs, job)
        self._changed.notify()

    def _debounced(self, key: str, due: float, call: Callable[[ChatStore], Any]) -> _Job:
        job = _Job(due, next(self._numbers), call, Future(), key)
        job.future.add_done_callback(partial(self._settle, job))
        return job

    def _next(self) -> _Job | None:
        """Waits for the next job that is due (when closing, all are). None when there will be none."""
        while True:
            while self._jobs and self._jobs[0].replaced:
                heapq.heappop(self._jobs)
            now = time.monotonic()
            if self._jobs and (self._closing or self._jobs[0].due <= now):
                job = heapq.heappop(self._jobs)
                if job.key is not None:
                    del self._waiting[job.key]
                return job
            if self._closing:
                return None
            self._changed.wait(self._jobs[0].due - now if self._jobs else None)

    # ------------------------------------------------------------------ on the store thread

    def _loop(self) -> None:
        while True:
            with self._changed:
                job = self._next()
            if job is None:
                break
            if job.future.set_running_or_notify_cancel():
                self._perform(job)
        if self._store is not None:
            self._store.close()

    def _perform(self, job: _Job) -> None:
        try:
            if self._store is None:
                self._store = ChatStore(self._path)
            result = job.call(self._store)
        except BaseException as error:  # noqa: BLE001 (it belongs to whoever holds the future, as in an executor)
            job.future.set_exception(error)
        else:
            job.future.set_result(result)
        job.call = _nothing  # future and job know each other: it would hold what was written until they are collected

    def _settle(self, job: _Job, future: Future[Any]) -> None:
        """After a debounced job: remembers its time, or reports why it failed."""
        key = job.key
        assert key is not None
        error = future.exception()
        with self._changed:
            now = time.monotonic()
            self._written = {k: at for k, at in self._written.items() if now - at < _REMEMBERED} | {key: now}
            if isinstance(error, NotSavedError) and key not in self._waiting and not self._closing:
                self._push(self._debounced(key, now + RETRY_SECONDS, job.call))
            told = self._failing.pop(key, None) is not None and not self._closing
            problem = None if error is None else _explained(error)
            if problem is not None:
                self._failing[key] = problem
        if problem is not None and not told:
            self._on_failure(problem)


def _explained(error: BaseException) -> KvchatError:
    if isinstance(error, KvchatError):
        return error
    return KvchatError(f"a change could not be saved: {error!r}", "this is a bug in kvchat; please report it")

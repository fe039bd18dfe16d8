"""The one question that long native calls ask: shall I stop? Owns the flags; must not act on them.

Set on the inbox thread, asked on the engine thread and on llama.cpp's compute threads.
"""

from __future__ import annotations

import threading


class Interrupt:
    """Cancelled turns and the end of the process, as flags that cost nothing to read."""

    def __init__(self) -> None:
        self._closing = False
        self._cancelled: set[str] = set()
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._stop = False

    def close(self) -> None:
        """The pipe is gone: whatever runs must end."""
        with self._lock:
            self._closing = self._stop = True

    def cancel(self, turn: str) -> None:
        with self._lock:
            self._cancelled.add(turn)
            self._look()

    def begin(self, turn: str) -> None:
        """This turn runs, beside others perhaps: when it is cancelled, what is being computed stops."""
        with self._lock:
            self._running.add(turn)
            self._look()

    def end(self, turn: str) -> None:
        with self._lock:
            self._running.discard(turn)
            self._cancelled.discard(turn)
            self._look()

    def _look(self) -> None:
        self._stop = self._closing or not self._running.isdisjoint(self._cancelled)

    def is_cancelled(self, turn: str) -> bool:
        """Whether this turn is to end: it was cancelled, or everything ends."""
        with self._lock:
            return self._closing or turn in self._cancelled

    @property
    def closing(self) -> bool:
        return self._closing

    def __call__(self) -> bool:
        return self._stop

"""The one question that long native calls ask: shall I stop? Owns the flags; must not act on them.

Set on the inbox thread, read on the engine thread and by native code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Flag:
    """One byte, 1 or 0: native code reads it where it lies (see llama_abort), Python by a call."""

    def __init__(self) -> None:
        self.memory = bytearray(2)  # the second byte stays 0

    def set(self, value: bool) -> None:
        """For any thread."""
        self.memory[0] = value

    def __call__(self) -> bool:
        return bool(self.memory[0])


class Interrupt:
    """Cancelled turns and the end of the process. `stop`: whether what is being computed shall be broken off."""

    def __init__(self) -> None:
        self._flag = Flag()
        self.stop: Callable[[], bool] = self._flag
        self._closing = False
        self._cancelled: set[str] = set()
        self._running: set[str] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """The pipe is gone: whatever runs must end."""
        with self._lock:
            self._closing = True
            self._look()

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
        self._flag.set(self._closing or not self._running.isdisjoint(self._cancelled))

    def is_cancelled(self, turn: str) -> bool:
        """Whether this turn is to end: it was cancelled, or everything ends."""
        with self._lock:
            return self._closing or turn in self._cancelled

    @property
    def closing(self) -> bool:
        return self._closing

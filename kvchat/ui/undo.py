"""What can be taken back, and what is said of it. Owns the last thing that was deleted; must not know what it was."""

from __future__ import annotations

import math
from collections.abc import Callable

from kvchat.ui.key_hints import key_text
from kvchat.ui.keys import Keys


class Undo:
    """One offer at a time: a newer one takes the place of the last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, monotonic."""
        self._clock = clock
        self._back: Callable[[], object] | None = None
        self._until = math.inf

    def offer(self, back: Callable[[], object], seconds: float = math.inf) -> None:
        """`back` takes back what was just done, for so long."""
        self._back, self._until = back, self._clock() + seconds

    def take(self) -> bool:
        """Take it back; False when there is nothing that can be."""
        back, self._back = self._back, None
        if back is None or self._clock() > self._until:
            return False
        back()
        return True


def way_back(name: str, keys: Keys) -> str:
    """What is told of the undo; `name` is the action that does it where the keyboard is, "" where keys are text."""
    key = key_text(name, keys) if name else ""
    return f"{key} or /undo brings it back." if key else "/undo brings it back."

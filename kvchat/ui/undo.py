"""What can be taken back. Owns the last thing that was deleted; must not know what it was."""

from __future__ import annotations

import math
from collections.abc import Callable


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

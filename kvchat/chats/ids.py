"""ULIDs: the names of chats, messages and turns. Owns their order; must not touch a database.

26 characters of Crockford's base 32: 48 bits of milliseconds since the epoch, 80 random bits
(https://github.com/ulid/spec). Those of one process ascend strictly, also within a millisecond and when the clock is
set back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_LENGTH = 26


class UlidSource:
    """Makes ULIDs; may be called on any thread. `clock` gives seconds since the epoch, `entropy` n random bytes."""

    def __init__(self, clock: Callable[[], float] = time.time, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> str:
        with self._lock:
            milliseconds = int(self._clock() * 1000)
            if milliseconds > self._last >> _RANDOM_BITS:
                random = int.from_bytes(self._entropy(_RANDOM_BITS // 8), "big")
                self._last = milliseconds << _RANDOM_BITS | random
            else:
                self._last += 1
            value = self._last
        return "".join(_ALPHABET[value >> 5 * place & 31] for place in reversed(range(_LENGTH)))


new_ulid = UlidSource()

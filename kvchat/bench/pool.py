"""Prompts of any length, as token ids, no two of which begin alike. Owns the ids; must not know what is measured."""

from __future__ import annotations

from collections.abc import Sequence

_STRIDE = 97  # between the beginnings of two prompts, in tokens: without a common divisor with most lengths


class Pool:
    """Cuts prompts out of a text that goes round."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = tuple(ids)
        self._next = 0

    def fresh(self, count: int) -> tuple[int, ...]:
        """So many ids, beginning elsewhere than any before."""
        start, size = self._next % len(self._ids), len(self._ids)
        self._next += _STRIDE
        return tuple(self._ids[(start + i) % size] for i in range(count))

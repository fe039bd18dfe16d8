"""How fast this engine is, as measured in its own turns. Owns the averages; must not measure anything itself."""

from __future__ import annotations

from kvchat.backend.values import Usage

WEIGHT = 0.5  # of the newest turn in the average
FEWEST = 16  # tokens; below that the fixed cost of a step hides the speed


class Speed:
    """Running averages in tokens per second; None until there was a turn to learn from."""

    def __init__(self) -> None:
        self._prefill: float | None = None
        self._restore: float | None = None

    def learn(self, usage: Usage) -> None:
        """Take in one turn."""
        if usage.computed >= FEWEST and usage.prefill_seconds > 0:
            self._prefill = _average(self._prefill, usage.computed / usage.prefill_seconds)
        restored = usage.pages + usage.checkpoint
        if restored >= FEWEST and usage.restore_seconds > 0:
            self._restore = _average(self._restore, restored / usage.restore_seconds)

    def first_token(self, restored: int, computed: int) -> float | None:
        """Seconds until the first token of a prompt, None when no prompt was computed yet."""
        if self._prefill is None:
            return None
        return computed / self._prefill + (restored / self._restore if self._restore else 0.0)


def _average(old: float | None, new: float) -> float:
    return new if old is None else old * (1 - WEIGHT) + new * WEIGHT

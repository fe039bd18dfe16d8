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
        self._transcode: float | None = None

    def learn(self, usage: Usage) -> None:
        """Take in one turn."""
        if usage.computed >= FEWEST and usage.prefill_seconds > 0:
            self._prefill = _average(self._prefill, usage.computed / usage.prefill_seconds)
        restored = usage.pages + usage.checkpoint
        if restored >= FEWEST and usage.restore_seconds > 0 and usage.transcoded is None:
            self._restore = _average(self._restore, restored / usage.restore_seconds)
        elif restored >= FEWEST and usage.restore_seconds > 0:
            self.learn_transcoding(restored, usage.restore_seconds)

    @property
    def knows_transcoding(self) -> bool:
        """Whether it is known how fast pages of other cache types come."""
        return self._transcode is not None

    def learn_transcoding(self, tokens: int, seconds: float) -> None:
        """So many tokens came from pages of other cache types."""
        self._transcode = _average(self._transcode, tokens / seconds)

    def first_token(self, restored: int, computed: int, transcoded: int = 0) -> float | None:
        """Seconds until the first token of a prompt, None when it needs computing and none was computed yet. Of the
        restored tokens `transcoded` are of other cache types."""
        if self._prefill is None and computed:
            return None
        seconds = computed / self._prefill if self._prefill else 0.0
        seconds += transcoded / self._transcode if self._transcode else 0.0
        return seconds + ((restored - transcoded) / self._restore if self._restore else 0.0)


def _average(old: float | None, new: float) -> float:
    return new if old is None else old * (1 - WEIGHT) + new * WEIGHT

"""How fast something comes and how long it will take, in numbers and words. Must not know what comes."""

from __future__ import annotations

from collections import deque

_WINDOW = 8.0  # seconds that count: a pause is forgotten, a moment is not the rule
_LEAST = 0.5


class Pace:
    """Told from time to time how much is there; all moments are in seconds of one clock."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, int]] = deque()

    def note(self, done: int, now: float) -> None:
        """So many bytes are there now."""
        if self._noted and done < self._noted[-1][1]:  # begun anew
            self._noted.clear()
        self._noted.append((now, done))
        while len(self._noted) > 2 and self._noted[1][0] < now - _WINDOW:
            self._noted.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes a second; None: not known yet."""
        if not self._noted:
            return None
        (begun, before), (now, done) = self._noted[0], self._noted[-1]
        return (done - before) / (now - begun) if now - begun >= _LEAST else None

    def left(self, total: int | None) -> float | None:
        """Seconds until `total` bytes are there; None: not known."""
        rate = self.rate
        if total is None or not rate:
            return None
        return max(0, total - self._noted[-1][1]) / rate


def progress_words(done: int, total: int | None, pace: Pace) -> str:
    """What is there of all (bytes), how fast it comes, how long it will take: "42%  1.0 GiB of 2.3 GiB  35 MiB/s"."""
    there = size_words(done) + (f" of {size_words(total)}" if total else "")
    parts = [f"{100 * done // total:3d}%" if total else "", there]
    rate, left = pace.rate, pace.left(total)
    if rate is not None:
        parts.append(f"{size_words(int(rate))}/s")
    if left is not None and done != total:
        parts.append(f"{_clock(left)} left")
    return "  ".join(filter(None, parts))


def size_words(size: int) -> str:
    """Bytes for a message: "1.5 GiB", "12 MiB", "300 KiB"."""
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f} GiB"
    return f"{size / (1 << 20):.0f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):.0f} KiB"


def _clock(seconds: float) -> str:
    """A span of time: "0:05", "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

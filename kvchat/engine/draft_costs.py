"""What checking drafts costs: seconds of a decode of n tokens against a decode of one.

Owns the cost curve and the time of a plain step; plain values, measured by others. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.kv.fit import OUTPUTS

MOST_TOKENS = OUTPUTS  # of one verification: the last token of the text and the drafted ones
_SLOPE_CPU, _SLOPE_GPU = 0.5, 0.05  # cost of one token more before anything was measured
_LEAST_SLOPE = 0.01
_MOST_CORRECTION = 20.0  # by a first measurement of what is only assumed of a GPU; on a CPU it is an outlier
_WEIGHT = 0.2  # of the newest measurement in an average
_PLAIN_WEIGHT = 0.1
_OUTLIER = 2.5  # a measurement counts at most so much more than the average: another program had the processor


class CostCurve:
    """c(n): the cost of decoding n tokens at once, relative to one; measured before, and corrected as steps come."""

    def __init__(self, measured: Sequence[float] = (), *, on_gpu: bool = False) -> None:
        """`measured`: c(1), c(2), ... as `complete` makes them; empty: not measured, a straight line is assumed."""
        slope = _SLOPE_GPU if on_gpu else _SLOPE_CPU
        line = [1.0 + slope * n for n in range(MOST_TOKENS)]
        given = [*measured[:MOST_TOKENS], *line[len(measured) :]]
        self._curve = [max(cost, 1.0 + _LEAST_SLOPE * n) for n, cost in enumerate(given)]
        self._correction: dict[int, float] = {}
        self._most = _MOST_CORRECTION if on_gpu and not measured else _OUTLIER

    def at(self, tokens: int) -> float:
        """c(n) for 1 to MOST_TOKENS tokens. Where n itself was not seen yet the nearest one that was corrects it."""
        if tokens == 1:
            return 1.0
        nearest = min(self._correction, key=lambda n: abs(n - tokens), default=None)
        scale = 1.0 if nearest is None else self._correction[nearest]
        return 1.0 + (self._curve[tokens - 1] - 1.0) * scale

    def learn(self, tokens: int, ratio: float) -> None:
        """A decode of so many tokens took `ratio` times as long as a plain one."""
        if not 1 < tokens <= MOST_TOKENS:
            return
        seen = max(0.0, ratio - 1.0) / (self._curve[tokens - 1] - 1.0)
        before = self._correction.get(tokens)
        if before is None:
            self._correction[tokens] = 0.5 + 0.5 * min(seen, self._most)
        else:
            self._correction[tokens] = before + _WEIGHT * (min(seen, _OUTLIER * max(before, 0.2)) - before)


class PlainStep:
    """Seconds of a plain step, as deep in the chat as it now is: a decayed mean."""

    def __init__(self) -> None:
        self.seconds = 0.0  # 0: not measured yet
        self.age = 0  # verifications since the last plain step

    def learn(self, seconds: float, *, first: bool) -> None:
        """A plain step. `first`: of a turn, where the chat may be another and its depth, too."""
        self.age = 0
        if not self.seconds:
            self.seconds = seconds
            return
        weight = 0.4 if first else _PLAIN_WEIGHT
        self.seconds += weight * (min(seconds, _OUTLIER * self.seconds) - self.seconds)


def complete(points: dict[int, float]) -> tuple[float, ...]:
    """c(1) to c(MOST_TOKENS) from some measured points (n -> c(n)): straight lines between them, and beyond the last
    one; never falling. Empty without points."""
    if not points:
        return ()
    known = sorted({1: 1.0, **points}.items())
    curve: list[float] = []
    for n in range(1, MOST_TOKENS + 1):
        right = next((i for i, (at, _) in enumerate(known) if at >= n), len(known) - 1)
        (x0, y0), (x1, y1) = known[max(right - 1, 0)], known[max(right, 1)]
        value = y0 + (y1 - y0) * (n - x0) / (x1 - x0)
        curve.append(max(value, curve[-1] if curve else 1.0))
    return tuple(round(value, 3) for value in curve)

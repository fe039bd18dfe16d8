"""How many tokens of prompts are read in a step beside running answers: what reading may slow these down.

Owns the measurements that this needs. A step with answers alone is the measure, as it is by now: what was read makes
it slower, too, since attention runs over the cells of all chats. FACTORS say how much longer than that a token may take
on average while something is read, such that it takes about twice as long as without the prompt with "answers" and four
times with "balanced"; "prompts" reads as much as a batch can. What a step takes is no line: on a CPU two tokens cost
twice as much as one, four hardly more than two. So sizes are tried, and a step that took too long is made up for by
steps without reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backend.values import Favour

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # tokens of prompts in a step
FACTORS: dict[Favour, float] = {"answers": 1.6, "balanced": 3.0}
_WEIGHT = 0.3  # of the newest measurement
_AGAIN = 64  # steps after which answers are measured alone once more: they get slower as they get longer
_ENOUGH = 3  # measurements of a size before another one is tried
_LARGER, _SMALLER = 0.7, 1.3  # of what a step may take: below, above
_MOST_DEBT = 8.0  # steps without reading in a row, so that a prompt does not wait for ever


@dataclass(slots=True)
class Mean:
    """A moving mean of seconds."""

    seconds: float = 0.0
    count: int = 0

    def learn(self, seconds: float) -> None:
        """One more measurement."""
        weight = _WEIGHT if self.count else 1.0
        self.seconds += weight * (seconds - self.seconds)
        self.count += 1


class Pace:
    """One of a session. `quota` before a step, `learn` after it."""

    def __init__(self) -> None:
        self._alone: dict[int, Mean] = {}  # a step by the number of answers in it
        self._size = 0  # index of SIZES
        self._taken = Mean()  # by a step with that size
        self._debt = 0.0  # seconds that reading took too much
        self._since = 0

    def quota(self, favour: Favour, answers: int, most: int) -> int:
        """Tokens of prompts beside so many answers; 0: none this time, for the sake of the answers."""
        if favour not in FACTORS:
            return most
        if answers not in self._alone or self._since >= _AGAIN or self._debt > 0:
            return 0
        return min(most, SIZES[self._size])

    def learn(self, favour: Favour, answers: int, read: int, seconds: float) -> None:
        """A step with so many answers, which read so many tokens of prompts, took `seconds`."""
        if not answers or favour not in FACTORS:
            return
        alone = self._alone.setdefault(answers, Mean())
        if not read:
            alone.learn(seconds)
            self._since = 0
            self._debt -= (FACTORS[favour] - 1.0) * alone.seconds
            return
        self._since += 1
        allowed = FACTORS[favour] * alone.seconds
        self._debt = min(max(0.0, self._debt) + seconds - allowed, _MOST_DEBT * alone.seconds)
        if alone.count and read == SIZES[self._size]:
            self._taken.learn(seconds)
            self._adapt(allowed)

    def _adapt(self, allowed: float) -> None:
        if self._taken.count < _ENOUGH:
            return
        step = (self._taken.seconds < _LARGER * allowed) - (self._taken.seconds > _SMALLER * allowed)
        size = min(max(0, self._size + step), len(SIZES) - 1)
        if size != self._size:
            self._size, self._taken = size, Mean()

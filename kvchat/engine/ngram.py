"""Drafts from what was said before: the tokens that followed the same last tokens earlier in the chat.

Owns the index of the chat's n-grams, which grows with the chat, and follows it when it is cut. Must not compute
anything with a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvchat.engine.cells import common
from kvchat.engine.drafting import Draft, DrafterKind, Reach
from kvchat.formats.past import Eviction

GRAMS = (2, 4, 10)  # lengths of n-grams that are indexed
LONGEST = 32  # tokens of a match that are looked at
CANDIDATES = 16  # earlier places, the most recent ones, that are compared for a length
BOUNDS = (3, 4, 6, 9, 16)  # lengths of a match from which on the next class of trust begins


class NgramIndex:
    """Where in `ids` each n-gram stood last, and where before that."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._last: dict[int, dict[int, int]] = {n: {} for n in GRAMS}  # hash of an n-gram -> what follows it, last
        self._before: dict[int, list[int]] = {n: [] for n in GRAMS}  # position -> the same before it, or -1

    def follow(self, ids: Sequence[int]) -> None:
        """Hold `ids` from now on. What they share with those from before is kept."""
        self.cut(common(self.ids, ids))
        self.grow(ids)

    def grow(self, ids: Sequence[int]) -> None:
        """Hold `ids`, which begin with those from before."""
        for position in range(len(self.ids), len(ids)):
            for n in GRAMS:  # the n-gram in front of this token
                key = self._key(n, position)
                self._before[n].append(self._last[n].get(key, -1) if key is not None else -1)
                if key is not None:
                    self._last[n][key] = position
            self.ids.append(ids[position])

    def cut(self, length: int) -> None:
        """Hold only the first `length` ids."""
        for position in range(len(self.ids) - 1, length - 1, -1):
            self.ids.pop()
            for n in GRAMS:
                before, key = self._before[n].pop(), self._key(n, position)
                if key is None:
                    continue
                if before < 0:
                    del self._last[n][key]
                else:
                    self._last[n][key] = before

    def longest(self) -> tuple[int, int]:
        """The longest match of the end of the ids, and of several the most recent: its length, at most LONGEST, and the
        position that followed it. (0, 0): there is none."""
        best, at = 0, 0
        for n in reversed(GRAMS):
            for position in self._places(n):
                length = self._length(position)
                if length > best:
                    best, at = length, position
            if best >= n:
                break
        return best, at

    def _places(self, n: int) -> Iterator[int]:
        key = self._key(n, len(self.ids))
        position = self._last[n].get(key, -1) if key is not None else -1
        for _ in range(CANDIDATES):
            if position < 0:
                return
            yield position
            position = self._before[n][position]

    def _length(self, position: int) -> int:
        """How many tokens before `position` are the last ones of all."""
        ids, end = self.ids, len(self.ids)
        most = min(position, LONGEST)
        return next((n for n in range(most) if ids[position - 1 - n] != ids[end - 1 - n]), most)

    def _key(self, n: int, end: int) -> int | None:
        return hash(tuple(self.ids[end - n : end])) if end >= n else None


class NgramDrafter:
    """The drafter of kind "ngram". See `Drafter`."""

    kind: DrafterKind = "ngram"
    pair = ""
    share = 0.0
    read_seconds = 0.0

    def __init__(self) -> None:
        self._index = NgramIndex()

    def reach(self, ids: Sequence[int]) -> Reach:
        return Reach(len(ids))

    def evicted(self, log: Sequence[Eviction]) -> None:
        """What was said before is said again, whether the target still sees it or not."""

    def begin(self, ids: Sequence[int]) -> None:
        self._index.follow(ids)

    def behind(self, _ids: Sequence[int]) -> int:
        return 0

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        """What followed the longest and most recent match; where that reaches the end of the text, it goes round."""
        self._index.grow(ids)
        length, at = self._index.longest()
        if length < GRAMS[0]:
            return Draft()
        period = self._index.ids[at : at + most]
        tokens = [period[i % len(period)] for i in range(most)]
        return Draft(tuple(tokens), sum(length >= bound for bound in BOUNDS))

    def finish(self, ids: Sequence[int]) -> None:
        self._index.follow(ids)

    def close(self) -> None:
        self._index = NgramIndex()

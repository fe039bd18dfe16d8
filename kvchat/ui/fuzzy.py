"""Which of many names a few typed letters mean. Pure; must not know what the names are for.

Best first: names that begin with the letters, then those in which a word does, then those that contain them, then those
that have them in order. Case counts only where the person typed a capital.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_WORD_START = re.compile(r"(?:^|(?<=[\s/_.\-]))(?=[^\s/_.\-])|(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Match:
    """`index` of the name, and which of its characters were meant."""

    index: int
    marks: tuple[int, ...]


def rank(query: str, names: Sequence[str], most: int) -> list[Match]:
    """The names that `query` may mean, the best `most` of them; all in their order for an empty query."""
    if not query:
        return [Match(index, ()) for index in range(min(most, len(names)))]
    exact_case = query != query.lower()
    found: list[tuple[tuple[int, ...], Match]] = []
    for index, name in enumerate(names):
        folded = name if exact_case else name.lower()
        if len(folded) != len(name):  # letters that are longer in lower case would shift the marks
            folded = name
        marks = _marks(query, name, folded)
        if marks is not None:
            found.append(((*_quality(query, name, marks), index), Match(index, marks)))
    found.sort(key=lambda each: each[0])
    return [match for _, match in found[:most]]


def _marks(query: str, name: str, folded: str) -> tuple[int, ...] | None:
    """The characters of the name that the query means; None when it cannot mean it."""
    tail = name.rfind("/") + 1  # of a path, the file is what people type
    for at in (folded.find(query, tail), folded.find(query)):
        if at >= 0:
            start = _better_start(query, folded, at, name)
            return tuple(range(start, start + len(query)))
    return _in_order(query, folded, tail) or _in_order(query, folded, 0)


def _better_start(query: str, folded: str, at: int, name: str) -> int:
    """The first place at or after `at` where the query begins a word; `at` when there is none."""
    place = at
    while place >= 0:
        if _begins_word(name, place):
            return place
        place = folded.find(query, place + 1)
    return at


def _in_order(query: str, folded: str, start: int) -> tuple[int, ...] | None:
    marks: list[int] = []
    at = start
    for letter in query:
        at = folded.find(letter, at) + 1
        if not at:
            return None
        marks.append(at - 1)
    return tuple(marks)


def _begins_word(name: str, at: int) -> bool:
    return _WORD_START.match(name, at) is not None


def _quality(query: str, name: str, marks: tuple[int, ...]) -> tuple[int, ...]:
    """Smaller is better: the kind of match, holes in it, in the file's name or not, the length of the name."""
    start, tail = marks[0], name.rfind("/") + 1
    whole = marks[-1] - start == len(query) - 1
    if whole and start in (0, tail):
        kind = 0
    elif whole:
        kind = 1 if _begins_word(name, start) else 2
    else:
        kind = 3
    starts = sum(_begins_word(name, mark) for mark in marks)
    return kind, marks[-1] - start - len(query) - 2 * starts, 0 if start >= tail else 1, len(name)

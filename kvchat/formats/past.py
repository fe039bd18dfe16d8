"""The history of a sequence: tokens and evictions, in order.

Owns what a history means: which tokens are live after it, where pages begin and end in it, and the key of what was
computed at any point of it. Pure arithmetic over positions and keys; must not know where rows lie.

The keys and values of a token depend on every token that it saw when it was computed. So the identity of what comes
after an eviction is the whole history, the evicted tokens included, and tokens that were kept are never named by
themselves: two chats with equal kept text and other evicted text share nothing after the eviction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Range = tuple[int, int]

READ = "read"
_KEY = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Eviction:
    """When the history had `at` tokens, those at the positions [start, end) of each range left the cells. The ranges
    are in order, disjoint, not empty, and end before the last token: that one tells where the sequence goes on.

    `root`: "" when positions stay; else what is left is a history of its own from then on, with positions from 0 on:
    READ when it was computed again, else the key (hex) of the history whose rows were moved.
    """

    at: int
    ranges: tuple[Range, ...]
    root: str = ""

    @property
    def tokens(self) -> int:
        """How many tokens left."""
        return sum(end - start for start, end in self.ranges)

    @property
    def is_sound(self) -> bool:
        """Whether it is such as described here: what comes from a file may be anything."""
        ends = (0, *(at for part in self.ranges for at in part), self.at - 1)
        in_order = all(start < end for start, end in self.ranges) and list(ends) == sorted(ends)
        return in_order and (self.root in ("", READ) or _KEY.fullmatch(self.root) is not None)


@dataclass(frozen=True, slots=True)
class Past:
    """A history: all tokens that were decoded, and what was evicted on the way, in order. `root`: the key that it
    begins with, empty for the usual one: then the rows of its first `moved` tokens were not computed where they are."""

    ids: Sequence[int]
    evictions: tuple[Eviction, ...] = ()
    root: bytes = b""
    moved: int = 0

    def upto(self, length: int) -> Past:
        """The history when it had `length` tokens, with what was evicted then."""
        evictions = tuple(each for each in self.evictions if each.at <= length)
        return Past(self.ids[:length], evictions, self.root, min(self.moved, length))

    @property
    def anew(self) -> Past:
        """The history of the same tokens when all of them are computed, from the first one on."""
        return Past(self.ids, self.evictions)


@dataclass(frozen=True, slots=True)
class Numbering:
    """From the tokens of a chat's log to the positions of its present history: that holds `kept` of the first `at`
    tokens of the log, and all behind them."""

    kept: tuple[Range, ...] = ()
    at: int = 0

    def position(self, index: int) -> int:
        """Where a token of the log is, or the next one that is there."""
        if index >= self.at:
            return index - self.at + count(self.kept)
        return count(live(0, index, live(0, self.at, self.kept)))

    def index(self, position: int) -> int:
        """Which token of the log a position holds."""
        for start, end in self.kept:
            if position < end - start:
                return start + position
            position -= end - start
        return self.at + position

    def renewed(self, at: int, stay: Sequence[Range]) -> Numbering:
        """The numbering when, after the first `at` positions, only those in `stay` are left and get others."""
        kept = joined(part for start, end in stay for part in self._parts(start, end))
        return Numbering(tuple(kept), self.index(at))

    def logged(self, eviction: Eviction) -> Eviction:
        """An eviction of the present history as the log has it."""
        ranges = joined(part for start, end in eviction.ranges for part in self._parts(start, end))
        return Eviction(self.index(eviction.at), tuple(ranges), eviction.root)

    def _parts(self, start: int, end: int) -> Iterator[Range]:
        """The tokens of the log at positions [start, end)."""
        at = 0
        for low, high in (*self.kept, (self.at, self.at + end)):
            first, last = max(start, at), min(end, at + high - low)
            if first < last:
                yield low + first - at, low + last - at
            at += high - low


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a history without an eviction in it: the tokens [start, end), computed after `before`."""

    start: int
    end: int
    before: tuple[Eviction, ...]


def resolve(ids: Sequence[int], log: Sequence[Eviction]) -> tuple[Past, Numbering]:
    """The present history of a chat with these ids and this log, and where in it each token is."""
    last = max((number for number, each in enumerate(log) if each.root), default=None)
    if last is None:
        return Past(ids, tuple(log)), Numbering()
    at, root = log[last].at, log[last].root
    numbering = Numbering(tuple(live(0, at, dead(log[: last + 1], at))), at)
    kept = [token for start, end in numbering.kept for token in ids[start:end]]
    later = tuple(
        Eviction(
            numbering.position(each.at),
            tuple(joined((numbering.position(start), numbering.position(end)) for start, end in each.ranges)),
        )
        for each in log[last + 1 :]
    )
    past = Past((*kept, *ids[at:]), later)
    return past if root == READ else replace(past, root=bytes.fromhex(root), moved=len(kept)), numbering


def spans(length: int, evictions: Sequence[Eviction]) -> Iterator[Span]:
    """The stretches of a history of `length` tokens, in order; empty ones are left out."""
    start = 0
    before: tuple[Eviction, ...] = ()
    for eviction in evictions:
        if eviction.at > length:
            break
        if eviction.at > start:
            yield Span(start, eviction.at, before)
            start = eviction.at
            before = ()
        before = (*before, eviction)
    if length > start:
        yield Span(start, length, before)


def pages(length: int, evictions: Sequence[Eviction], size: int) -> list[Range]:
    """Where the pages of a history of `length` tokens lie: `size` tokens each from the beginning and from each
    eviction on; the last one before an eviction, and the last one of all, may have fewer."""
    found: list[Range] = []
    for span in spans(length, evictions):
        found += [(at, min(at + size, span.end)) for at in range(span.start, span.end, size)]
    return found


def dead(evictions: Iterable[Eviction], length: int) -> list[Range]:
    """The ranges that a history of `length` tokens has lost, in order, joined where they touch."""
    return joined(each for eviction in evictions if eviction.at <= length for each in eviction.ranges)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same tokens as ranges that are in order and do not touch."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif start < end:
            found.append((start, end))
    return found


def live(start: int, end: int, holes: Sequence[Range]) -> list[Range]:
    """What is left of [start, end) without `holes`, which are in order and disjoint."""
    left: list[Range] = []
    for low, high in holes:
        if high <= start:
            continue
        if low >= end:
            break
        if low > start:
            left.append((start, low))
        start = max(start, high)
    if start < end:
        left.append((start, end))
    return left


def first_live(position: int, holes: Sequence[Range]) -> int:
    """The first position from `position` on that is in none of `holes`, which are in order and disjoint."""
    return next((end for start, end in holes if start <= position < end), position)


def count(ranges: Iterable[Range]) -> int:
    """Tokens in ranges."""
    return sum(end - start for start, end in ranges)


def shared(one: Past, other: Past) -> tuple[int, int]:
    """How many leading tokens of two histories came to be in the same way, and how many of their leading evictions are
    the same. Where one history has an eviction that the other one lacks, what they share ends in front of it."""
    if one.root != other.root:
        return 0, 0
    tokens = _common(one.ids, other.ids)
    for number in range(max(len(one.evictions), len(other.evictions))):
        mine, theirs = (each.evictions[number] if number < len(each.evictions) else None for each in (one, other))
        ends = [each.at for each in (mine, theirs) if each is not None]
        if min(ends) > tokens:
            return tokens, number
        if mine != theirs:
            return min(tokens, *ends), number
    return tokens, len(one.evictions)


def intact(evictions: Sequence[Eviction], kept: int, length: int) -> int:
    """To how many tokens, at most `length`, a history can be cut whose first `kept` evictions shall stand. What an
    eviction took is not there any more, so one cannot go back to a time before it, but to what came before that."""
    stands, undone = list(evictions[:kept]), list(evictions[kept:])
    while True:
        undone += [each for each in stands if each.at > length]
        stands = [each for each in stands if each.at <= length]
        reach = min([length, *(each.ranges[0][0] for each in undone)])
        if reach == length:
            return length
        length = reach


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    length = min(len(one), len(other))
    if list(one[:length]) == list(other[:length]):
        return length
    return next(i for i in range(length) if one[i] != other[i])

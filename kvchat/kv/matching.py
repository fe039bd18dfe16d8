"""The longest prefix that pages hold, token by token.

Owns the walk along the chain keys; must not read page files: the index is believed here and checked at the read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kvchat.formats.page import chain_evict, chain_packed, pack_ids
from kvchat.formats.past import Eviction, Span, dead, live, spans
from kvchat.kv.index import PageIndex
from kvchat.kv.lineage import sources_of, tag_of
from kvchat.kv.rows import Row

PAGE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Hit:
    """A page whose first `take` of `rows` tokens are those at [start, start + take) of the ids that were asked for.

    `ids` are all of its tokens, packed; `seconds` is what computing all of its rows took. Only the last `complete` of
    its tokens have their rows of a window. `namespace` is the one that the page lies in, "" the store's own; rows of
    its first `skip` tokens are taken from another page.
    """

    key: bytes
    parent: bytes
    tag: str
    ids: bytes
    start: int
    rows: int
    take: int
    seconds: float
    complete: int
    namespace: str = ""
    skip: int = 0

    @property
    def first(self) -> int:
        """The first token whose rows are taken from it."""
        return self.start + self.skip

    @property
    def key_after(self) -> bytes:
        """Key of the history after the first `take` tokens."""
        return _key_after(self.parent, self.tag, self.ids, self.take)

    def lacks(self, end: int, window: int) -> bool:
        """Whether the page does not have the rows of a window that the token after the first `end` looks back at."""
        gap = self.start + self.rows - self.complete
        return window > 1 and self.first < gap and end - window + 1 < gap


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A recurrent state after the first `end` of the ids that were asked for; `ids` are the last of them, packed, those
    within one page, and come after the history `parent`."""

    key: bytes
    parent: bytes
    ids: bytes
    end: int
    bytes: int
    seconds: float
    tag: str = ""
    namespace: str = ""

    @property
    def rows(self) -> int:
        return len(self.ids) // 4

    take = rows
    complete = rows
    skip = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A page that is missing, of the tokens [start, end): all of them have left the history when it has `until`."""

    start: int
    end: int
    until: int


@dataclass(frozen=True, slots=True)
class Match:
    """Pages, in order, that hold the first `tokens` of the ids that were asked for, without those that were evicted
    and are missing."""

    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    gaps: tuple[Gap, ...] = ()

    def usable(self, window: int) -> int:
        """The most leading tokens whose next one finds all that it looks back at: rows of the last `window` - 1 tokens
        where layers have a window, 0 where none has. All of them, unless a page lacks rows of the window, or one is
        missing of which something is live when it ends there."""
        end, before = self.tokens, -1
        while end != before:
            before = end
            end = min([end, *(gap.start for gap in self.gaps if gap.start < end < gap.until)])
            for hit in reversed(self.hits):
                if hit.lacks(end, window):
                    end = hit.first
        return end

    def spans(self, namespace: str = "") -> list[tuple[bytes, bytes]]:
        """Of each page in the namespace the history in front of it, and its ids as far as they were matched, packed."""
        return [(hit.parent, hit.ids[: 4 * hit.take]) for hit in self.hits if hit.namespace == namespace]

    def upto(self, end: int) -> Match:
        """The pages of the first `end` tokens."""
        kept = [replace(hit, take=min(hit.take, end - hit.start)) for hit in self.hits if hit.first < end]
        return Match(tuple(kept), min(end, self.tokens), tuple(gap for gap in self.gaps if gap.start < end))

    def followed_by(self, other: Match, namespace: str) -> Match:
        """These pages, and behind them what another namespace holds of the same ids."""
        more = [
            replace(hit, namespace=hit.namespace or namespace, skip=max(0, self.tokens - hit.start))
            for hit in other.hits
            if hit.start + hit.take > self.tokens
        ]
        gaps = (*self.gaps, *(gap for gap in other.gaps if gap.end > self.tokens))
        return Match((*self.hits, *more), max(self.tokens, other.tokens), gaps)

    def reaches(self, end: int, window: int) -> bool:
        """Whether the token after the first `end` finds all that it looks back at. A page may lack what it needs and
        have what a later one needs."""
        gone = any(gap.start < end < gap.until for gap in self.gaps)
        return (
            end <= self.tokens and not gone and not any(hit.lacks(end, window) for hit in self.hits if hit.first < end)
        )


@dataclass(frozen=True, slots=True)
class Detour:
    """What other namespaces hold of a history, around pages that this one never got, since something of them was gone
    when its first rows came: `hits` by their first token, and the source that the rows of each token have here.
    `first`: they come before pages of this namespace that are no longer, as when the cache type changed."""

    hits: Mapping[int, Hit] = field(default_factory=dict)
    sources: Sequence[str] = ()
    first: bool = False


NO_DETOUR = Detour()


def longest_prefix(
    index: PageIndex,
    namespace: str,
    parent: bytes,
    ids: Sequence[int],
    distrusted: Collection[bytes],
    evictions: Sequence[Eviction] = (),
    detour: Detour = NO_DETOUR,
) -> Match:
    """Follow full pages from `parent` on, then take what the best child of the last one has in common. `evictions`:
    those of the history that is wanted; pages of which nothing is live in it need not be there. `detour`: others that
    need not, of which those are among the hits that lead to pages of this namespace.

    Computed rows (the empty tag) win over others that reach as far. Pages in `distrusted` do not exist.
    """
    walk = _Walk(index, namespace, distrusted, [each for each in evictions if each.at <= len(ids)], detour)
    for span in spans(len(ids), evictions):
        for eviction in span.before:
            parent = chain_evict(parent, eviction.ranges)
        parent = walk.follow(parent, ids, span)
        if walk.at < span.end:
            break
    found = Match(tuple(walk.hits), walk.at, tuple(walk.gaps))
    if walk.hits and walk.hits[-1].namespace:
        found = found.upto(max((hit.start + hit.take for hit in walk.hits if not hit.namespace), default=0))
    return found.upto(found.usable(0))


class _Walk:
    """What was found so far: `hits`, of the first `at` tokens."""

    def __init__(
        self,
        index: PageIndex,
        namespace: str,
        distrusted: Collection[bytes],
        evictions: Sequence[Eviction],
        detour: Detour,
    ) -> None:
        self._index = index
        self._namespace = namespace
        self._distrusted = distrusted
        self._evictions = evictions
        self._detour = detour
        self.hits: list[Hit] = []
        self.gaps: list[Gap] = []
        self.at = 0

    def follow(self, parent: bytes, ids: Sequence[int], span: Span) -> bytes:
        """Go on through a stretch without an eviction, as far as pages hold it; the key of the history then."""
        while self.at < span.end:
            end = min(self.at + PAGE_TOKENS, span.end)
            wanted = pack_ids(ids[self.at : end])
            row, take = _next(self._index, self._namespace, parent, wanted, self._distrusted)
            missing = take < end - self.at
            around = self._around(wanted) if missing or self._detour.first else None
            until = self._gone(end) if missing else None
            if around is not None:
                self.hits.append(around)
                parent = chain_packed(parent, tag_of(self._detour.sources[self.at : end]), wanted)
                take = end - self.at
            elif until is not None:
                self.gaps.append(Gap(self.at, end, until))
                parent, take = chain_packed(parent, "", wanted), end - self.at
            elif row is not None:
                facts = self.at, row.tokens, take, row.seconds, row.complete
                self.hits.append(Hit(row.key, row.parent, row.tag, row.ids, *facts))
                parent = self.hits[-1].key_after
            self.at += take
            if self.at < end:
                break
        return parent

    def _around(self, wanted: bytes) -> Hit | None:
        """The page of the detour with exactly these ids."""
        hit = self._detour.hits.get(self.at)
        if hit is None or 4 * hit.take < len(wanted) or not hit.ids.startswith(wanted):
            return None
        return replace(hit, take=len(wanted) // 4, skip=0)

    def _gone(self, end: int) -> int | None:
        """At how many tokens the last one of a page that ends here has left the history; None: not all leave."""
        ends = (each.at for each in self._evictions)
        return next((at for at in ends if not live(self.at, end, dead(self._evictions, at))), None)


def _key_after(parent: bytes, tag: str, ids: bytes, take: int) -> bytes:
    """Key of the history after the first `take` tokens of a page with these packed ids, which comes after `parent`."""
    return chain_packed(parent, tag_of(sources_of(tag, len(ids) // 4)[:take]), ids[: 4 * take])


def _next(
    index: PageIndex, namespace: str, parent: bytes, wanted: bytes, distrusted: Collection[bytes]
) -> tuple[Row | None, int]:
    """The page after `parent` that has the most of `wanted`, and how many tokens of it."""
    exact = index.get(namespace, chain_packed(parent, "", wanted))
    if exact is not None and exact.ids == wanted and exact.key not in distrusted:
        return exact, exact.tokens
    best: tuple[Row | None, int] = (None, 0)
    for tag in index.tags(namespace, parent):
        for row in index.neighbours(namespace, parent, tag, wanted):
            take = common_tokens(row.ids, wanted)
            if take > best[1] and row.key not in distrusted:
                best = row, take
    return best


def reachable(match: Match, rows: Sequence[Row]) -> list[Checkpoint]:
    """Those of the checkpoints `rows` whose tokens are the matched ones, in the order of their tokens."""
    hits = {hit.parent: hit for hit in match.hits}
    found = []
    for row in rows:
        hit = hits[row.parent]
        if row.tokens <= hit.take and hit.ids.startswith(row.ids):
            end = hit.start + row.tokens
            namespace = hit.namespace
            found.append(Checkpoint(row.key, row.parent, row.ids, end, row.bytes, row.seconds, namespace=namespace))
    return sorted(found, key=lambda checkpoint: checkpoint.end)


def common_tokens(a: bytes, b: bytes) -> int:
    """Number of leading tokens that two packed sequences share."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // 4
    different = np.frombuffer(a[:size], "<i4") != np.frombuffer(b[:size], "<i4")
    return int(np.argmax(different))

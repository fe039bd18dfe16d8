"""What the chat's cells hold: ids, what each cost, the keys of its pages, and snapshots to go back to.

Owns this record, and is the only one that changes it and the cells together, so that they never disagree. Must not
tokenize, sample, or touch the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kvchat.engine.early import Early
from kvchat.engine.memory import Memory
from kvchat.errors import KvchatError
from kvchat.formats.page import chain_evict, chain_tokens, digest
from kvchat.formats.past import Eviction, Past, Range, count, dead, intact, joined, live, pages
from kvchat.formats.rows import Part, Rows
from kvchat.kv.lineage import COMPUTED, tag_of
from kvchat.kv.store import PAGE_TOKENS

T = TypeVar("T")

MOST_SNAPSHOTS = 3
MOST_SNAPSHOT_BYTES = 256 * 2**20  # of all of them; the newest is kept in any case


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What leads back to the state after the first `length` tokens."""

    length: int
    blob: memoryview


class Cells:
    """The history of the chat's cells, token by token in position order, with the seconds that computing each one took.
    Tokens that were evicted are a part of it and have no cells."""

    def __init__(self, memory: Memory, root: bytes, computed: str = COMPUTED) -> None:
        """`root`: the key of the empty history on disk. `computed`: the source (see `kv.lineage`) that rows computed
        here have there, which is not empty where they are saved in other cache types."""
        self.memory = memory
        self._root = root
        self._begins = b""  # the key of the history in front of the cells, where that is not the root
        self._moved = 0  # so many of the first tokens have rows that were moved there
        self._moved_from = b""  # the key of the history of which they were moved, while it is known
        self._computed = computed
        self._ids: list[int] = []
        self._seconds: list[float] = []
        self._sources: list[str] = []  # that each token's rows have on disk
        self._keys: list[bytes] = []  # of the leading closed pages, as far as they were asked for
        self._evictions: tuple[Eviction, ...] = ()
        self._snapshots: list[Snapshot] = []
        self.pages_on_disk = 0  # closed pages from the beginning that the store is known to have
        self.early = Early()

    def __len__(self) -> int:
        """Tokens of the history, which is the position that comes next."""
        return len(self._ids)

    @property
    def live(self) -> int:
        """Cells in use."""
        return len(self._ids) - count(self.memory.holes)

    @property
    def held(self) -> int:
        """Cells in use; 0 while what they held is swapped out, and where there are none: a recurrent state alone takes
        the same whatever it has read."""
        return self.live if self.memory.length and self.memory.layout.parts != ("state",) else 0

    @property
    def past(self) -> Past:
        return Past(self._ids, self._evictions, self._begins, self._moved)

    @property
    def ids(self) -> Sequence[int]:
        return self._ids

    @property
    def writable(self) -> int:
        """How many leading tokens may be written to disk: those of messages."""
        return self.early.committed(len(self._ids))

    def seconds_of(self, start: int, end: int) -> float:
        return sum(self._seconds[start:end])

    @property
    def early_seconds(self) -> float:
        """Those of the tokens that were read while the person typed."""
        return sum(self.seconds_of(*part) for part in self.early.ranges)

    def closed(self, end: int) -> list[Range]:
        """Where the pages lie that nothing can be added to, among the first `end` tokens: they are full, or something
        was evicted at their end."""
        return _closed(min(end, len(self._ids)), self._evictions)

    @property
    def lost_pages(self) -> int:
        """Leading closed pages that cannot be saved any more if they are not on disk: some of their rows may be
        gone."""
        return len(self.closed(self._evictions[-1].at)) if self._evictions else 0

    def key(self, page: int) -> bytes:
        """Key of closed page number `page`."""
        if len(self._keys) <= page:
            for start, end in self.closed(len(self._ids))[len(self._keys) :]:
                parent = self.history_key(len(self._keys), start)
                self._keys.append(chain_tokens(parent, self.tag(start, end), self._ids[start:end]))
        return self._keys[page]

    def history_key(self, page: int, start: int) -> bytes:
        """Key of the history in front of page number `page`, which begins at `start`: what is computed there has it for
        a parent."""
        return self._after(self.key(page - 1), start) if page else self._begins or self._root

    def evicted_after(self, page: int, start: int) -> bytes:
        """Key of the history after which something left, right in front of page number `page`, which begins at
        `start`; empty: nothing did."""
        if not page:
            return self._moved_from
        return self.key(page - 1) if any(each.at == start for each in self._evictions) else b""

    def _after(self, key: bytes, at: int) -> bytes:
        for eviction in self._evictions:
            if eviction.at == at:
                key = chain_evict(key, eviction.ranges)
        return key

    def tag(self, start: int, end: int) -> str:
        """The tag under which tokens [start, end) are saved."""
        return tag_of(self._sources[start:end])

    def page_keys(self, wanted: Past) -> Iterator[tuple[bytes, int]]:
        """Keys and ends of the closed pages of `wanted`, which begins with what the cells hold; the others will be
        computed."""
        key, there = wanted.root or self._root, len(self._ids)
        for start, end in _closed(len(wanted.ids), wanted.evictions):
            for eviction in wanted.evictions:
                if eviction.at == start:
                    key = chain_evict(key, eviction.ranges)
            tag = tag_of([*self._sources[start:end], *[self._computed] * (end - max(start, there))])
            key = chain_tokens(key, tag, wanted.ids[start:end])
            yield key, end

    def copy_out(self, start: int, end: int) -> Mapping[Part, Rows]:
        """Rows of tokens [start, end), as Memory.copy_out. A model without keys and values has none."""
        return {} if self.memory.layout.parts == ("state",) else self.memory.copy_out(start, end)

    def append(self, tokens: Sequence[int], seconds: float) -> None:
        """Tokens that were just decoded, and how long that took."""
        self._ids.extend(tokens)
        self._seconds.extend([seconds / len(tokens)] * len(tokens))
        self._sources.extend([self._computed] * len(tokens))

    def evict(self, ranges: Sequence[Range]) -> Eviction:
        """Let tokens go. What of them is not on disk cannot be saved any more. Raises KvchatError, as Memory.evict, and
        ValueError when one of them is gone already, or is the last one."""
        eviction = Eviction(len(self._ids), tuple(ranges))
        holes = dead([*self._evictions, eviction], eviction.at)
        if count(holes) != count(self.memory.holes) + eviction.tokens or ranges[-1][1] >= eviction.at:
            raise ValueError(f"{ranges} cannot be evicted")
        try:
            self.memory.evict(ranges, holes, self._ids)
        except KvchatError:
            self.resync()
            raise
        self._evictions = (*self._evictions, eviction)
        self.pages_on_disk = len(self.closed(eviction.at))
        return eviction

    def move(self, ranges: Sequence[Range]) -> Eviction:
        """Let tokens go and move the others together, to the positions from 0 on. What the cells hold then is a history
        of its own, whose pages are saved anew. Raises as `evict`, and as Memory.move."""
        at, holes = len(self._ids), joined([*self.memory.holes, *ranges])
        pages = self.closed(at)
        start = pages[-1][1] if pages else 0
        key = self.history_key(len(pages), start)
        if start < at:
            key = chain_tokens(key, self.tag(start, at), self._ids[start:])
        kept = live(0, at, holes)
        try:
            self.memory.move(ranges, kept)
        except KvchatError:
            self.resync()
            raise
        self._ids = _picked(self._ids, kept)
        self._seconds = _picked(self._seconds, kept)
        self._sources = _picked(self._sources, kept)
        self._begins = digest(key, b"moved", *(f"{low}-{high}".encode() for low, high in kept))
        self._moved, self._moved_from = len(self._ids), key
        self._evictions, self._keys, self._snapshots, self.pages_on_disk = (), [], [], 0
        return Eviction(at, tuple(ranges), self._begins.hex())

    def restored(self, past: Past, seconds: Sequence[float], sources: Sequence[str]) -> None:
        """The cells now hold this history. `seconds`: of the last tokens, the others were there before; `sources`: of
        the last ones, whose rows were read from the disk."""
        kept, untouched = len(past.ids) - len(seconds), len(past.ids) - len(sources)
        self._seconds = [*self._seconds[:kept], *seconds]
        self._sources = [*self._sources[:untouched], *sources]
        self._ids = list(past.ids)
        if self._begins != past.root:
            self._moved_from = b""
        self._evictions, self._begins, self._moved = past.evictions, past.root, past.moved
        self._keys = []
        self._snapshots = [each for each in self._snapshots if each.length <= kept]
        self.early.cut(kept)

    def join(self, lender: Cells, length: int, snapshot: memoryview | None) -> bool:
        """Begin with the first `length` tokens of another record, in the same cells, see Memory.join. False: that
        cannot be, and there is nothing."""
        joined = self.memory.join(lender.memory, length, snapshot)
        kept = length if joined else 0
        past = lender.past.upto(kept)
        self._ids, self._evictions, self._begins = list(past.ids), past.evictions, past.root if kept else b""
        self._seconds, self._sources = lender._seconds[:kept], lender._sources[:kept]
        self._moved, self._moved_from = past.moved, lender._moved_from if kept else b""
        self._snapshots = [each for each in lender._snapshots if each.length <= kept]
        self._keys, self.pages_on_disk = [], 0
        self.early.cut(0)
        return joined

    # ---------------------------------------------------------------- going back

    def reachable(self, length: int, evictions: int | None = None) -> int:
        """To how many tokens, at most `length`, the cells can be cut, when the first `evictions` of what was evicted
        shall stand; None: all, as far as they came before that."""
        length = self.intact(length, len(self._evictions) if evictions is None else evictions)
        if self.memory.can_truncate(length):
            return length
        before = self.snapshot_before(length)
        return before.length if before is not None else 0

    def intact(self, length: int, evictions: int) -> int:
        """To how many tokens, at most `length`, the history can be cut when its first `evictions` shall stand."""
        return intact(self._evictions, evictions, length)

    def snapshot_before(self, length: int) -> Snapshot | None:
        """The last one of the first `length` tokens."""
        fitting = [each for each in self._snapshots if each.length <= length]
        return fitting[-1] if fitting else None

    def truncate(self, length: int, before: Snapshot | None = None) -> None:
        """Keep the first `length` tokens, or fewer where the memory cannot go back so far. `before`: a snapshot that
        leads back, too."""
        kept = intact(self._evictions, len(self._evictions), min(length, len(self._ids)))
        # the memory has more where a step was computed in part
        more = kept < len(self._ids) or self.memory.length > kept or self.memory.spoilt
        if more and not self.memory.truncate(kept):
            kept = self._rewind(kept, before)
        del self._ids[kept:], self._seconds[kept:], self._sources[kept:]
        self._evictions = self.past.upto(kept).evictions
        self._moved = min(self._moved, kept)
        if not kept:
            self._begins = self._moved_from = b""
        self._snapshots = [each for each in self._snapshots if each.length <= kept]
        closed = len(self.closed(kept))
        del self._keys[closed:]
        self.pages_on_disk = min(self.pages_on_disk, closed)
        self.early.cut(kept)

    def resync(self) -> None:
        """After a decode that failed: believe the cells."""
        self.truncate(len(self._ids) if self.memory.spoilt else min(len(self._ids), self.memory.length))

    def take_snapshot(self) -> Snapshot | None:
        """Remember the present recurrent state. None: there is none, or it is remembered. Raises KvchatError."""
        length = len(self._ids)
        if not self.memory.recurrent or not length or any(each.length == length for each in self._snapshots):
            return None
        taken = self.present()
        room = MOST_SNAPSHOT_BYTES - taken.blob.nbytes
        kept: list[Snapshot] = []
        for each in reversed(self._snapshots):
            room -= each.blob.nbytes
            if room < 0 or len(kept) == MOST_SNAPSHOTS - 1:
                break
            kept.insert(0, each)
        self._snapshots = [*kept, taken]
        return taken

    @property
    def last_snapshot(self) -> Snapshot | None:
        """The newest of those that are remembered."""
        return self._snapshots[-1] if self._snapshots else None

    def present(self) -> Snapshot:
        """The present recurrent state, which is not remembered. Raises KvchatError."""
        return Snapshot(len(self._ids), self.memory.snapshot())

    def _rewind(self, length: int, before: Snapshot | None) -> int:
        fitting = [each for each in self._snapshots if each.length <= length]
        if before is not None and before.length <= length:
            fitting.append(before)
        if fitting and self.memory.rewind(fitting[-1].blob, fitting[-1].length):
            return fitting[-1].length
        self.memory.clear()
        return 0


def _picked(record: Sequence[T], ranges: Sequence[Range]) -> list[T]:
    return [each for start, end in ranges for each in record[start:end]]


def _closed(length: int, evictions: Sequence[Eviction]) -> list[Range]:
    cuts = {eviction.at for eviction in evictions}
    spans = pages(length, evictions, PAGE_TOKENS)
    return [each for each in spans if each[1] - each[0] == PAGE_TOKENS or each[1] in cuts]


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids are the same."""
    length = min(len(a), len(b))
    if list(a[:length]) == list(b[:length]):
        return length
    return next(i for i in range(length) if a[i] != b[i])

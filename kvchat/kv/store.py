"""The page store: longest prefix, read, put, within a budget.

Owns what a caller may rely on: rows that `read` hands out are those that were put, for exactly these tokens after
exactly this history. Must not know llama.cpp, chats or turns. One PageStore may be used by two threads (one that
matches and reads, one that puts), and any number of processes may use one folder.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.errors import FormatError
from kvchat.formats.page import (
    Kind,
    LayerGroup,
    OtherVersionError,
    PageHeader,
    encode_header,
    pack_ids,
    payload_checksum,
)
from kvchat.formats.rows import LayerShape, Part
from kvchat.kv.budget import effective_budget, make_room
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.matching import PAGE_TOKENS, Checkpoint, Hit, Match, longest_prefix, reachable
from kvchat.kv.namespace import Namespace
from kvchat.kv.pagefile import Wanted, opened, read_header, read_rows, verify_payload
from kvchat.kv.problems import PageDamaged, PageMissing, StoreUnwritable
from kvchat.kv.rows import Row, check_name, row_of

__all__ = [
    "PAGE_TOKENS",
    "Checkpoint",
    "Hit",
    "Match",
    "NewPage",
    "NewRows",
    "PageDamaged",
    "PageMissing",
    "PageStore",
    "StoreUnwritable",
    "Wanted",
]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of one part for a page: those of its last `cells` tokens. `layers`: shapes of all layers of the part;
    `parts`: the payload (K rows of every layer, then V rows of every layer that has any)."""

    part: Part
    layers: tuple[LayerShape, ...]
    cells: int
    parts: tuple[memoryview, ...]


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page or a checkpoint to be written.

    `parent` is the key of the history before it, `position` that of the first token, `seconds` what computing it took,
    `labels` facts that are worth knowing.
    """

    parent: bytes
    tag: str
    ids: tuple[int, ...]
    position: int
    groups: tuple[NewRows, ...]
    labels: Mapping[str, str]
    seconds: float
    kind: Kind = "page"

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for group in self.groups for part in group.parts)


class PageStore:
    """Pages of one namespace in a folder that all namespaces share."""

    def __init__(self, folder: Path, namespace: Namespace, budget: int) -> None:
        """`budget` in bytes for all namespaces, 0 chooses. Never fails: a folder that cannot be written says so at the
        first `put`."""
        self.namespace = namespace
        self._root = namespace.root
        self._id = namespace.id
        self._path = folder
        self._budget = budget
        self._folder = PageFolder(folder)
        self._index = PageIndex(self._folder)
        self._protected: frozenset[bytes] = frozenset()
        self._distrusted: set[bytes] = set()  # cannot be read, and is still in the index

    def close(self) -> None:
        self._index.close()

    # -------------------------------------------------------------- reading

    def match(self, ids: Sequence[int], parent: bytes | None = None) -> Match:
        """The longest prefix of `ids` that pages hold, after the history `parent` (None: from the beginning).

        `Hit.start` counts from the first of `ids`.
        """
        return longest_prefix(self._index, self._id, parent or self._root, ids, self._distrusted)

    def checkpoints(self, match: Match) -> list[Checkpoint]:
        """The checkpoints within what was matched, in the order of their tokens."""
        return self._checkpoints(self._id, match)

    def match_as(self, namespace: Namespace, ids: Sequence[int], *, window: int = 0, recurrent: bool = False) -> int:
        """From how many leading tokens of `ids` one could go on with what another namespace in this folder holds.
        `window`, `recurrent`: what the model needs beside full rows, see `Match.reaches`."""
        match = longest_prefix(self._index, namespace.id, namespace.root, ids, self._distrusted)
        if not recurrent:
            return match.usable(window)
        states = [state.end for state in self._checkpoints(namespace.id, match) if match.reaches(state.end, window)]
        return max(states, default=0)

    def _checkpoints(self, namespace: str, match: Match) -> list[Checkpoint]:
        rows = self._index.checkpoints(namespace, match.spans)
        return reachable(match, [row for row in rows if row.key not in self._distrusted])

    def read(self, hit: Hit | Checkpoint, wanted: Sequence[Wanted]) -> None:
        """Fill the views of `wanted` with rows of a page, group by group.

        Raises PageDamaged or PageMissing, both a miss after which `match` does not give this hit again; the views then
        hold anything.
        """
        try:
            with opened(self._folder.path(self._id, hit.key)) as fd:
                header = read_header(fd)
                check_name(header, self._id, hit.key)
                self._check_hit(hit, header)
                for rows in wanted:
                    read_rows(fd, header, rows)
        except OtherVersionError as error:
            self._distrusted.add(hit.key)
            raise PageMissing("a page of saved KV is of another version", "its tokens are computed again") from error
        except FormatError as error:
            self._forget(hit.key, damaged=True)
            raise PageDamaged(f"a page of saved KV is damaged: {error}", "its tokens are computed again") from error
        except FileNotFoundError as error:
            self._forget(hit.key)
            raise PageMissing("a page of saved KV is gone", "its tokens are computed again") from error
        except OSError as error:  # says nothing about the page
            self._distrusted.add(hit.key)
            raise PageMissing(f"saved KV cannot be read: {error.strerror}", "it is computed again") from error

    def _check_hit(self, hit: Hit | Checkpoint, header: PageHeader) -> None:
        """A header that fits its name is right where the index says otherwise. Raises PageMissing after the repair."""
        kind = "checkpoint" if isinstance(hit, Checkpoint) else "page"
        facts = header.kind, pack_ids(header.ids), header.parent, header.tag, header.complete
        if facts == (kind, hit.ids, hit.parent, hit.tag, hit.complete):
            return
        try:
            self._index.add(row_of(header, header.payload_offset + header.payload_bytes, time.time()))
        except StoreUnwritable:
            self._distrusted.add(hit.key)
        raise PageMissing("the index was wrong about a page of saved KV", "it has been corrected")

    def used(self, hits: Sequence[Hit | Checkpoint]) -> None:
        """Note that pages were just reused: time, count, and the seconds that computing the rows took once."""
        saved = [(hit.key, hit.seconds * hit.take / hit.rows) for hit in hits]
        with suppress(StoreUnwritable):  # only the order of eviction suffers
            self._index.used(self._id, saved, time.time())

    def reason_elsewhere(
        self, ids: Sequence[int], tokens: int, *, window: int = 0, recurrent: bool = False
    ) -> str | None:
        """Why these ids were not found beyond the first `tokens`, if pages of the same model in another configuration
        have them: "cache type" or "version". `window`, `recurrent` as in `match_as`."""
        reasons = set()
        for other in self._folder.namespaces().values():
            if other.id != self._id and other.fingerprint == self.namespace.fingerprint:
                same = (other.type_k, other.type_v) == (self.namespace.type_k, self.namespace.type_v)
                if self.match_as(other, ids, window=window, recurrent=recurrent) > tokens:
                    reasons.add("version" if same else "cache type")
        return min(reasons, default=None)

    # -------------------------------------------------------------- writing

    def protect(self, keys: Collection[bytes]) -> None:
        """The pages of the open chat, in place of those named before. `put` never evicts them; other processes only
        see that they were used just now."""
        self._protected = frozenset(keys)
        with suppress(StoreUnwritable):  # as above
            self._index.touch(self._id, self._protected, time.time())

    def put(self, page: NewPage) -> int:
        """Write a page and return its bytes; 0 when it, or one that begins with it, is there already.

        Part-filled pages that this one begins with are dropped. One that lacks rows of a window gives way to one that
        has them. Raises StoreUnwritable (disk full, no permission, budget used up by protected pages), and ValueError
        when the parts do not have the sizes that the layers say.
        """
        header = self._header(page)
        self._index.need_file()
        row = row_of(header, 0, time.time())
        if self._is_known(row):
            return 0
        shorter = self._replaceable(row)
        before = self._index.get(self._id, header.key)
        start = memoryview(encode_header(header))
        size = start.nbytes + page.payload_bytes
        self._make_room(size, page.parent, [*shorter, before] if before is not None else shorter)
        self._folder.write(
            self.namespace, header.key, [start, *(part for group in page.groups for part in group.parts)]
        )
        self._enter(replace(row, bytes=size), shorter)
        self._distrusted.discard(header.key)
        return size

    def drop(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Delete checkpoints that are not wanted any more, except pinned ones. Never fails: what cannot be deleted
        stays."""
        for checkpoint in checkpoints:
            row = self._index.get(self._id, checkpoint.key)
            if row is not None and not row.pinned:
                with suppress(StoreUnwritable):
                    self._folder.remove(self._id, checkpoint.key)
                    self._index.remove([(self._id, checkpoint.key)])

    def tidy(self) -> None:
        """Delete what writers that were killed left behind, an hour later. Never fails; lists all folders of pages."""
        self._folder.remove_stale()

    def _header(self, page: NewPage) -> PageHeader:
        end = page.position + len(page.ids)
        groups = tuple(
            LayerGroup(rows.part, rows.layers, end - rows.cells, rows.cells, payload_checksum(rows.parts))
            for rows in page.groups
        )
        for rows, group in zip(page.groups, groups, strict=True):
            size = sum(part.nbytes for part in rows.parts)
            if size != group.payload_bytes or rows.cells > len(page.ids):
                raise ValueError(f"{rows.cells} cells of {size} bytes, the layers have {group.payload_bytes}")
        if not page.ids:
            raise ValueError("page without tokens")
        return PageHeader(
            kind=page.kind,
            namespace=self._id,
            parent=page.parent,
            tag=page.tag,
            ids=page.ids,
            position=page.position,
            groups=groups,
            labels=page.labels,
            seconds=page.seconds,
        )

    def _is_known(self, row: Row) -> bool:
        """Whether the store has this page, with as many rows, or one that begins with it."""
        if row.kind == "checkpoint":
            known = self._index.get(self._id, row.key)
            return known is not None and self._is_sound(known)
        missing = row.tokens - row.complete
        beside = self._index.neighbours(self._id, row.parent, row.tag, row.ids)
        return any(
            old.ids.startswith(row.ids) and old.tokens - old.complete <= missing and self._is_sound(old)
            for old in beside
        )

    def _replaceable(self, row: Row) -> list[Row]:
        """Part-filled pages that are worth nothing beside this one."""
        if row.kind == "checkpoint":
            return []
        shorter = self._index.prefixes(self._id, row.parent, row.tag, row.ids)
        missing = row.tokens - row.complete
        return [
            old
            for old in shorter
            if old.tokens - old.complete >= missing and not self._index.has_children(self._id, old.key)
        ]

    def _is_sound(self, row: Row) -> bool:
        """Whether a page that the index knows can be read; if not, it is forgotten. A page is put again only after a
        miss, and what was missed in front of it says nothing good about the rest, so all of it is read."""
        if row.key in self._distrusted:
            return False
        try:
            with opened(self._folder.path(self._id, row.key)) as fd:
                header = read_header(fd)
                check_name(header, self._id, row.key)
                verify_payload(fd, header)
        except OtherVersionError:
            self._distrusted.add(row.key)
            return False
        except FormatError:
            self._forget(row.key, damaged=True)
            return False
        except OSError:
            self._forget(row.key)
            return False
        return True

    def _make_room(self, size: int, parent: bytes, replaced: Sequence[Row]) -> None:
        used = self._index.total_bytes()
        try:
            budget = effective_budget(self._budget, self._path, used)
        except OSError as error:
            raise StoreUnwritable.because(error) from error
        if size > budget:
            raise StoreUnwritable("KV is not saved: one page is larger than the budget", "raise --kv-budget")
        kept = self._protected | {parent, *(old.key for old in replaced)}
        excess = used - sum(old.bytes for old in replaced) + size - budget
        make_room(self._folder, self._index, excess, kept)

    def _enter(self, row: Row, shorter: Sequence[Row]) -> None:
        """Make a written page known, in place of shorter ones, whose pin and record of use go over to it."""
        known = replace(
            row,
            hits=sum(old.hits for old in shorter),
            seconds_saved=sum(old.seconds_saved for old in shorter),
            pinned=any(old.pinned for old in shorter),
        )
        try:
            self._index.add(known, shorter)
        except StoreUnwritable:
            self._folder.remove(row.namespace, row.key)
            raise
        for old in shorter:
            self._folder.remove(old.namespace, old.key)

    def _forget(self, key: bytes, *, damaged: bool = False) -> None:
        try:
            if damaged:
                self._folder.set_aside(self._id, key)
            self._index.remove([(self._id, key)])
        except StoreUnwritable:  # then it stays where it is, and must not be matched again
            self._distrusted.add(key)

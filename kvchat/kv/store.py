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
    LayerGroup,
    OtherVersionError,
    PageHeader,
    encode_header,
    pack_ids,
    payload_checksum,
)
from kvchat.formats.state import LayerShape
from kvchat.kv.budget import effective_budget, make_room
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.matching import PAGE_TOKENS, Hit, Match, longest_prefix
from kvchat.kv.namespace import Namespace
from kvchat.kv.pagefile import opened, read_header, read_rows, verify_payload
from kvchat.kv.problems import PageDamaged, PageMissing, StoreUnwritable
from kvchat.kv.rows import Row, check_name, row_of

__all__ = ["PAGE_TOKENS", "Hit", "Match", "NewPage", "PageDamaged", "PageMissing", "PageStore", "StoreUnwritable"]


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page to be written.

    `parent` is the key of the history before it, `position` that of its first token, `layers` the shapes of all layers
    of the cache, `parts` the payload (K rows of every layer, then V rows of every layer that has any), `seconds` what
    computing it took, `labels` facts that are worth knowing.
    """

    parent: bytes
    tag: str
    ids: tuple[int, ...]
    position: int
    layers: tuple[LayerShape, ...]
    parts: tuple[memoryview, ...]
    labels: Mapping[str, str]
    seconds: float

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


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

    def match_as(self, namespace: Namespace, ids: Sequence[int]) -> int:
        """Tokens of the longest prefix of `ids` that pages of another namespace in this folder hold."""
        return longest_prefix(self._index, namespace.id, namespace.root, ids, self._distrusted).tokens

    def read(self, hit: Hit, skip: int, views: Sequence[memoryview]) -> None:
        """Fill `views` with rows [skip, hit.take) of a page: K rows of every layer, then V rows.

        Raises PageDamaged or PageMissing, both a miss after which `match` does not give this hit again; the views then
        hold anything.
        """
        try:
            with opened(self._folder.path(self._id, hit.key)) as fd:
                header = read_header(fd)
                check_name(header, self._id, hit.key)
                self._check_hit(hit, header)
                read_rows(fd, header, skip, hit.take, views)
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

    def _check_hit(self, hit: Hit, header: PageHeader) -> None:
        """A header that fits its name is right where the index says otherwise. Raises PageMissing after the repair."""
        if pack_ids(header.ids) == hit.ids and (header.parent, header.tag) == (hit.parent, hit.tag):
            return
        try:
            self._index.add(row_of(header, header.payload_offset + header.payload_bytes, time.time()))
        except StoreUnwritable:
            self._distrusted.add(hit.key)
        raise PageMissing("the index was wrong about a page of saved KV", "it has been corrected")

    def used(self, hits: Sequence[Hit]) -> None:
        """Note that pages were just reused: time, count, and the seconds that computing the rows took once."""
        saved = [(hit.key, hit.seconds * hit.take / hit.rows) for hit in hits]
        with suppress(StoreUnwritable):  # only the order of eviction suffers
            self._index.used(self._id, saved, time.time())

    def reason_elsewhere(self, ids: Sequence[int], tokens: int) -> str | None:
        """Why these ids were not found beyond the first `tokens`, if pages of the same model in another configuration
        have them: "cache type" or "version"."""
        reasons = set()
        for other in self._folder.namespaces().values():
            if other.id != self._id and other.fingerprint == self.namespace.fingerprint:
                same = (other.type_k, other.type_v) == (self.namespace.type_k, self.namespace.type_v)
                if self.match_as(other, ids) > tokens:
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

        Part-filled pages that this one begins with are dropped. Raises StoreUnwritable (disk full, no permission,
        budget used up by protected pages), and ValueError when the parts do not have the sizes that the layers say.
        """
        header = self._header(page)
        self._index.need_file()
        ids = pack_ids(page.ids)
        beside = self._index.neighbours(self._id, page.parent, page.tag, ids)
        if any(row.ids.startswith(ids) and self._is_sound(row) for row in beside):
            return 0
        shorter = [
            row
            for row in self._index.prefixes(self._id, page.parent, page.tag, ids)
            if not self._index.has_children(self._id, row.key)
        ]
        start = memoryview(encode_header(header))
        size = start.nbytes + page.payload_bytes
        self._make_room(size - sum(row.bytes for row in shorter), page.parent)
        self._folder.write(self.namespace, header.key, [start, *page.parts])
        self._enter(row_of(header, size, time.time()), shorter)
        self._distrusted.discard(header.key)
        return size

    def tidy(self) -> None:
        """Delete what writers that were killed left behind, an hour later. Never fails; lists all folders of pages."""
        self._folder.remove_stale()

    def _header(self, page: NewPage) -> PageHeader:
        count = len(page.layers)
        group = LayerGroup("full", tuple(range(count)), page.layers, page.position, len(page.ids))
        if page.payload_bytes != group.payload_bytes or not page.ids:
            raise ValueError(f"page of {page.payload_bytes} bytes, its layers have {group.payload_bytes}")
        return PageHeader(
            namespace=self._id,
            parent=page.parent,
            tag=page.tag,
            ids=page.ids,
            position=page.position,
            groups=(group,),
            labels=page.labels,
            seconds=page.seconds,
            checksum=payload_checksum(page.parts),
        )

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

    def _make_room(self, size: int, parent: bytes) -> None:
        used = self._index.total_bytes()
        try:
            budget = effective_budget(self._budget, self._path, used)
        except OSError as error:
            raise StoreUnwritable.because(error) from error
        if size > budget:
            raise StoreUnwritable("KV is not saved: one page is larger than the budget", "raise --kv-budget")
        make_room(self._folder, self._index, used + size - budget, self._protected | {parent})

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

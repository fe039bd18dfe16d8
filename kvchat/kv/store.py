"""The page store: longest prefix, read, put, within a budget.

Owns what a caller may rely on: rows that `read` hands out are those that were put, for exactly these tokens after
exactly this history. Must not know llama.cpp, chats or turns. One PageStore may be used by two threads (one that
matches and reads, one that puts), and any number of processes may use one folder.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kvchat.errors import FormatError
from kvchat.formats.page import OtherVersionError, PageHeader, encode_header, pack_ids
from kvchat.formats.past import Eviction
from kvchat.kv.budget import effective_budget, make_room
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.matching import NO_DETOUR, PAGE_TOKENS, Checkpoint, Detour, Hit, Match, longest_prefix, reachable
from kvchat.kv.namespace import Namespace
from kvchat.kv.newpage import NewPage, NewRows, header_of
from kvchat.kv.pagefile import Wanted, opened, read_header, read_rows, verify_payload
from kvchat.kv.pins import Pin, PinFolder
from kvchat.kv.problems import PageDamaged, PageMissing, StoreUnwritable
from kvchat.kv.rows import Row, check_name, row_of

__all__ = [
    "PAGE_TOKENS",
    "Checkpoint",
    "Detour",
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


class PageStore:
    """Pages of one namespace in a folder that all namespaces share."""

    def __init__(self, folder: Path, namespace: Namespace, budget: int, *, draft: bool = False) -> None:
        """`budget` in bytes for all namespaces, 0 chooses. `draft`: what is put is for drafting, goes before all else
        and displaces nothing else. Never fails: a folder that cannot be written says so at the first `put`."""
        self.namespace = namespace
        self._root = namespace.root
        self._id = namespace.id
        self._path = folder
        self._budget = budget
        self._draft = draft
        self._folder = PageFolder(folder)
        self._index = PageIndex(self._folder)
        self._protected: frozenset[bytes] = frozenset()
        self._distrusted: set[bytes] = set()  # cannot be read, and is still in the index

    def close(self) -> None:
        self._index.close()

    # -------------------------------------------------------------- reading

    def match(self, ids: Sequence[int], parent: bytes | None = None, *, evictions: Sequence[Eviction] = ()) -> Match:
        """The longest prefix of the history `ids` with `evictions` that pages hold, after the history `parent` (None:
        from the beginning).

        `Hit.start` counts from the first of `ids`.
        """
        return longest_prefix(self._index, self._id, parent or self._root, ids, self._distrusted, evictions)

    def match_in(
        self,
        namespace: Namespace,
        ids: Sequence[int],
        *,
        evictions: Sequence[Eviction] = (),
        detour: Detour = NO_DETOUR,
    ) -> Match:
        """The longest prefix that pages of a namespace of this folder hold, from the beginning. Its own hits do not say
        the namespace: see `Match.followed_by`."""
        return longest_prefix(self._index, namespace.id, namespace.root, ids, self._distrusted, evictions, detour)

    @property
    def others(self) -> list[Namespace]:
        """The other namespaces of this folder."""
        return [each for each in self._folder.namespaces().values() if each.id != self._id]

    def elsewhere(self, like: Namespace) -> list[Namespace]:
        """The other namespaces of this folder whose state differs from that of `like` in its cache types at most."""
        return [each for each in self.others if each.alike(like)]

    def checkpoints(self, match: Match) -> list[Checkpoint]:
        """The checkpoints within what was matched, in the order of their tokens."""
        spaces = dict.fromkeys(hit.namespace for hit in match.hits)
        rows = [row for each in spaces for row in self._index.checkpoints(each or self._id, match.spans(each))]
        return reachable(match, [row for row in rows if row.key not in self._distrusted])

    def goes_on_evicted(self, match: Match, ids: Sequence[int]) -> bool:
        """Whether pages of this namespace go on with `ids` where `match` ended, but after an eviction there."""
        if not match.hits:
            return False
        last = match.hits[-1]
        wanted = pack_ids(ids[match.tokens : match.tokens + PAGE_TOKENS])
        rows = self._index.behind_eviction(last.namespace or self._id, last.key_after)
        return bool(wanted) and any(row.ids.startswith(wanted) or wanted.startswith(row.ids) for row in rows)

    def holds(self, pages: Iterable[tuple[bytes, int]], computed: int) -> int:
        """How many of the leading pages, given by their keys and ends, need not be put when what follows the first
        `computed` tokens is computed: one that lacks rows of a window then gets them."""
        count = 0
        for key, end in pages:
            row = self._index.get(self._id, key)
            if row is None or key in self._distrusted:
                break
            if end > computed and row.complete < row.tokens:
                break
            count += 1
        return count

    def read(self, hit: Hit | Checkpoint, wanted: Sequence[Wanted]) -> None:
        """Fill the views of `wanted` with rows of a page, group by group.

        Raises PageDamaged or PageMissing, both a miss after which `match` does not give this hit again; the views then
        hold anything.
        """
        namespace = hit.namespace or self._id
        try:
            with opened(self._folder.path(namespace, hit.key)) as fd:
                header = read_header(fd)
                check_name(header, namespace, hit.key)
                self._check_hit(hit, header)
                for rows in wanted:
                    read_rows(fd, header, rows)
        except OtherVersionError as error:
            self._distrusted.add(hit.key)
            raise PageMissing("a page of saved KV is of another version", "its tokens are computed again") from error
        except FormatError as error:
            self._forget(hit.key, namespace, damaged=True)
            raise PageDamaged(f"a page of saved KV is damaged: {error}", "its tokens are computed again") from error
        except FileNotFoundError as error:
            self._forget(hit.key, namespace)
            raise PageMissing("a page of saved KV is gone", "its tokens are computed again") from error
        except OSError as error:  # says nothing about the page
            self._distrusted.add(hit.key)
            raise PageMissing(f"saved KV cannot be read: {error.strerror}", "it is computed again") from error

    def label(self, hit: Hit, name: str) -> str:
        """A label of a page, "" where it has none or cannot be read: then the page itself will say so."""
        with suppress(OSError, FormatError), opened(self._folder.path(hit.namespace or self._id, hit.key)) as fd:
            return read_header(fd).labels.get(name, "")
        return ""

    def condemn(self, ids: Sequence[int], parent: bytes | None = None, *, evictions: Sequence[Eviction] = ()) -> int:
        """Move away every page of this namespace that holds a beginning of `ids`: it is whole, and wrong. Returns how
        many; `match` does not give them again."""
        count = 0
        while hits := self.match(ids, parent, evictions=evictions).hits:
            for hit in hits:
                self._forget(hit.key, self._id, damaged=True)
                self._distrusted.add(hit.key)
            count += len(hits)
        return count

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
        saved: dict[str, list[tuple[bytes, float]]] = {}
        for hit in hits:
            seconds = hit.seconds * (hit.take - hit.skip) / hit.rows
            saved.setdefault(hit.namespace or self._id, []).append((hit.key, seconds))
        with suppress(StoreUnwritable):  # only the order of eviction suffers
            for namespace, rows in saved.items():
                self._index.used(namespace, rows, time.time())

    # -------------------------------------------------------------- writing

    def protect(self, keys: Collection[bytes]) -> None:
        """The pages of the open chat, in place of those named before. `put` never evicts them; other processes only
        see that they were used just now."""
        self._protected = frozenset(keys)
        with suppress(StoreUnwritable):  # as above
            self._index.touch(self._id, self._protected, time.time(), draft=self._draft)

    def put(self, page: NewPage) -> int:
        """Write a page and return its bytes; 0 when it, or one that begins with it, is there already.

        Part-filled pages that this one begins with are dropped, unless they are pinned. One that lacks rows of a window
        gives way to one that has them. Raises StoreUnwritable (disk full, no permission, budget used up by protected
        pages), and ValueError when the parts do not have the sizes that the layers say.
        """
        header = header_of(page, self._id, draft=self._draft)
        self._index.need_file()
        row = row_of(header, 0, time.time())
        if self._is_known(row, apart=page.apart):
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

    def pin(self, prefix: str, keys: Sequence[bytes], tokens: int) -> int:
        """Keep these pages and checkpoints, the first `tokens` of a history, for a prefix of this id, until it is
        unpinned; what it had in this namespace before is let go. Their bytes. Raises StoreUnwritable, also when one of
        them is not there."""
        pin = Pin(prefix, self._id, tokens, tuple(keys))
        self._index.need_file()
        rows = [self._index.get(self._id, key) for key in keys]
        if any(row is None for row in rows):
            raise StoreUnwritable("pages of the prefix are gone again", "is the budget too small? raise --kv-budget")
        files = PinFolder(self._path)
        files.write(pin)
        try:
            self._index.pin(pin)
        except StoreUnwritable:
            files.remove(pin)
            raise
        return sum(row.bytes for row in rows if row is not None)

    def tidy(self) -> None:
        """Delete what writers that were killed left behind, an hour later. Never fails; lists all folders of pages."""
        self._folder.remove_stale()

    def _is_known(self, row: Row, *, apart: bool) -> bool:
        """Whether the store has this page, with as many rows, or, unless it is wanted `apart`, one that begins with
        it."""
        if row.kind == "checkpoint":
            known = self._index.get(self._id, row.key)
            return known is not None and self._is_sound(known)
        missing = row.tokens - row.complete
        beside = self._index.neighbours(self._id, row.parent, row.tag, row.ids)
        return any(
            old.ids.startswith(row.ids)
            and not (apart and old.key != row.key)
            and old.tokens - old.complete <= missing
            and self._is_sound(old)
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
            if not old.pinned
            and old.tokens - old.complete >= missing
            and not self._index.has_children(self._id, old.key)
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
            self._forget(row.key, self._id, damaged=True)
            return False
        except FileNotFoundError:
            self._forget(row.key, self._id)
            return False
        except OSError:  # says nothing about the page
            self._distrusted.add(row.key)
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
        make_room(self._folder, self._index, excess, kept, drafts_only=self._draft)

    def _enter(self, row: Row, shorter: Sequence[Row]) -> None:
        """Make a written page known, in place of shorter ones, whose record of use goes over to it."""
        known = replace(
            row,
            hits=sum(old.hits for old in shorter),
            seconds_saved=sum(old.seconds_saved for old in shorter),
            draft=row.draft and all(old.draft for old in shorter),
        )
        try:
            self._index.add(known, shorter)
        except StoreUnwritable:
            self._folder.remove(row.namespace, row.key)
            raise
        for old in shorter:
            self._folder.remove(old.namespace, old.key)

    def _forget(self, key: bytes, namespace: str, *, damaged: bool = False) -> None:
        try:
            if damaged:
                self._folder.set_aside(namespace, key)
            self._index.remove([(namespace, key)])
        except StoreUnwritable:  # then it stays where it is, and must not be matched again
            self._distrusted.add(key)

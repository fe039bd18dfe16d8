"""Pages of other cache types for cells of this one: which there are, and their rows in the cells' own types.

Owns the transcoders and the room that rows pass through; must not plan or touch cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from kvchat.errors import KvchatError
from kvchat.formats.past import Past
from kvchat.formats.rows import Bytes, LayerShape, Part
from kvchat.kv.geometry import Geometry
from kvchat.kv.lineage import COMPUTED, passed, sources_of
from kvchat.kv.namespace import Namespace
from kvchat.kv.store import Detour, Hit, Match, NewPage, PageStore
from kvchat.kv.transcode import Quants, Transcoder, form_of, precision, shapes_as
from kvchat.kv.transcode_pages import page_as


class Borrowing:
    """`cells`: the namespace of what the cells hold. The store's own one, in which pages are saved, may be of other
    types: then everything on disk is brought in and out through transcoding."""

    def __init__(self, store: PageStore, cells: Namespace, geometry: Geometry, quants: Quants) -> None:
        self._store = store
        self._cells = cells
        self._geometry = geometry
        self._quants = quants
        self._known: dict[str, Namespace] = {cells.id: cells, store.namespace.id: store.namespace}
        self._transcoders: dict[str, Transcoder] = {}
        self._rooms: dict[Part, Bytes] = {}

    # ---------------------------------------------------------------- what there is

    def match(self, past: Past, window: int) -> Match:
        """The longest prefix of a history that pages hold: those of the cells' own types and, where others are saved
        than these, behind them those that are."""
        saved = self._store.match(past.ids, past.root, evictions=past.evictions)
        if self._cells.id == self._store.namespace.id or past.root:  # a key that only this namespace knows
            return saved
        found = self._store.match_in(self._cells, past.ids, evictions=past.evictions)
        own = Match().followed_by(found, self._cells.id)
        if not self._cells.alike(self._store.namespace):
            return own
        return _wider(own, saved, "", window) or own

    def wider(self, match: Match, past: Past, window: int) -> Iterable[Match]:
        """`match` with what other namespaces hold behind it, as far as a chat can go on from there; those that keep
        more of a value come first, and each one goes on from where the one before ended."""
        if past.root:  # a key that only this namespace knows
            return
        others = self._others()
        for other in others:
            there = self._store.match_in(other, past.ids, evictions=past.evictions)
            found = _wider(match, there, other.id, window)
            if found is not None:
                match = found
                yield match
        if past.evictions:
            yield from self._around(match, past, window, others)

    def _around(self, match: Match, past: Past, window: int, others: Sequence[Namespace]) -> Iterable[Match]:
        """`match` with what lies behind an eviction in namespaces that do not hold what was before it: a page of which
        something was gone when the cache type changed is not written in the other type."""
        spaces = {each.id: each for each in (self._store.namespace, self._cells, *others)}
        ways = [(space, first) for space in spaces.values() for first in (False, True)]
        left = list(ways)
        while left:
            space, first = left.pop(0)
            detour = replace(self._detour(match, space), first=first)
            found = self._store.match_in(space, past.ids, evictions=past.evictions, detour=detour)
            found = replace(found, hits=tuple(replace(hit, namespace=self._told(hit, space)) for hit in found.hits))
            if found.usable(window) > match.usable(window):
                match, left = found, list(ways)
                yield match

    def _detour(self, match: Match, space: Namespace) -> Detour:
        hits: dict[int, Hit] = {}
        sources = [COMPUTED] * match.tokens
        for hit in match.hits:
            lies, end = self.of(hit.namespace), min(match.tokens, hit.start + hit.take)
            sources[hit.first : end] = self._sources_in(space, hit)[hit.skip : end - hit.start]
            if lies.id != space.id:
                hits[hit.start] = replace(hit, namespace=lies.id)
        return Detour(hits, sources)

    def _sources_in(self, space: Namespace, hit: Hit) -> list[str]:
        """The source that each row of a hit has in a namespace whose cells it was brought into."""
        lies = self.of(hit.namespace)
        if space.id == self._store.namespace.id:
            return self.sources(hit)
        sources = sources_of(hit.tag, hit.rows)
        return sources if lies.id == space.id else [passed(source, form_of(lies).name) for source in sources]

    def _told(self, hit: Hit, space: Namespace) -> str:
        """As a hit of this store tells its namespace; those of `space` itself do not yet."""
        lies = hit.namespace or space.id
        return "" if lies == self._store.namespace.id else lies

    def _others(self) -> list[Namespace]:
        others = self._store.elsewhere(self._cells)
        others = [each for each in others if each.id != self._cells.id and self._can_take(each)]
        self._known |= {each.id: each for each in others}
        return sorted(others, key=lambda each: precision(form_of(each)), reverse=True)

    def _can_take(self, other: Namespace) -> bool:
        with suppress(KvchatError):
            self._transcoder(other)
            return True
        return False

    # ---------------------------------------------------------------- rows

    def shaped(self) -> Callable[[NewPage], NewPage] | None:
        """What makes of a page of the cells one of the store; None: they are of the same types."""
        saved, cells = form_of(self._store.namespace), form_of(self._cells)
        if saved == cells:
            return None
        transcoder = Transcoder(self._quants, self._geometry, cells, saved)
        return lambda page: page_as(page, transcoder)

    def of(self, namespace: str) -> Namespace:
        """The namespace of a hit."""
        return self._known[namespace or self._store.namespace.id]

    def is_foreign(self, namespace: str) -> bool:
        """Whether the rows of a hit in this namespace are of other types than the cells'."""
        return form_of(self.of(namespace)) != form_of(self._cells)

    def sources(self, hit: Hit) -> list[str]:
        """Of each of its tokens the source that its rows have where they are saved."""
        sources = sources_of(hit.tag, hit.rows)
        if not hit.namespace:
            return sources
        forms = [form_of(self.of(hit.namespace)).name]
        if self._cells.id not in (self._store.namespace.id, hit.namespace):
            forms.append(form_of(self._cells).name)
        for form in forms:
            sources = [passed(source, form) for source in sources]
        return sources

    def room(self, namespace: str, part: Part, shapes: Sequence[LayerShape], cells: int) -> list[memoryview]:
        """Buffers for rows of so many cells as they lie in a namespace, in payload order; `shapes`: those of the
        cells' layers. What those of this part held before is gone."""
        foreign = shapes_as(shapes, form_of(self.of(namespace)))
        sizes = [cells * row for row in (*(s.k_row for s in foreign), *(s.v_row for s in foreign)) if row]
        if part not in self._rooms or sum(sizes) > self._rooms[part].nbytes:
            self._rooms[part] = np.empty(sum(sizes), np.uint8)
        ends = np.cumsum(sizes)
        return [self._rooms[part][end - size : end].data for size, end in zip(sizes, ends, strict=True)]

    def fill(
        self,
        namespace: str,
        part: Part,
        shapes: Sequence[LayerShape],
        rows: Sequence[memoryview],
        into: Sequence[memoryview],
    ) -> None:
        """Rows that were read from a page of that namespace, in the types of the cells."""
        self._transcoder(self.of(namespace)).fill(part, shapes, rows, into)

    def _transcoder(self, source: Namespace) -> Transcoder:
        if source.id not in self._transcoders:
            made = Transcoder(self._quants, self._geometry, form_of(source), form_of(self._cells))
            self._transcoders[source.id] = made
        return self._transcoders[source.id]


def _wider(match: Match, other: Match, namespace: str, window: int) -> Match | None:
    """`match` as far as one could go on from it, and what another namespace holds behind that; None: it is no more."""
    end = match.usable(window)
    found = match.upto(end).followed_by(other, namespace)
    return found if found.usable(window) > end else None

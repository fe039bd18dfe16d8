"""A loaded model ready for chats: its context, the places in it, and what keeps the KV of each. Owns the lifetimes of
these parts, and which place a chat gets.

The model outlives it: another configuration is another seat of the same model. Must not know turns, or which of the
two models of a session it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kvchat.backend.values import EngineConfig
from kvchat.engine.borrowing import Borrowing
from kvchat.engine.cells import Cells
from kvchat.engine.check import NOISE
from kvchat.engine.context import Context
from kvchat.engine.lending import occupied
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace, saved_namespace
from kvchat.engine.place import Place
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver
from kvchat.engine.track import Track
from kvchat.engine.writing import PageWriter
from kvchat.errors import KvchatError
from kvchat.formats.past import Past, shared
from kvchat.kv.lineage import COMPUTED
from kvchat.kv.namespace import Namespace
from kvchat.kv.needs import Subject
from kvchat.kv.store import PageStore
from kvchat.kv.transcode import form_of

DRAIN = 5.0  # seconds that a slow disk may take for what was handed to it


class Seat:
    """Context, places, page store. `front`: the place that was wanted last. `taken`: those in which turns go on.
    `store` is None where nothing is kept on disk."""

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        interrupt: Callable[[], bool],
        *,
        beside: Subject | None = None,
        draft: bool = False,
    ) -> None:
        """`beside`: a draft model that needs memory too. `draft`: this is one, and its pages are the first to be
        evicted. Raises KvchatError when the context cannot be built."""
        self.model = model
        self.context = Context(model, config, interrupt, beside)
        self._held = page_namespace(model, self.context.cells, config)
        self._saved = saved_namespace(model, self.context.cells, config)
        self.store, self._borrowing, self._writer = None, None, None
        if config.kv_folder is not None and model.geometry.kept:
            self.store = PageStore(Path(config.kv_folder), self._saved, config.kv_budget, draft=draft)
            self._borrowing = Borrowing(self.store, self._held, model.geometry, NativeQuants())
            self._writer = PageWriter(self.store, self._borrowing.shaped())
        self.places = tuple(map(self._place, self.context.tracks))
        self.front = self.places[0]
        self.taken: tuple[Place, ...] = ()
        self._count = 0
        self.learn_noise(config.noise)

    def _place(self, track: Track) -> Place:
        computed = COMPUTED if self._saved == self._held else form_of(self._held).name
        cells = Cells(track.memory, self._saved.root, computed)
        saver = None
        if self.store is not None and self._writer is not None:
            saver = Saver(cells, self._writer, self.store, page_labels(self.context), track.outputs.after)
        place = Place(track, cells, Reuser(cells, self.store, self._borrowing), saver)
        for reuser in (place.reuser, place.resident):
            reuser.lenders = lambda: self.lenders(place, keeps=place.keeps)
        return place

    @property
    def held(self) -> Namespace:
        """That of what the cells hold; pages may be saved in other cache types."""
        return self._held

    @property
    def cells(self) -> Cells:
        """Of the front."""
        return self.front.cells

    @property
    def reuser(self) -> Reuser:
        """Of the front."""
        return self.front.reuser

    @property
    def keeps(self) -> bool:
        """Of the front."""
        return self.front.keeps

    @property
    def saver(self) -> Saver | None:
        """Of the front."""
        return self.front.saver

    def learn_noise(self, noise: float) -> None:
        """How much two computations of the same differ, for the check on resume."""
        for place in self.places:
            place.reuser.check.noise = max(NOISE, noise)

    # ---------------------------------------------------------------- places

    @property
    def occupied(self) -> int:
        """Cells in use."""
        return occupied(place.cells for place in self.places)

    def lenders(self, wanted: Place, *, keeps: bool) -> list[Cells]:
        """Of whom a chat in this place may share cells. `keeps`: whether what is in them may be written."""
        return [place.cells for place in self.places if place is not wanted and place.keeps == keeps]

    def best(self, past: Past) -> Place | None:
        """The idle place whose cells have most of a history; else an empty one, else the one that was used longest ago.
        None: in all of them a turn goes on."""
        free = [place for place in self.places if place not in self.taken]

        def worth(place: Place) -> tuple[int, bool, int]:
            found, there = _common(place.cells, past), len(place.cells)
            # what another chat needs is left to it while there is a place without, where the same can be shared
            anothers = (self.taken or not place.is_kept) and 2 * found < there
            return 0 if anothers else found, not there, -place.used

        return max(free, key=worth, default=None)

    def enter(self, place: Place) -> None:
        """A chat is about to be here; it becomes the front. Where no turn goes on, all other places give their cells
        back to the store, but for those that nothing would bring back, and its cells lie by themselves in position
        order."""
        self._count += 1
        place.used = self._count
        self.front = place
        if self.taken:
            return
        for other in self.places:
            if other is not place and other.is_kept:
                other.release()
                place.cells.early.adopt(other.cells.early)
        try:
            place.track.memory.compact(place.cells.ids)
        except KvchatError:
            place.cells.resync()

    def take(self, place: Place) -> None:
        """A turn begins here."""
        self.taken = (*self.taken, place)
        self._tell_company()

    def leave(self, place: Place) -> None:
        """The turn here is over."""
        self.taken = tuple(each for each in self.taken if each is not place)
        place.beside = 0
        self._tell_company()

    def _tell_company(self) -> None:
        for place in self.taken:
            place.beside = len(self.taken) - 1

    def make_room(self, tokens: int, wanted: Place | None = None) -> bool:
        """Whether there are so many free cells; idle places but the one that is `wanted` give theirs back for that, the
        one that was used longest ago first."""
        while self.context.cells - self.occupied < tokens:
            if not self.give_up_one(wanted):
                return False
        return True

    def give_up_one(self, wanted: Place | None = None) -> bool:
        """Have an idle place give its cells back: first those that are on disk, too, the one that was used longest ago.
        False: none has any."""
        idle = [place for place in self.places if place not in self.taken and place is not wanted and len(place.cells)]
        if idle:
            min(idle, key=lambda place: (not place.is_kept, place.used)).release()
        return bool(idle)

    def forget(self) -> None:
        """Empty the places in which no turn goes on: nothing of them is written any more once this is done."""
        for place in self.places:
            if place not in self.taken:
                place.release()
        if self._writer is not None:
            self._writer.drain(time.monotonic() + DRAIN)

    # ---------------------------------------------------------------- the end

    def save(self) -> None:
        """Write what is in the cells and not on disk, but for chats that are to keep nothing."""
        for place in self.places:
            if self.store is None or place.saver is None or not place.keeps or not len(place.cells):
                continue
            cells = place.cells  # what went wrong before is tried again
            there = self.store.holds(cells.page_keys(cells.past), len(cells))
            cells.pages_on_disk = max(there, cells.lost_pages)
            place.saver.begin_again()
            place.saver.finish()

    def close(self) -> None:
        """Write what waits to be written, and free the context."""
        if self._writer is not None:
            self._writer.close()
        if self.store is not None:
            self.store.close()
        self.context.close()


def _common(cells: Cells, past: Past) -> int:
    return cells.reachable(*shared(cells.past, past)) if len(cells) else 0

"""A pinned prefix in the making: what all chats with one system prompt begin with, computed step by step while nothing
else is wanted, and kept on disk.

Owns the place that it computes in while it does: whatever goes first may take the cells away at any time, and the rest
is computed afterwards, from what is on disk by then. Must not change what a chat says or where it lies, but for the KV
of one that nothing writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from kvchat.backend.protocol import Pin, Pinned, Pinning
from kvchat.backend.values import PromptMessage
from kvchat.engine.cells import Cells, common
from kvchat.engine.context import Context, Task
from kvchat.engine.history import Ids, build_prompt
from kvchat.engine.model import Model
from kvchat.engine.place import Place
from kvchat.engine.saving import Saver, marks
from kvchat.engine.seat import Seat
from kvchat.engine.step import Step
from kvchat.errors import KvchatError
from kvchat.formats.page import chain_tokens, checkpoint_key, pack_ids
from kvchat.formats.past import Past
from kvchat.kv.store import PAGE_TOKENS, PageStore

_SAID = ("A", "0")  # first messages that begin differently


class PinJob:
    """A prefix in the making. `advance` computes a little of it; `suspend` gives the cells back."""

    def __init__(self, command: Pin, model: Model) -> None:
        """KvchatError when nothing of the model can be kept."""
        if not model.geometry.kept:
            raise KvchatError("the state of this model cannot be kept on disk", "its prompts are computed each time")
        self.turn = command.turn
        self.prefix = command.prefix
        self._command = command
        self._model = model
        self._ids: Ids = ()  # until it is begun: a long text takes a while, and answers may be running
        self._reused: int | None = None
        self._done = 0  # tokens that are in the place
        self._steps: Iterator[Pinning | Pinned] | None = None
        self._place: Place | None = None
        self._seat: Seat | None = None

    def advance(self, seat: Seat) -> Pinning | Pinned:
        """One step; Pinned was the last one. Raises Aborted, after which it can go on, or KvchatError."""
        if not self._ids:
            self._ids = prefix_ids(self._command.system, self._command.clock, self._model)
        if not self._ids:
            raise KvchatError("the model's template puts nothing before what a person says", "there is nothing to pin")
        if self._steps is None or self._seat is not seat or self._is_lost:
            self._seat, self._steps = seat, self._run(seat)
        return next(self._steps)

    @property
    def _is_lost(self) -> bool:
        """Whether somebody else has used the place."""
        ids = () if self._place is None else self._place.cells.ids
        return len(ids) != self._done or tuple(ids) != self._ids[: self._done]

    def suspend(self) -> None:
        """The cells are wanted for something else: what is computed goes to the disk."""
        place, self._steps, self._place, self._seat = self._place, None, None, None
        if place is None or place.saver is None:
            return
        place.cells.resync()
        with suppress(KvchatError):
            _keep_state(place.cells, place.saver)
        place.saver.hand_out()
        place.saver.apart = False

    close = suspend

    def _run(self, seat: Seat) -> Iterator[Pinning | Pinned]:
        store, total = seat.store, len(self._ids)
        place = self._place = self._enter(seat)
        saver, cells = place.saver, place.cells
        if store is None or saver is None:
            raise KvchatError("nothing is kept on disk here", "without --no-kv it can be pinned")
        saver.apart = True
        place.reuser.prepare(Past((*self._ids, 0)), 0, keep=True)
        cells.early.commit()  # what was read of it for a draft is wanted on disk now
        if self._reused is None:
            self._reused = len(cells)
        saver.begin()
        yield self._told(len(cells))
        stops = marks(len(cells), total + 1) if cells.memory.recurrent else []
        while (start := len(cells)) < total:
            chunk = seat.context.chunk
            end = min([total, start - start % chunk + chunk, *(stop for stop in stops if stop > start)])
            self._compute(seat.context, place, end)
            saver.advance(end)
            if end in stops:
                _keep_state(cells, saver)
            yield self._told(end)
        yield self._finished(seat, store, saver, cells)

    def _enter(self, seat: Seat) -> Place:
        """A place with room for the prefix, if possible one that no chat is in. Raises KvchatError."""
        total = len(self._ids)
        if total + 1 > seat.context.cells:
            raise KvchatError(
                f"the prefix is too long: it has {total:,} tokens, the context holds {seat.context.cells:,}, and some "
                "must be left for a conversation",
                "a larger context (--ctx-size), or less text",
            )
        seat.save()
        idle = [each for each in seat.places if each not in seat.taken and (each is not seat.front or not each.cells)]
        place = min(idle, key=lambda each: (len(each.cells), each.used), default=seat.front)
        seat.make_room(total, place)
        place.keeps = True
        return place

    def _compute(self, context: Context, place: Place, end: int) -> None:
        """Decode up to token `end`. Raises Aborted or KvchatError. The last logits are kept for the check on resume."""
        cells, start = place.cells, len(place.cells)
        tokens = self._ids[start:end]
        output = int(end == len(self._ids) and not cells.memory.recurrent)
        began = time.perf_counter()
        context.compute([Task(place.track, Step(tokens, start, output))])
        cells.append(tokens, time.perf_counter() - began)

    def _told(self, done: int) -> Pinning:
        self._done = done
        return Pinning(self.turn, done, len(self._ids), self._reused or 0)

    def _finished(self, seat: Seat, store: PageStore, saver: Saver, cells: Cells) -> Pinned:
        saved = saver.finish()
        saver.apart = False
        if saved.problem is not None:
            raise KvchatError(f"the prefix is not kept: {saved.problem}", "is the disk full, or --kv-budget too small?")
        total, keys = len(self._ids), _keys(cells)
        states = [_state_key(cells, total)] if cells.memory.recurrent else []
        size = store.pin(self.prefix, [*keys, *states], total)
        held = seat.held
        return Pinned(
            turn=self.turn,
            prefix=self.prefix,
            tokens=total,
            computed=total - (self._reused or 0),
            size=size,
            seconds=cells.seconds_of(0, total),
            namespace=store.namespace.id,
            last_key=keys[-1],
            model=held.model,
            model_path=str(self._model.path),
            fingerprint=held.fingerprint,
            type_k=held.type_k,
            type_v=held.type_v,
        )


def prefix_ids(system: str, clock: float, model: Model) -> Ids:
    """What the prompts of all chats with this system prompt begin with, whatever is said first."""
    prompts = [
        build_prompt(
            (PromptMessage("system", system), PromptMessage("user", said)),
            template=model.template,
            tokenizer=model,
            history="append",
            clock=clock,
        ).ids
        for said in _SAID
    ]
    return prompts[0][: common(*prompts)]


def _keep_state(cells: Cells, saver: Saver) -> None:
    """Have the present recurrent state written, if there is one. Raises KvchatError."""
    if (snapshot := cells.take_snapshot()) is not None:
        saver.checkpoint(snapshot)


def _keys(cells: Cells) -> list[bytes]:
    """Keys of all pages of the cells, the part-filled last one, too."""
    end = len(cells)
    closed = cells.closed(end)
    keys = [cells.key(number) for number in range(len(closed))]
    start = closed[-1][1] if closed else 0
    if start < end:
        parent = cells.history_key(len(closed), start)
        keys.append(chain_tokens(parent, cells.tag(start, end), cells.ids[start:end]))
    return keys


def _state_key(cells: Cells, length: int) -> bytes:
    """Key of the checkpoint after so many tokens."""
    page = (length - 1) // PAGE_TOKENS
    start = page * PAGE_TOKENS
    return checkpoint_key(cells.history_key(page, start), pack_ids(cells.ids[start:length]))

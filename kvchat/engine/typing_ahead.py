"""Prefill while the person types: the stable part of a draft is computed in a chat's own cells, ahead of its turn.

Owns what is being read ahead and when that makes sense. Reads in small chunks while nothing else is wanted, never
evicts, and never drops what is kept nowhere else. A draft that changed is taken back where the next one parts from it.
Must not write to disk: what it reads is held back (see `Early`) until a turn has the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kvchat.backend.protocol import Event, Generate, ReadAhead, ReadingAhead
from kvchat.engine.asked import Asked, read_request
from kvchat.engine.context import Aborted, Task
from kvchat.engine.evicting import excess, most_positions
from kvchat.engine.history import Ids, build_prompt
from kvchat.engine.model import Model
from kvchat.engine.overflow import EVICTING, MARGIN
from kvchat.engine.place import Place
from kvchat.engine.proving import Proof
from kvchat.engine.seat import Seat
from kvchat.engine.stable import stable_part
from kvchat.engine.step import Step
from kvchat.errors import KvchatError
from kvchat.formats.past import Past, shared

GROUP = 16  # tokens that are worth a computation while the person goes on typing: small ones are dear
STEP = 64  # tokens of one computation, at most: a turn that breaks it off loses no more
PATIENCE = 0.5  # seconds that one shall take, at most

_STATE = "the state of this model cannot be taken back"
_FULL = "the context is nearly full"
_LEAVES = "something has to leave the context first"
_WINDOW = "the rest could not be taken back from the sliding window"
_ALONE = "what is in memory is kept nowhere else"


@dataclass(frozen=True, slots=True)
class _Draft:
    """What is to be read: `stable`, up to `end`. Its first `committed` tokens are those of messages. `place`: where,
    and `restored` tokens came from pages, once it has one. `why`: the reason to read no more."""

    command: ReadAhead
    stable: Past
    committed: int
    end: int
    place: Place | None = None
    restored: int = 0
    why: str = ""

    @property
    def wanted(self) -> Past:
        """All that is to be in the cells."""
        return self.stable.upto(self.end)

    @property
    def uses_disk(self) -> bool:
        """Whether the turn would find pages on disk, and leave some there."""
        return self.command.keep_kv and not self.command.incognito


class TypingAhead:
    """At most one draft, the newest."""

    def __init__(self, model: Model, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._emit = emit
        self._draft: _Draft | None = None
        self._step = STEP

    @property
    def name(self) -> str | None:
        """Of what is being read, None for nothing."""
        return None if self._draft is None else self._draft.command.turn

    def begin(self, command: ReadAhead, seat: Seat) -> None:
        """Read this draft, in place of another one, if there is enough that is new. While turns go on, nothing is read
        and nothing told."""
        self._draft = None
        if seat.taken:
            return
        try:
            draft = self._planned(command, seat)
        except KvchatError:  # the turn itself will say what is wrong with the prompt
            return
        place = seat.best(draft.wanted)
        assert place is not None, "no turn goes on, so every place is free"
        there = _found(draft, place)
        if not draft.why and draft.end - there >= (1 if command.done else GROUP):
            self._draft = draft
        self._tell(draft, place, there)

    def give_way(self) -> None:
        """The cells are wanted for something else. What is read stays in them."""
        self._draft = None

    def advance(self, seat: Seat) -> None:
        """Bring back what is kept, or compute a little. Not while turns go on."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        place = draft.place
        if place is None or place is not seat.front or not _holds_start(place, draft.stable):
            place = seat.best(draft.wanted) or seat.front
            draft = self._bring(draft, place, seat)
        else:
            draft = self._compute(draft, place, seat)
        if not draft.why and len(place.cells) < draft.end:
            self._draft = draft
        self._tell(draft, place, shared(place.cells.past, draft.wanted)[0])

    # ---------------------------------------------------------------- what to read

    def _planned(self, command: ReadAhead, seat: Seat) -> _Draft:
        """What of a draft is stable, and up to where it can be read. Raises KvchatError."""
        memory = seat.context.memory
        if memory.recurrent or not self._model.geometry.kept:
            return _Draft(command, Past(()), 0, 0, why=_STATE)
        request = Generate(
            command.turn,
            command.messages,
            history=command.history,
            clock=command.clock,
            evictions=command.evictions,
        )
        asked = read_request(request, self._model, memory)
        *before, last = asked.request.messages

        def build(text: str) -> Ids:
            return build_prompt(
                (*before, replace(last, text=text)),
                template=self._model.template,
                tokenizer=self._model,
                history=command.history,
                clock=command.clock,
            ).ids

        tokens = stable_part(asked.prompt.ids, last.text, build, done=command.done)
        end = asked.numbering.position(tokens)
        committed = min(end, asked.numbering.position(sum(map(len, asked.prompt.segments[:-1]))))
        limit = min(end, committed + _slack(seat)) if memory.window else end
        return _Draft(command, asked.past.upto(end), committed, limit, why=_why_not(command, asked, seat))

    # ---------------------------------------------------------------- reading

    def _bring(self, draft: _Draft, place: Place, seat: Seat) -> _Draft:
        """Have nothing but the beginning of the draft in the cells of a place, as much of it as there is."""
        if _loses(draft, place, seat):
            return replace(draft, why=_ALONE)
        seat.enter(place)
        cells, restored = place.cells, 0
        if draft.uses_disk and not _holds_early(place, draft):
            restored = place.reuser.warm(draft.wanted).pages
        else:
            cells.truncate(_found(draft, place))
        if cells.past.root != draft.stable.root:  # rows that were moved are gone, and all is computed anew
            draft = replace(draft, stable=draft.stable.anew)
        stands = len(cells.past.evictions) == len(draft.stable.evictions)
        whole = stands and _holds_start(place, draft.stable)
        return replace(draft, place=place, restored=restored, why="" if whole else _LEAVES)

    def _compute(self, draft: _Draft, place: Place, seat: Seat) -> _Draft:
        """A chunk, as long as the cells can be cut to what is committed."""
        cells, start = place.cells, len(place.cells)
        step = min(self._step, seat.context.chunk)
        end = min(draft.end, start - start % step + step)
        tokens = draft.stable.ids[start:end]
        proof = Proof(place.reuser.check, seat.context, cells, place.track.outputs)
        witness = proof.witness(len(tokens))
        cells.early.hold(draft.committed if draft.uses_disk else 0)
        began = time.perf_counter()
        try:
            seat.context.compute([Task(place.track, Step(tokens, start, 0, witness=witness))])
        except Aborted:
            cells.resync()
            cells.early.lost(len(tokens))
            return draft
        except KvchatError as error:
            cells.resync()
            return replace(draft, why=error.message)
        if not proof.stands(tokens, witness, 0):
            place.reuser.condemn()
            return replace(draft, place=None)
        seconds = time.perf_counter() - began
        cells.append(tokens, seconds)
        cells.early.read(start, end)
        self._learn(len(tokens), seconds)
        stuck = cells.reachable(draft.committed) < draft.committed < end
        return replace(draft, end=end) if stuck else draft

    def _learn(self, tokens: int, seconds: float) -> None:
        """How many tokens are computed at once from now on."""
        each = seconds / tokens
        if self._step * each > PATIENCE:
            self._step = max(GROUP, self._step // 2)
        elif 2 * self._step * each < PATIENCE:
            self._step = min(STEP, 2 * self._step)

    def _tell(self, draft: _Draft, place: Place, there: int) -> None:
        cells = place.cells
        same, _ = shared(cells.past, draft.stable)
        limited = there == draft.end < len(draft.stable.ids)
        self._emit(
            ReadingAhead(
                turn=draft.command.turn,
                tokens=excess(draft.stable, 1),
                there=excess(draft.stable.upto(there), 1),
                restored=draft.restored,
                read=cells.early.used(same),
                wasted=cells.early.wasted(same),
                why=draft.why or (_WINDOW if limited else ""),
            )
        )


def _why_not(command: ReadAhead, asked: Asked, seat: Seat) -> str:
    """Why a prompt cannot be read before its turn; "" if it can."""
    cells = seat.context.cells
    positions = most_positions(seat.model.geometry.context_trained, cells)
    reserve = cells // 4 if command.overflow in EVICTING else MARGIN
    if asked.thought is not None:
        return _LEAVES
    if excess(asked.past, cells) + reserve > 0:
        return _FULL
    if asked.past.evictions and 0 < positions < len(asked.past.ids) + cells // 4:
        return _LEAVES
    return ""


def _slack(seat: Seat) -> int:
    """So many tokens can be read behind a window that is still needed, before the first of its rows is written over:
    a chat that is alone has the cells of all sequences, and those of a batch."""
    context = seat.context
    return seat.model.geometry.window * (context.native.sequences - 1) + context.chunk


def _holds_start(place: Place, stable: Past) -> bool:
    """Whether nothing but the beginning of the draft is in the cells."""
    return shared(place.cells.past, stable)[0] == len(place.cells)


def _holds_early(place: Place, draft: _Draft) -> bool:
    """Whether tokens that were read before are to stay, and no page has more: to put a window in order would take rows
    that lead back to what is committed."""
    found = _found(draft, place)
    return place.cells.early.used(found) > 0 and found <= len(place.cells)


def _found(draft: _Draft, place: Place) -> int:
    """How many tokens of a draft need not be computed in a place."""
    if draft.uses_disk:
        return place.reuser.plan(draft.wanted, draft.end).end
    if draft.command.keep_kv:
        return place.resident.plan(draft.wanted, draft.end).end
    return place.reuser.read_early(draft.wanted)


def _loses(draft: _Draft, wanted: Place, seat: Seat) -> bool:
    """Whether reading would take tokens of messages out of the cells that are not on disk."""
    for place in seat.places:
        cells = place.cells
        kept = cells.reachable(*shared(cells.past, draft.wanted)) if place is wanted else 0
        if not place.keeps or kept >= cells.writable:
            continue
        if place.saver is None or cells.pages_on_disk < len(cells.closed(cells.writable)):
            return True
    return False

"""Drafts for a chat: which drafter is asked, what becomes of its drafts, and what a turn tells of them.

Owns the lookup, the control and the counts of a turn; the draft model belongs to its `Companion`. Must not decode with
the model that is drafted for, or touch its cells: checking drafts is the business of `Decoding`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvchat.backend.protocol import Drafted, Generate
from kvchat.backend.values import Usage
from kvchat.engine.acceptance import ANY, MOST
from kvchat.engine.draft_control import DraftControl, Outcome
from kvchat.engine.draft_costs import CostCurve
from kvchat.engine.drafting import Draft, Drafter, DrafterKind, Reach
from kvchat.engine.ngram import NgramDrafter
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction

_WATCHED = 4  # tokens of a draft that is only watched
_SAID = MOST + 1  # tokens that may have been said since the last draft; who lacks more reads the past
_FEW = 8  # drafts that were watched, and none used: then the turn says that drafts do not pay
PAUSED = "paused: too few drafted tokens were right to pay for checking them"
NO_MODEL = "no draft model is loaded"


class Speculation:
    """What a session knows of drafting: the control, and the index of what was said."""

    def __init__(self, costs: Sequence[float], *, on_gpu: bool) -> None:
        """`costs`: the measured curve, see CostCurve; empty: none."""
        self.control = DraftControl(CostCurve(costs, on_gpu=on_gpu))
        self.lookup: Drafter = NgramDrafter()
        self._on_gpu = on_gpu

    def measured(self, costs: Sequence[float]) -> None:
        """The cost curve was measured anew."""
        self.control.costs = CostCurve(costs, on_gpu=self._on_gpu)

    def wants(self, kind: DrafterKind) -> bool:
        """Whether drafts of this kind are thought to pay in the chat of the last turn."""
        return self.control.believes_in(kind)

    def begin(self, request: Generate, model: Drafter | None, ends_generation: Callable[[int], bool]) -> Drafts:
        """A turn begins; `model` is the draft model, if there is one."""
        mode = request.draft
        given: list[Drafter] = [self.lookup] if mode in ("ngram", "auto") else []
        pair, share = "", 0.0
        if model is not None and mode in ("model", "auto"):
            given.append(model)
            pair, share = model.pair, model.share
        self.control.begin(request.draft_memory, forced=mode in ("ngram", "model"), pair=pair, share=share)
        return Drafts(request, given, self.control, ends_generation)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A draft that was not used, and where in the ids it would have begun."""

    trust: int
    at: int
    tokens: tuple[int, ...]


class Drafts:
    """The drafts of one turn. A step is `next`, then `plain`, `repeated` or `checked`; at its end comes `finish`."""

    def __init__(
        self,
        request: Generate,
        drafters: Sequence[Drafter],
        control: DraftControl,
        ends_generation: Callable[[int], bool],
    ) -> None:
        self._turn = request.turn
        self._memory = request.draft_memory
        self._drafters = list(drafters)
        self._given = tuple(drafters)
        self._begun: list[Drafter] = []
        self._reaches: dict[DrafterKind, Reach] = {}  # of those that have not begun
        self._control = control
        self._ends = ends_generation
        self._note = NO_MODEL if request.draft == "model" and not drafters else None
        self._watches: dict[DrafterKind, _Watch] = {}
        self._watched = 0
        self._drafting: tuple[DrafterKind, int] = ("ngram", 0)  # kind and class of the draft that is being checked
        self._kinds: set[str] = set()
        self._proposed = self._accepted = self._steps = 0
        self._seconds = 0.0

    def evicted(self, log: Sequence[Eviction]) -> None:
        """What has left the cells of the model that is drafted for."""
        self._reaches = {}
        for drafter in self._given:
            drafter.evicted(log)

    def next(self, ids: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` tokens that may follow `ids`, worth checking; none: a plain step. May raise Aborted."""
        self._look(ids)
        if most < 1 or self._control.wants_plain:
            return ()
        for drafter in list(self._drafters):
            began = time.perf_counter()
            try:
                found = self._ask(drafter, ids, min(most, MOST))
            except KvchatError as error:
                self._drop(drafter, error.message)
                continue
            finally:
                self._seconds += time.perf_counter() - began
            if found:
                return found
        return ()

    def _ask(self, drafter: Drafter, ids: Sequence[int], most: int) -> tuple[int, ...]:
        kind, control = drafter.kind, self._control
        length = most if kind == "ngram" else control.length(kind, ANY, most)
        if length < 1:
            return ()
        if not self._may_catch_up(drafter, ids):
            return ()
        if drafter not in self._begun:
            self._begin(drafter, ids)
        reads = drafter.behind(ids) > _SAID
        began = time.perf_counter()
        draft = self._cut(drafter.draft(ids, length))
        seconds = time.perf_counter() - began
        if reads:
            control.spent(seconds)
        else:
            control.drafted(kind, len(draft.tokens), seconds)
        used = control.length(kind, draft.trust, len(draft.tokens), drafted=True)
        if not used:
            self._begin_watch(kind, draft, len(ids))
        self._drafting = kind, draft.trust
        return draft.tokens[:used]

    def _may_catch_up(self, drafter: Drafter, ids: Sequence[int]) -> bool:
        """Whether it can draft at once, or what it lacks is worth its time."""
        if drafter in self._begun:
            behind, seconds = drafter.behind(ids), 0.0
        else:
            reach = self._reach(drafter, ids)
            behind, seconds = len(ids) - 1 - reach.tokens, reach.seconds
        if behind <= _SAID and not seconds:
            return True
        each = drafter.read_seconds or self._control.reading
        return self._control.may_catch_up(seconds + max(0, behind) * each)

    def _reach(self, drafter: Drafter, ids: Sequence[int]) -> Reach:
        """As it is at its first question in this turn: nothing but the turn moves it."""
        if drafter.kind not in self._reaches:
            began = time.perf_counter()
            self._reaches[drafter.kind] = drafter.reach(ids)
            self._control.spent(time.perf_counter() - began)
        return self._reaches[drafter.kind]

    def _begin(self, drafter: Drafter, ids: Sequence[int]) -> None:
        began = time.perf_counter()
        self._begun.append(drafter)
        try:
            drafter.begin(ids)
        finally:
            self._control.spent(time.perf_counter() - began)

    def _cut(self, draft: Draft) -> Draft:
        """Without what would end the reply, and what comes after that: it is never decoded."""
        end = next((i for i, token in enumerate(draft.tokens) if self._ends(token)), len(draft.tokens))
        return replace(draft, tokens=draft.tokens[:end])

    def _drop(self, drafter: Drafter, why: str) -> None:
        """One that fails is not asked again in this turn."""
        self._drafters.remove(drafter)
        self._note = f"{'the draft model' if drafter.kind == 'model' else 'the lookup'} failed: {why}"

    def _begin_watch(self, kind: DrafterKind, draft: Draft, at: int) -> None:
        if draft.tokens and kind not in self._watches:
            self._watches[kind] = _Watch(draft.trust, at, draft.tokens[:_WATCHED])
            self._watched += 1

    def _look(self, ids: Sequence[int]) -> None:
        """Compare drafts that were not used with what came instead."""
        for kind, watch in list(self._watches.items()):
            came = ids[watch.at : watch.at + len(watch.tokens)]
            stood = next((i for i, token in enumerate(came) if token != watch.tokens[i]), len(came))
            if stood < len(came) or stood == len(watch.tokens):
                self._control.watched(kind, watch.trust, len(watch.tokens), stood)
                del self._watches[kind]

    # ---------------------------------------------------------------- how it went

    def plain(self, seconds: float) -> None:
        """A decode of one token."""
        self._control.plain_step(seconds)

    def repeated(self, seconds: float) -> None:
        """A decode without a draft, of which all tokens but one had been decoded before."""
        self._control.repeated(seconds)

    def checked(self, outcome: Outcome) -> None:
        """A decode with the draft that came last."""
        kind, trust = self._drafting
        self._control.verified(kind, trust, outcome)
        self._kinds.add(kind)
        self._proposed += outcome.tokens
        self._accepted += outcome.stood
        self._steps += 1

    def refuse(self, why: str) -> None:
        """What is drafted cannot be checked: nothing more is drafted in this turn."""
        self._drafters, self._note = [], why

    def news(self) -> Drafted:
        """How it goes so far."""
        return Drafted(self._turn, self._kind, self._proposed, self._accepted, self._control.speedup)

    def finish(self, ids: Sequence[int]) -> None:
        """The turn is over; `ids` is all that was told."""
        for drafter in self._begun:
            drafter.finish(ids)

    def usage(self, usage: Usage) -> Usage:
        """The cost of a turn, with what drafts had a share in."""
        idle = self._watched >= _FEW and not self._steps
        return replace(
            usage,
            draft_kind=self._kind,
            draft_proposed=self._proposed,
            draft_accepted=self._accepted,
            draft_steps=self._steps,
            draft_seconds=self._seconds,
            draft_speedup=self._control.speedup,
            draft_note=self._note or (PAUSED if idle else None),
            draft_memory=self._control.acceptance.told() or self._memory,
        )

    @property
    def _kind(self) -> str:
        return "both" if len(self._kinds) > 1 else next(iter(self._kinds), "off")

"""Room in the cells of one turn: evictions that the chat's log asks for, and new ones when the context is full.

Owns when something leaves and what is told of it; `overflow` chooses what. An eviction comes only between two steps,
and only when all that the cells hold is told, so that nothing is ever taken back to a time before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvchat.backend.protocol import Event, Evicted, Generate, Way
from kvchat.backend.values import PromptMessage
from kvchat.engine.cells import Cells
from kvchat.engine.history import Prompt
from kvchat.engine.overflow import EVICTING, MARGIN, SINKS, Full, choose
from kvchat.engine.past_thoughts import PastThoughts
from kvchat.engine.scoring import key_norms
from kvchat.errors import KvchatError
from kvchat.formats.past import READ, Eviction, Numbering, Past, Range, count, dead, joined, live, resolve
from kvchat.kv.transcode import Quants


class Holder(Protocol):
    """Who keeps what the cells hold: it is told before something goes, and after."""

    def before_eviction(self) -> None: ...
    def evicted(self) -> None: ...


class Room:
    """The room of one turn. `tokens` left in it, in `times` evictions of its own; `why`: the policy that did that."""

    def __init__(
        self,
        request: Generate,
        cells: Cells,
        context: int,
        trained: int,
        head: int,
        quants: Quants,
        holder: Holder,
        emit: Callable[[Event], None],
    ) -> None:
        """`context`: cells in all; `trained`: positions that the model was trained for, 0: not known; `head`: elements
        of a K head."""
        self._request = request
        self._cells = cells
        self._context = context
        self._positions_at_most = most_positions(trained, context)
        self._head = head
        self._quants = quants
        self._holder = holder
        self._emit = emit
        self._wanted: tuple[Eviction, ...] = ()
        self._numbering = Numbering()
        self._kept: list[Range] = []
        self._turns: list[Range] = []
        self.tokens = 0
        self.times = 0

    @property
    def can_evict(self) -> bool:
        """Whether single tokens can leave these cells."""
        return bool(self._cells.memory.layout.parts) and not self._cells.memory.recurrent

    @property
    def acts(self) -> bool:
        """Whether a full context is more than the end of the answer."""
        return self._request.overflow in ("shift", "sinks", "prune") and self.can_evict

    @property
    def margin(self) -> int:
        """Free cells that are left while nothing has to leave."""
        return MARGIN if self.acts else 0

    def begin(self, prompt: Past, numbering: Numbering, segments: Sequence[Sequence[int]], system: int) -> None:
        """The prompt is known. `segments`: ids of each message as the log has them, see `Numbering`; `system`: tokens
        of the system prompt."""
        self._wanted, self._numbering = prompt.evictions, numbering
        self._kept, self._turns = [(0, max(SINKS, system))], []  # as the log has them
        at, first, pinned = 0, None, False
        for number, (message, ids) in enumerate(zip(self._request.messages, segments, strict=True)):
            start, at = at, at + len(ids)
            if message.role == "user":
                first = start
            pinned = pinned or number in self._request.pinned
            if pinned and ids:  # two messages of a person in a row have their tokens in the second
                self._kept.append((start, at))
                pinned = False
            if message.role == "assistant" and first is not None and number < len(segments) - 1:
                self._turns.append((first, at))
                first = None

    def _positions(self, ranges: Sequence[Range]) -> list[Range]:
        place = self._numbering.position
        return [(place(start), place(end)) for start, end in ranges]

    def replays(self) -> bool:
        """Whether there are cells for what the log has from here on: it may be of a larger context."""
        there = len(self._cells.past.evictions)
        behind = ((each.at, self._wanted[:number]) for number, each in enumerate(self._wanted) if number >= there)
        return all(at - count(dead(before, at)) <= self._context for at, before in behind)

    def next_eviction(self) -> int | None:
        """After how many tokens the history of the prompt goes on with an eviction."""
        there = len(self._cells.past.evictions)
        return self._wanted[there].at if there < len(self._wanted) else None

    def catch_up(self) -> None:
        """Carry out what the log has at this point. Raises KvchatError."""
        while self.next_eviction() == len(self._cells):
            self._evict(self._wanted[len(self._cells.past.evictions)].ranges)

    def fits(self, needed: int) -> bool:
        """Whether `needed` more tokens can be decoded, and nothing is to leave before."""
        return self._context - self._cells.live >= needed + self.margin

    def make(self, needed: int, told: int) -> bool:
        """Whether `needed` more tokens can be decoded; where they cannot, let some leave if `told` tokens are all that
        the cells hold. Raises KvchatError when what leaves cannot."""
        free = self._context - self._cells.live
        if self.has_run_out(needed):
            return False  # beside a reply no others are given; the next turn does
        if self.fits(needed) or not self.acts:
            return free >= needed
        if told < len(self._cells) or self.next_eviction() is not None:  # a log is in order
            return free >= needed
        ranges = self._choose(needed, self._cells.past)
        if ranges:
            began = time.perf_counter()
            eviction = self._evict(ranges)
            self._tell(eviction, began)
        return self._context - self._cells.live >= needed

    def _tell(self, eviction: Eviction, began: float) -> None:
        self.tokens += eviction.tokens
        self.times += bool(eviction.tokens)  # positions alone are no room
        logged, seconds = self._numbering.logged(eviction), time.perf_counter() - began
        self._emit(Evicted(self._request.turn, logged, self._request.overflow, seconds))

    # ---------------------------------------------------------------- positions

    def runs_out(self, length: int) -> bool:
        """Whether a turn with a prompt of `length` tokens would come to positions that there are not, and something has
        left, or would, so that others can be given."""
        reserve = min(self._request.sampling.max_tokens or self._context, self._context // 4)
        gone = bool(self._wanted) or (self.acts and length + reserve > self._context)
        return gone and self._is_beyond(length + reserve)

    def has_run_out(self, needed: int) -> bool:
        """Whether there are no positions for `needed` more tokens, and something has left, so that others can be given.
        What the log has is carried out first, wherever that leads."""
        left = bool(self._cells.past.evictions) and self.next_eviction() is None
        return left and self._is_beyond(len(self._cells) + needed)

    def _is_beyond(self, length: int) -> bool:
        return 0 < self._positions_at_most < length

    def renumber(self, past: Past, needed: int) -> Past | None:
        """Give what stays of `past` positions from 0 on, and let some leave where it is too much with `needed` more
        tokens: keys are turned where the cells hold it and llama.cpp can do that, else what stands behind a gap is
        computed again. What the cells shall hold; None: nothing has left or leaves, so there are no other positions.
        Raises KvchatError."""
        began, cells, at = time.perf_counter(), self._cells, len(past.ids)
        reserve = min(self._request.sampling.max_tokens or self._context, self._context // 4)
        holes = dead(past.evictions, at)
        lacks = at - count(holes) + needed + reserve > self._context
        ranges = self._choose(needed + reserve, past) if lacks else []
        if not holes and not ranges:
            return None
        self._holder.before_eviction()
        stay = live(0, at, joined([*holes, *ranges]))
        eviction = self._moved(ranges) if cells.memory.can_move and self._is_there(past) else None
        if eviction is not None:
            past = cells.past
        else:
            eviction = Eviction(at, tuple(ranges), READ)
            past = Past([token for start, end in stay for token in past.ids[start:end]])
            cells.truncate(min(stay[0][1], len(cells)))
        self._holder.evicted()
        self._tell(eviction, began)
        self._wanted, self._numbering = (), self._numbering.renewed(eviction.at, stay)
        return past

    def _moved(self, ranges: Sequence[Range]) -> Eviction | None:
        try:
            return self._cells.move(ranges)
        except KvchatError:  # beside other chats there may be no room for that: all is read again
            return None

    def ways(self) -> tuple[Way, ...]:
        """What each policy would let go now, where the one of this turn is to stop. Keys are not read for that."""
        if self._request.overflow != "stop" or not self.can_evict:
            return ()
        found = []
        for policy in EVICTING:
            ranges = choose(policy, self._full(1, self._cells.past), lambda parts: np.zeros(count(parts), np.float32))
            logged = self._numbering.logged(Eviction(len(self._cells), tuple(ranges)))
            if ranges:
                found.append(Way(policy, logged.tokens, () if policy == "prune" else logged.ranges))
        return tuple(found)

    def _is_there(self, past: Past) -> bool:
        return len(self._cells) == len(past.ids) and self._cells.past.evictions == past.evictions

    def _choose(self, needed: int, past: Past) -> list[Range]:
        """What leaves of a history so that `needed` more tokens have room."""
        policy = self._request.overflow
        if policy == "prune" and not self._is_there(past):
            policy = "sinks"  # there are no keys to look at
        return choose(policy, self._full(needed, past), self._norms) if policy in EVICTING else []

    def _full(self, needed: int, past: Past) -> Full:
        length = len(past.ids)
        return Full(
            length=length,
            holes=dead(past.evictions, length),
            cells=self._context,
            needed=needed,
            kept=self._positions(self._kept),
            turns=[(start, min(end, length - 1)) for start, end in self._positions(self._turns) if start < length - 1],
            budget=self._context * 3 // 4,
        )

    def _norms(self, ranges: Sequence[Range]) -> npt.NDArray[np.float32]:
        return key_norms(self._cells.memory, ranges, self._quants, self._head)

    def _evict(self, ranges: Sequence[Range]) -> Eviction:
        self._holder.before_eviction()
        eviction = self._cells.evict(ranges)
        self._holder.evicted()
        return eviction


def prompt_past(
    prompt: Prompt, messages: Sequence[PromptMessage], log: Sequence[Eviction], thoughts: PastThoughts | None
) -> tuple[Past, Numbering, Eviction | None]:
    """The history that a prompt goes on from, and its end, where it is to be. `thoughts` None: reasoning stays. Else
    what of it must leave now, as the log is to have it, is a part of the history already: it leaves in front of the
    last question, whether that was computed before or not, unless something left after that."""
    past, numbering = resolve(prompt.ids, [each for each in log if each.at <= prompt.past])
    question = max(number for number, message in enumerate(messages) if message.role == "user")
    end = min(prompt.past, sum(map(len, prompt.segments[:question])))
    at = numbering.position(end)
    if thoughts is None or not at or end < numbering.at or any(each.at > at for each in past.evictions):
        return past, numbering, None
    gone = dead(past.evictions, at)
    found = [
        part
        for start, end in thoughts.ranges(messages, prompt.segments)
        for part in live(numbering.position(start), numbering.position(end), gone)
        if part[1] < at
    ]
    if not found:
        return past, numbering, None
    eviction = Eviction(at, tuple(joined(found)))
    return replace(past, evictions=(*past.evictions, eviction)), numbering, numbering.logged(eviction)


def most_positions(trained: int, context: int) -> int:
    """Positions that a chat can come to: those that the model was trained for, or of a context that was asked to be
    larger than that. 0: not known, and so no limit."""
    return trained and max(trained, context)


def excess(prompt: Past, context: int) -> int:
    """So many tokens too many a prompt has for a context: the reply needs a cell, too."""
    gone = sum(eviction.tokens for eviction in prompt.evictions)
    return len(prompt.ids) - gone + 1 - context

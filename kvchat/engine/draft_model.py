"""A smaller model of the same vocabulary, that drafts greedily: its cells, its pages, and what it has read of the chat.

Owns the draft model's context, which follows the target's ids and lives as the target's does: a resident prefix, pages
on disk, checkpoints where its state is recurrent. What leaves the target's context leaves this one too, at the same
place, so that it is never read again for that; a recurrent state keeps it, as long as there is room. Where the target
gives its tokens new positions, they are read anew. Must not know the target's cells, or whether its drafts pay. What it
reads in a turn is bounded; the rest it reads while nobody wants the engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import DraftInfo
from kvchat.engine.cells import common
from kvchat.engine.context import Aborted
from kvchat.engine.drafting import Draft, DrafterKind, Reach
from kvchat.engine.seat import Seat
from kvchat.errors import KvchatError
from kvchat.formats.gguf import model_name
from kvchat.formats.past import Eviction, Past, shared

READ_AT_ONCE = 32  # tokens of the past that are read in one call while a turn waits
LEAST_CERTAIN = 0.25  # a draft ends before a token to which its own model gives a smaller probability
TRUST = (0.5, 0.8)  # probabilities of the first token that part the classes of drafts
_RESTORED = 1e9  # bytes of pages that come back from the disk in a second, at least
_TIMED = 8  # tokens that are read at once from which on the time for one is that of reading the past
_WEIGHT = 0.2  # of the newest measurement

_Stage = Literal["restore", "restore only", "read", "done"]


class DraftModel:
    """The drafter of kind "model". See `Drafter` for the order of calls; `follow` and `advance` come between turns."""

    kind: DrafterKind = "model"

    def __init__(self, seat: Seat, vocabulary: int, *, pair: str, share: float) -> None:
        """`seat` and its model are its own, and are closed with it. `vocabulary`: tokens that the target knows. `pair`,
        `share`: see `Drafter`."""
        self.seat = seat
        self.pair = pair
        self.share = share
        self.read_seconds = 0.0
        self._native = seat.model.native
        self._vocabulary = min(vocabulary, self._native.vocab_size)
        self._log: tuple[Eviction, ...] = ()  # what left the target
        self._keeps = True
        self._told = Past(())  # committed text, which may be kept on disk
        self._agreed = 0  # so many leading cells hold the ids of the last call
        self._stage: _Stage = "done"

    def info(self) -> DraftInfo:
        """What is loaded, with the bytes of its weights and of its cache."""
        path = self.seat.model.path
        return DraftInfo(model_name(path), str(path), self._native.bytes, self.seat.context.allocated_bytes)

    def close(self) -> None:
        """Write what was told and is not written yet, and free everything."""
        try:
            self._save()
        except KvchatError:  # it is read again
            self._stage = "done"
        self.seat.close()
        self._native.close()

    # ---------------------------------------------------------------- in a turn

    def keep(self, keep: bool) -> None:
        """Whether the next turn reuses and saves KV. What was read in turns that do not is not there any more then."""
        if keep and not self._keeps:
            self._told, self._stage, self._agreed = Past(()), "done", 0
            self.seat.front.release()
        self._keeps = keep

    def reach(self, ids: Sequence[int]) -> Reach:
        """What is resident of `ids` and what pages hold."""
        if not self._keeps or not self._can_read(ids):
            return Reach(0)
        start = self.seat.reuser.plan(Past(ids, self._log).upto(len(ids) - 1), len(ids))
        size = self.seat.context.allocated_bytes / self.seat.context.cells  # of a token
        return Reach(start.end, (start.end - start.kept) * size / _RESTORED)

    def evicted(self, log: Sequence[Eviction]) -> None:
        """What shall leave here, too; where it can."""
        self._log = self._leaving(log)

    def _leaving(self, log: Sequence[Eviction]) -> tuple[Eviction, ...]:
        memory = self.seat.cells.memory
        return tuple(log) if memory.layout.parts and not memory.recurrent else ()

    def begin(self, ids: Sequence[int]) -> None:
        """Bring back what is kept of `ids`. Raises KvchatError when they cannot be drafted after."""
        self._stage = "done"
        if not self._can_read(ids):
            raise KvchatError("the draft model lacks a token of this chat", "the chat goes on without it")
        self.seat.reuser.prepare(Past(ids, self._log), len(ids), keep=self._keeps)
        self._agreed = len(self.seat.cells)

    def behind(self, ids: Sequence[int]) -> int:
        """Tokens of `ids` before the last one that are to be read; 0 also where they are more than it can hold."""
        past = Past(ids, self._log)
        fits = len(ids) <= self._room(past)
        return max(0, len(ids) - 1 - self._shared(past)) if fits else 0

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        """Greedy tokens, until one is uncertain, is unknown to the target or ends the reply."""
        cells, past = self.seat.cells, Past(ids, self._log)
        room = self._room(past) - len(ids) + 1  # the last drafted token needs no cell
        if room < 1 or not self._can_read(ids[self._agreed :]):
            return Draft()
        cells.truncate(min(self._shared(past), len(ids) - 1))
        if not self._catch_up(past):
            return Draft()
        cells.take_snapshot()
        return self._guess(min(most, room))

    def _catch_up(self, past: Past) -> bool:
        """Read what is missing of a history, as far as it goes in one call. Whether all of it is there."""
        cells, most = self.seat.cells, len(self.seat.cells) + READ_AT_ONCE
        while (start := len(cells)) < min(len(past.ids), most):
            end = min(self._let_go(past), most)
            self._read(past.ids[start:end], output=end == len(past.ids))
        self._agreed = len(cells)
        return len(cells) == len(past.ids)

    def _guess(self, most: int) -> Draft:
        tokens: list[int] = []
        first = 0.0
        while len(tokens) < most:
            if tokens:
                self._read(tokens[-1:], output=True)
            token, certainty = likeliest(self.seat.context.logits())
            if not certainty >= LEAST_CERTAIN or token >= self._vocabulary:
                break
            first = first or certainty
            tokens.append(token)
            if self._native.ends_generation(token):
                break
        return Draft(tuple(tokens), sum(first >= bound for bound in TRUST))

    def finish(self, ids: Sequence[int]) -> None:
        """The turn is over. What it did not read of `ids` it reads by and by, unless they are not to be kept."""
        if self._keeps:
            self.follow(Past(ids, self._log))

    # ---------------------------------------------------------------- between turns

    def follow(self, past: Past, *, read: bool = True) -> None:
        """`past` is committed text, with which the target will go on: what `advance` is to bring back and, with `read`,
        to compute as far as it is not on disk."""
        self._told = Past(tuple(past.ids), self._leaving(past.evictions))
        self._stage = "restore" if read else "restore only"

    def forget(self) -> None:
        """Let go of all that was read and told."""
        self._told, self._stage, self._agreed = Past(()), "done", 0
        self.seat.forget()

    def rest(self) -> None:
        """Nothing is to be read until something is told again."""
        self._stage = "done"

    @property
    def is_behind(self) -> bool:
        """Whether `advance` has something to do."""
        return self._stage != "done"

    def advance(self) -> None:
        """One step towards what was told: bring it back from the disk, read a chunk of the rest, at last save it.
        Raises Aborted, after which it can go on, or KvchatError."""
        past = self._told.upto(self._room(self._told))
        ids, start = past.ids, len(self.seat.cells)
        if not self._can_read(ids):
            self._stage = "done"
        elif self._stage in ("restore", "restore only"):
            # the last id of a prompt is never restored, since its logits are wanted; here none are, so one is added
            self.seat.reuser.prepare(replace(past, ids=(*ids, 0)), len(ids), keep=True)
            self._stage = "read" if self._stage == "restore" else "done"
        elif start < len(ids):
            chunk = self.seat.context.chunk
            self._read(ids[start : min(start - start % chunk + chunk, self._let_go(past))], output=False)
            self.seat.cells.take_snapshot()
        else:
            self._stage = "done"
            self._save()

    def _save(self) -> None:
        """Hand what is read of the told text to the writer, without waiting for the disk. May raise KvchatError."""
        cells, saver = self.seat.cells, self.seat.saver
        if saver is None or not self._keeps:
            return
        cells.truncate(cells.reachable(*shared(cells.past, self._told)))
        saver.begin()
        state = cells.take_snapshot() or cells.last_snapshot
        if state is not None and state.length == len(cells):
            saver.checkpoint(state)
        saver.hand_out()

    # ---------------------------------------------------------------- reading

    def _room(self, past: Past) -> int:
        """How many leading tokens of a history there is room for, with what leaves on the way."""
        cells = room = self.seat.context.cells
        for eviction in past.evictions:
            if eviction.at > room:
                break
            cells += eviction.tokens
            room = cells
        return min(room, self.seat.model.geometry.context_trained or room)

    def _let_go(self, past: Past) -> int:
        """Let go of what leaves at this point of a history; up to which token it can be read then."""
        cells, saver = self.seat.cells, self.seat.saver
        while (there := len(cells.past.evictions)) < len(past.evictions):
            eviction = past.evictions[there]
            if eviction.at > len(cells):
                return min(eviction.at, len(past.ids))
            if saver is not None and self._keeps:
                saver.begin()
                saver.before_eviction()
            cells.evict(eviction.ranges)
        return len(past.ids)

    def _shared(self, past: Past) -> int:
        """To how many tokens of a history the cells can be cut."""
        cells = self.seat.cells
        if cells.past.evictions == past.evictions:
            return self._agreed + common(cells.ids[self._agreed :], past.ids[self._agreed :])
        return cells.reachable(*shared(cells.past, past))

    def _can_read(self, ids: Sequence[int]) -> bool:
        return max(ids, default=0) < self._native.vocab_size

    def _read(self, tokens: Sequence[int], *, output: bool) -> None:
        cells = self.seat.cells
        began = time.perf_counter()
        whole = cells.memory.recurrent and len(tokens) <= READ_AT_ONCE  # else the state would be spoilt
        try:
            self.seat.context.decode(tokens, len(cells), output=output, whole=whole)
        except (Aborted, KvchatError):
            cells.resync()
            self._agreed = min(self._agreed, len(cells))
            raise
        seconds = time.perf_counter() - began
        cells.append(tokens, seconds)
        if len(tokens) >= _TIMED:
            each = seconds / len(tokens)
            self.read_seconds += (_WEIGHT if self.read_seconds else 1.0) * (each - self.read_seconds)


def likeliest(logits: npt.NDArray[np.float32]) -> tuple[int, float]:
    """The token with the largest logit, and its probability (0 to 1). Not a number where a logit is none."""
    token = int(logits.argmax())
    return token, 1.0 / float(np.exp(logits - logits[token]).sum())

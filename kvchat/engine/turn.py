"""One turn: reuse, prefill, decode, finish, as a generator of small steps.

Owns the state of one answer. Asks for decodes by yielding them and never decodes itself, so that whoever drives it
decides about batching and order. Must not touch the pipe: it hands events to `emit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import NoReturn

from kvchat.backend.protocol import Event, Evicted, PromptProgress, PromptReady, Restored, Way
from kvchat.backend.values import FinishReason, Usage
from kvchat.engine.asked import Asked, TooLongError
from kvchat.engine.context import Context
from kvchat.engine.decoding import Decoding
from kvchat.engine.evicting import Room, excess
from kvchat.engine.history import computed_before
from kvchat.engine.model import Model
from kvchat.engine.place import Place
from kvchat.engine.proving import Proof
from kvchat.engine.reply import Reply
from kvchat.engine.saving import marks
from kvchat.engine.speculate import Drafts
from kvchat.engine.step import Done, Step, Steps, Witness
from kvchat.engine.writing import Saved
from kvchat.errors import KvchatError
from kvchat.kv.fit import OUTPUTS
from kvchat.kv.transcode import Quants


class Refuted(Exception):
    """What was restored does not do what it did when it was saved: nothing that the cells hold may be used."""


class Turn:
    """One answer in the making."""

    reason: FinishReason = "error"

    def __init__(
        self,
        asked: Asked,
        model: Model,
        context: Context,
        place: Place,
        drafts: Drafts,
        quants: Quants,
        emit: Callable[[Event], None],
    ) -> None:
        self.request = request = asked.request
        self.place = place
        self._asked = asked
        self._model = model
        self._context = context
        self._cells = cells = place.cells
        self._reuser = place.resident if request.incognito else place.reuser
        self._saver = place.saver if asked.keeps else None
        self._emit = emit
        self._drafts = drafts
        self._reply = Reply(request.turn, request.sampling.stop, model, emit)
        self._decoding: Decoding | None = None
        self._proof = Proof(place.reuser.check, context, cells, place.track.outputs)
        trained, head = model.geometry.context_trained, model.geometry.head_k
        self._room = Room(request, cells, context.cells, trained, head, quants, self, emit)
        self._renumber_at: int | None = None
        self._past, self._numbering = asked.past, asked.numbering
        self._start = 0  # tokens of the prompt that were there before it was computed
        self._prepared = False
        self._usage = Usage()
        self._beside = 0  # the most other turns that were computed together with this one

    @property
    def has_read(self) -> bool:
        """Whether the prompt is computed."""
        return self._decoding is not None

    def steps(self) -> Steps:
        """The decodes of this turn. When it is exhausted, `reason` says why."""
        self._begin()
        self._reuse_past()
        try:
            yield from self._prefill()
        except Refuted:
            self._start_over()
            yield from self._prefill()
        yield from self._decode()

    def finish(self) -> Usage:
        """Send what is left of the text, write the tail to disk; the cost of the turn. Right after any failure, too."""
        self._reply.finish()
        self._read_decoding()
        saved = Saved()
        if self._prepared:
            self._cells.resync()
            self._cells.truncate(self._told)
            self._take_checkpoint()
            if self._saver is not None:
                saved = self._saver.finish()
        self._drafts.evicted(self._cells.past.evictions)
        self._drafts.finish([*self._past.ids, *self._reply.told])
        computed = len(self._cells) - self._start if self._prepared else 0
        acted = self.request.overflow if self._room.times else None
        return replace(
            self._drafts.usage(self._usage),
            computed=max(0, min(self._usage.computed, computed)),
            cells=self._cells.live,
            cache_bytes=self._context.held_bytes(self._cells.live),
            pages_saved=saved.pages,
            bytes_saved=saved.bytes,
            save_seconds=saved.seconds,
            save_problem=saved.problem,
            overflow="stop" if self.reason == "context" else acted,
            evicted=self._room.tokens,
            evictions=self._room.times,
            reasoning_tokens=self._reply.thought.tokens,
            reasoning_seconds=self._reply.thought.seconds,
            beside=self._beside,
        )

    @property
    def ways(self) -> tuple[Way, ...]:
        """See `TurnFinished`; after `finish`."""
        return self._room.ways() if self.reason == "context" else ()

    @property
    def _told(self) -> int:
        """Tokens of prompt and reply that are told, and so committed."""
        return len(self._past.ids) + self._reply.tokens

    def _begin(self) -> None:
        request, asked = self.request, self._asked
        self._room.begin(asked.past, asked.numbering, asked.prompt.segments, asked.system)
        if self._room.runs_out(len(self._past.ids)):
            self._renumber_at = min(self._numbering.position(asked.prompt.past), len(self._past.ids) - 1) or None
        tokens, system = asked.tokens, asked.system
        self._usage = replace(self._usage, prompt_tokens=tokens, computed=tokens, system_tokens=system)
        self._emit(PromptReady(request.turn, asked.prompt.segments, tokens, system))
        if asked.thought is not None:
            self._usage = replace(self._usage, reasoning_evicted=asked.thought.tokens)
            self._emit(Evicted(request.turn, asked.thought, "reasoning", 0.0))
        ids = asked.prompt.ids
        had = asked.prompt.segments[-1] if request.continue_reply else ()
        self._reply.begin(ids[: len(ids) - len(had)], had)
        over = excess(self._past, self._context.cells)
        if over > 0 and not self._room.acts:
            self._too_long(over)

    def _too_long(self, over: int) -> NoReturn:
        self._usage = replace(self._usage, excess=over)
        raise TooLongError(over, self._context.cells)

    def _reuse_past(self) -> None:
        request, prompt = self.request, self._asked.prompt
        self.place.keeps = self._asked.keeps  # not before what the cells held of another chat goes
        past = self._numbering.position(min(prompt.past, computed_before(request.messages)))
        wanted = self._past if self._renumber_at is None else self._past.upto(self._renumber_at + 1)
        if self._saver is not None:
            self._saver.take_early(wanted)
        joins = request.alternative_of is not None
        reuse = self._reuser.prepare(wanted, past, keep=request.keep_kv, joins=joins)
        self._prepared = True
        self._start = len(self._cells)
        saved = reuse.saved_seconds - self._cells.early_seconds
        ahead, wasted = self._cells.early.settle(reuse.resident)
        cut = reuse.cut or prompt.cut or request.past_cut
        if self._saver is not None:
            self._saver.begin()
        self._usage = replace(
            self._usage,
            reused=reuse.reused,
            prompt_tokens=reuse.reused + len(self._past.ids) - self._start,
            computed=len(self._past.ids) - self._start,
            resident=reuse.resident,
            ahead=ahead,
            ahead_wasted=wasted,
            shared=reuse.shared,
            pages=reuse.pages,
            checkpoint=reuse.checkpoint,
            cut=cut,
            transcoded=reuse.transcoded,
            transcoded_tokens=reuse.transcoded_tokens,
            restore_seconds=reuse.seconds,
            saved_seconds=max(0.0, saved),
        )
        self._tell_restored()

    def _start_over(self) -> None:
        """Drop what was restored, on disk too, and compute all of the prompt."""
        self._reuser.condemn()
        if self._saver is not None:
            self._saver.begin()
        total = len(self._past.ids)
        self._start = 0
        usage = replace(self._usage, prompt_tokens=total, computed=total, cut="check", saved_seconds=0.0)
        usage = replace(usage, reused=0, resident=0, shared=0, pages=0, checkpoint=0, ahead=0)
        wasted = usage.ahead_wasted + self._usage.ahead
        self._usage = replace(usage, ahead_wasted=wasted, transcoded=None, transcoded_tokens=0)
        self._tell_restored()

    def _tell_restored(self) -> None:
        usage = self._usage
        self._emit(
            Restored(
                turn=self.request.turn,
                reused=usage.reused,
                resident=usage.resident,
                pages=usage.pages,
                checkpoint=usage.checkpoint,
                computed=usage.computed,
                seconds=usage.restore_seconds,
                cut=usage.cut,
                transcoded=usage.transcoded,
                transcoded_tokens=usage.transcoded_tokens,
                shared=usage.shared,
                ahead=usage.ahead,
            )
        )

    def _prefill(self) -> Steps:
        began = time.perf_counter()
        ids, before = self._asked.prompt.ids, self._numbering.position(self._asked.prompt.past)
        checkpoints = marks(len(self._cells), len(ids)) if self._cells.memory.recurrent else []
        self._room.catch_up()
        if not self._room.replays():
            if not self._room.acts:
                self._too_long(excess(self._past, self._context.cells))
            self._renumber(before)
        while (start := len(self._cells)) < (total := len(self._past.ids)):
            if start == self._renumber_at:
                self._renumber(start)
                continue
            ends = [*checkpoints, self._room.next_eviction() or total, self._renumber_at or total]
            end = min([total, self._chunk_end(start), *(mark for mark in ends if mark > start)])
            if not self._room.fits(end - start + (end == total)):
                end = self._with_last(start, end)
            needed = end - start + (end == total)
            if not self._room.make(needed, start):
                if self._room.has_run_out(needed):
                    self._renumber(start)
                    continue
                self._too_long(total - start + 1 + self._cells.live - self._context.cells)
            witness = self._proof.witness(end - start)
            yield from self._compute(self._past.ids[start:end], end == total, witness, proves=True)
            self._advance()
            if end in checkpoints:
                self._take_checkpoint()
            self._room.catch_up()
            seconds, done = time.perf_counter() - began, len(self._cells) - self._start
            self._usage = replace(self._usage, prefill_seconds=seconds)
            self._emit(PromptProgress(self.request.turn, done, self._usage.computed, done / seconds))

    def _decode(self) -> Steps:
        decoding = self._decoding = Decoding(
            self.request.sampling,
            self._past.ids,
            self._model,
            self._context,
            self.place,
            self._reply,
            self._drafts,
            self._compute,
            lambda needed: self._room.make(needed, self._told),
            self._room.margin,
        )
        self._drafts.evicted(self._cells.past.evictions)
        yield from decoding.steps()
        self.reason = decoding.reason

    def _read_decoding(self) -> None:
        """What decoding cost, as far as it came."""
        decoding = self._decoding
        if decoding is None:
            return
        self._usage = replace(self._usage, decode_tokens=decoding.tokens, decode_seconds=decoding.seconds)
        if decoding.first_token is not None:
            self._usage = replace(self._usage, ttft_seconds=decoding.first_token - self._asked.came)

    def _with_last(self, start: int, end: int) -> int:
        """Where a chunk ends in front of which something would leave: the last token of the past goes before that,
        which is there already if it was drafted. So what leaves leaves at the same place with and without drafts."""
        past = self._numbering.position(self._asked.prompt.past)
        return past if start + 1 == past else end

    def _chunk_end(self, start: int) -> int:
        """Chunks end at multiples of their size, wherever the past ended, so that a prompt has the same ones again."""
        return start - start % self._context.chunk + self._context.chunk

    def _take_checkpoint(self) -> None:
        """Keep the recurrent state, if there is one, in memory and on disk. Where it cannot be had the turn goes on."""
        try:
            snapshot = self._cells.take_snapshot()
        except KvchatError as error:
            if self._saver is not None:
                self._saver.refuse(error)
            return
        if snapshot is not None and self._saver is not None:
            self._saver.checkpoint(snapshot)

    def _compute(
        self, tokens: Sequence[int], output: int, witness: Witness | None = None, *, proves: bool = False
    ) -> Generator[Step, Done, Done]:
        """Decode behind what the cells hold, and tell what that took. `proves`: it may show that what was restored is
        not what was saved."""
        if self.has_read:
            self._advance()
        whole = self.has_read and len(tokens) <= 2 * OUTPUTS and self._cells.memory.recurrent  # no state is spoilt
        done = yield Step(tokens, len(self._cells), output, whole, witness)
        self._beside = max(self._beside, self.place.beside)
        if proves and not self._proof.stands(tokens, witness, output):
            raise Refuted
        self._cells.append(tokens, done.seconds)
        return done

    def _renumber(self, at: int) -> None:
        """The first `at` tokens of the prompt get positions from 0 on, as far as they stay."""
        new, done = self._past.ids[at:], len(self._cells) - self._start
        there = self._cells.past if len(self._cells) == at else self._past  # something may have left meanwhile
        past = self._room.renumber(there.upto(at), len(new))
        self._renumber_at = None
        if past is None:
            return
        self._past = replace(past, ids=(*past.ids, *new))
        self._start = max(0, len(self._cells) - done)  # what this turn has computed is not reused
        start, total = self._start, len(self._past.ids)
        usage = replace(self._usage, prompt_tokens=total, reused=start, resident=start, computed=total - start)
        self._usage = replace(usage, shared=0, pages=0)
        self._tell_restored()

    def before_eviction(self) -> None:
        """See `Holder`."""
        if self._saver is not None:
            self._saver.before_eviction()

    def evicted(self) -> None:
        """See `Holder`. The last token would say something else now."""
        self._reuser.check.forget()
        self._drafts.evicted(self._cells.past.evictions)

    def _advance(self) -> None:
        """Only text that is told, and so committed, goes to the disk."""
        if self._saver is not None:
            self._saver.advance(self._told)

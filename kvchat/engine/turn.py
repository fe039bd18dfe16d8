"""One turn: prompt, reuse, prefill, decode, finish, as a generator of small steps.

Owns the state of one answer. Asks for decodes by yielding them and never decodes itself, so that whoever drives it
decides about batching and order. Must not touch the pipe: it hands events to `emit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

from kvchat.backend.protocol import Event, Evicted, Generate, PromptProgress, PromptReady, Restored, Way
from kvchat.backend.values import FinishReason, Usage
from kvchat.engine.cells import Cells
from kvchat.engine.context import Context, Witness
from kvchat.engine.decoding import Decoding
from kvchat.engine.evicting import Room, excess, prompt_past
from kvchat.engine.history import Prompt, build_prompt, computed_before
from kvchat.engine.model import Model
from kvchat.engine.proving import Proof
from kvchat.engine.reply import Reply
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver, marks
from kvchat.engine.speculate import Drafts
from kvchat.engine.step import Step
from kvchat.engine.writing import Saved
from kvchat.errors import KvchatError
from kvchat.formats.past import Numbering, Past
from kvchat.kv.fit import OUTPUTS
from kvchat.kv.transcode import Quants


class Refuted(Exception):
    """What was restored does not do what it did when it was saved: nothing that the cells hold may be used."""


class TooLongError(KvchatError):
    """The prompt does not fit into the context."""

    def __init__(self, tokens: int, cells: int, over: int) -> None:
        super().__init__(
            f"the conversation is {over:,} token{'' if over == 1 else 's'} too long: it has {tokens:,},"
            f" the context holds {cells:,}, and one must be left for the answer",
            "take a larger context or a shorter message, or start a new chat",
        )


class Turn:
    """One answer in the making."""

    reason: FinishReason = "error"

    def __init__(
        self,
        request: Generate,
        model: Model,
        context: Context,
        cells: Cells,
        reuser: Reuser,
        saver: Saver | None,
        drafts: Drafts,
        quants: Quants,
        emit: Callable[[Event], None],
    ) -> None:
        """`saver` None: nothing is kept on disk."""
        self.request = request
        self._model = model
        self._context = context
        self._cells = cells
        self._reuser = reuser
        self._saver = saver if request.keep_kv else None
        self._emit = emit
        self._began = time.perf_counter()
        self._drafts = drafts
        self._reply = Reply(request.turn, request.sampling.stop, model, emit)
        self._decoding: Decoding | None = None
        self._proof = Proof(reuser.check, context, cells)
        trained, head = model.geometry.context_trained, model.geometry.head_k
        self._room = Room(request, cells, context.cells, trained, head, quants, self, emit)
        self._renumber_at: int | None = None
        self._past, self._numbering = Past(()), Numbering()
        self._start = 0  # tokens of the prompt that were there before it was computed
        self._prepared = False
        self._usage = Usage()

    def steps(self) -> Iterator[Step]:
        """The decodes of this turn. When it is exhausted, `reason` says why."""
        prompt = self._read_prompt()
        self._reuse_past(prompt)
        try:
            yield from self._prefill(prompt)
        except Refuted:
            self._start_over()
            yield from self._prefill(prompt)
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
            save_problem=saved.problem,
            overflow="stop" if self.reason == "context" else acted,
            evicted=self._room.tokens,
            evictions=self._room.times,
            reasoning_tokens=self._reply.thought.tokens,
            reasoning_seconds=self._reply.thought.seconds,
        )

    @property
    def ways(self) -> tuple[Way, ...]:
        """See `TurnFinished`; after `finish`."""
        return self._room.ways() if self.reason == "context" else ()

    @property
    def _told(self) -> int:
        """Tokens of prompt and reply that are told, and so committed."""
        return len(self._past.ids) + self._reply.tokens

    def _read_prompt(self) -> Prompt:
        request = self.request
        prompt = build_prompt(
            request.messages,
            template=self._model.template,
            tokenizer=self._model,
            history=request.history,
            clock=request.clock,
            continue_reply=request.continue_reply,
        )
        thoughts = self._model.past_thoughts if request.history == "append" and self._room.can_evict else None
        self._past, self._numbering, thought = prompt_past(prompt, request.messages, request.evictions, thoughts)
        system = self._model.system_part.tokens(prompt.ids, request.messages, request.clock)
        self._room.begin(self._past, self._numbering, prompt.segments, system)
        if self._room.runs_out(len(self._past.ids)):
            self._renumber_at = self._numbering.position(prompt.past) or None
        over, count = excess(self._past, self._context.cells), len(prompt.ids)
        tokens = over - 1 + self._context.cells
        self._usage = replace(self._usage, prompt_tokens=tokens, computed=tokens, system_tokens=system)
        self._emit(PromptReady(request.turn, prompt.segments, tokens, system))
        if thought is not None:
            self._usage = replace(self._usage, reasoning_evicted=thought.tokens)
            self._emit(Evicted(request.turn, thought, "reasoning", 0.0))
        had = prompt.segments[-1] if request.continue_reply else ()
        self._reply.begin(prompt.ids[: count - len(had)], had)
        if over > 0 and not self._room.acts:
            self._too_long(over)
        return prompt

    def _too_long(self, over: int) -> NoReturn:
        self._usage = replace(self._usage, excess=over)
        raise TooLongError(self._usage.prompt_tokens, self._context.cells, over)

    def _reuse_past(self, prompt: Prompt) -> None:
        request = self.request
        past = self._numbering.position(min(prompt.past, computed_before(request.messages)))
        wanted = self._past if self._renumber_at is None else self._past.upto(self._renumber_at + 1)
        reuse = self._reuser.prepare(wanted, past, keep=request.keep_kv)
        self._prepared = True
        self._start = len(self._cells)
        cut = reuse.cut or prompt.cut or request.past_cut
        if self._saver is not None:
            self._saver.begin()
        self._usage = replace(
            self._usage,
            reused=reuse.reused,
            prompt_tokens=reuse.reused + len(self._past.ids) - self._start,
            computed=len(self._past.ids) - self._start,
            resident=reuse.resident,
            pages=reuse.pages,
            checkpoint=reuse.checkpoint,
            cut=cut,
            transcoded=reuse.transcoded,
            transcoded_tokens=reuse.transcoded_tokens,
            restore_seconds=reuse.seconds,
            saved_seconds=reuse.saved_seconds,
        )
        self._tell_restored()

    def _start_over(self) -> None:
        """Drop what was restored, on disk too, and compute all of the prompt."""
        self._reuser.condemn()
        if self._saver is not None:
            self._saver.begin()
        total = len(self._past.ids)
        self._start = 0
        usage = replace(self._usage, prompt_tokens=total, reused=0, computed=total, resident=0, pages=0, checkpoint=0)
        self._usage = replace(usage, cut="check", saved_seconds=0.0, transcoded=None, transcoded_tokens=0)
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
            )
        )

    def _prefill(self, prompt: Prompt) -> Iterator[Step]:
        began = time.perf_counter()
        checkpoints = marks(len(self._cells), len(prompt.ids)) if self._cells.memory.recurrent else []
        self._room.catch_up()
        if not self._room.replays():
            if not self._room.acts:
                self._too_long(excess(self._past, self._context.cells))
            self._renumber(self._numbering.position(prompt.past))
        while (start := len(self._cells)) < (total := len(self._past.ids)):
            if start == self._renumber_at:
                self._renumber(start)
                continue
            ends = [*checkpoints, self._room.next_eviction() or total, self._renumber_at or total]
            end = min([total, self._chunk_end(start), *(mark for mark in ends if mark > start)])
            if not self._room.fits(end - start + (end == total)):
                end = self._with_last(prompt, start, end)
            if not self._room.make(end - start + (end == total), start):
                self._too_long(total - start + 1 + self._cells.live - self._context.cells)
            witness = self._proof.witness(end - start)
            yield from self._compute(self._past.ids[start:end], end == total, witness, proves=True)
            self._advance()
            if end in checkpoints:
                self._take_checkpoint()
            self._room.catch_up()
            seconds = time.perf_counter() - began
            done = len(self._cells) - self._start
            self._usage = replace(self._usage, prefill_seconds=seconds)
            self._emit(PromptProgress(self.request.turn, done, self._usage.computed, done / seconds))

    def _decode(self) -> Iterator[Step]:
        decoding = self._decoding = Decoding(
            self.request.sampling,
            self._past.ids,
            self._model,
            self._context,
            self._cells,
            self._reply,
            self._drafts,
            self._compute,
            lambda needed: self._room.make(needed, self._told),
            self._room.margin,
        )
        self._drafts.evicted(self._cells.past.evictions)
        for step in decoding.steps():
            self._advance()
            soon_over = len(step.tokens) <= 2 * OUTPUTS
            yield replace(step, whole=soon_over and self._cells.memory.recurrent)  # so that no state is spoilt
        self.reason = decoding.reason

    def _read_decoding(self) -> None:
        """What decoding cost, as far as it came."""
        decoding = self._decoding
        if decoding is None:
            return
        self._usage = replace(self._usage, decode_tokens=decoding.tokens, decode_seconds=decoding.seconds)
        if decoding.first_token is not None:
            self._usage = replace(self._usage, ttft_seconds=decoding.first_token - self._began)

    def _with_last(self, prompt: Prompt, start: int, end: int) -> int:
        """Where a chunk ends in front of which something would leave: the last token of the past goes before that,
        which is there already if it was drafted. So what leaves leaves at the same place with and without drafts."""
        past = self._numbering.position(prompt.past)
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
    ) -> Generator[Step, None, float]:
        """Decode behind what the cells hold; the seconds that it took. `proves`: it may show that what was restored is
        not what was saved."""
        began = time.perf_counter()
        yield Step(tokens, len(self._cells), output, witness=witness)
        if proves and not self._proof.stands(tokens, witness, output):
            raise Refuted
        seconds = time.perf_counter() - began
        self._cells.append(tokens, seconds)
        return seconds

    def _renumber(self, at: int) -> None:
        """The first `at` tokens of the prompt, its past, get positions from 0 on."""
        new = self._past.ids[at:]
        past = self._room.renumber(self._past.upto(at), len(new))
        self._past = replace(past, ids=(*past.ids, *new))
        self._renumber_at = None
        self._start = len(self._cells)
        computed = len(self._past.ids) - self._start
        self._usage = replace(
            self._usage,
            prompt_tokens=len(self._past.ids),
            reused=self._start,
            resident=self._start,
            pages=0,
            computed=computed,
        )
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

"""One turn: prompt, reuse, prefill, decode, finish, as a generator of small steps.

Owns the state of one answer. Asks for decodes by yielding them and never decodes itself, so that whoever drives it
decides about batching and order. Must not touch the pipe: it hands events to `emit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvchat.backend.protocol import Event, Generate, PromptProgress, PromptReady, Restored, TextDelta
from kvchat.backend.values import FinishReason, Usage
from kvchat.engine.cells import Cells
from kvchat.engine.context import Context
from kvchat.engine.history import Prompt, build_prompt, computed_before
from kvchat.engine.model import Model
from kvchat.engine.reuse import Reuser
from kvchat.engine.sampling import Sampler
from kvchat.engine.saving import Saver, marks
from kvchat.engine.text import Settled, TextStream
from kvchat.engine.writing import Saved
from kvchat.errors import KvchatError

DELTA_SECONDS = 1 / 30  # text is joined so that the pipe carries at most this many messages a second


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens to be decoded next at `position`; `output`: the logits of the last one are wanted."""

    tokens: Sequence[int]
    position: int
    output: bool


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
        self._text = TextStream((*request.sampling.stop, *model.template.stops))
        self._unsent = Settled()
        self._sent_at = 0.0
        self._reply_tokens = 0
        self._prepared = False
        self._usage = Usage()

    def steps(self) -> Iterator[Step]:
        """The decodes of this turn. When it is exhausted, `reason` says why."""
        prompt = self._read_prompt()
        self._reuse_past(prompt)
        yield from self._prefill(prompt)
        yield from self._decode(prompt)

    def finish(self) -> Usage:
        """Send what is left of the text, write the tail to disk; the cost of the turn. Right after any failure, too."""
        self._take(self._text.flush())
        self._send()
        saved = Saved()
        if self._prepared:
            self._cells.resync()
            self._cells.truncate(self._usage.prompt_tokens + self._reply_tokens)
            self._take_checkpoint()
            if self._saver is not None:
                saved = self._saver.finish()
        computed = len(self._cells) - self._usage.reused if self._prepared else 0
        return replace(
            self._usage,
            computed=max(0, min(self._usage.computed, computed)),
            cells=len(self._cells),
            cache_bytes=self._context.held_bytes(len(self._cells)),
            pages_saved=saved.pages,
            bytes_saved=saved.bytes,
            save_problem=saved.problem,
            overflow="stop" if self.reason == "context" else None,
        )

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
        count = len(prompt.ids)
        self._usage = replace(self._usage, prompt_tokens=count, computed=count)
        self._emit(PromptReady(request.turn, prompt.segments, count))
        if count >= self._context.cells:
            raise KvchatError(
                f"the conversation is {count} tokens long and the context holds {self._context.cells}",
                "use a larger --ctx-size, or start a new chat",
            )
        return prompt

    def _reuse_past(self, prompt: Prompt) -> None:
        request = self.request
        past = min(prompt.past, computed_before(request.messages))
        reuse = self._reuser.prepare(prompt.ids, past, keep=request.keep_kv)
        self._prepared = True
        cut = reuse.cut or prompt.cut or request.past_cut
        if self._saver is not None:
            self._saver.begin()
        self._usage = replace(
            self._usage,
            reused=reuse.reused,
            computed=len(prompt.ids) - reuse.reused,
            resident=reuse.resident,
            pages=reuse.pages,
            checkpoint=reuse.checkpoint,
            cut=cut,
            restore_seconds=reuse.seconds,
            saved_seconds=reuse.saved_seconds,
        )
        self._emit(
            Restored(
                turn=request.turn,
                reused=reuse.reused,
                resident=reuse.resident,
                pages=reuse.pages,
                checkpoint=reuse.checkpoint,
                computed=self._usage.computed,
                seconds=reuse.seconds,
                cut=cut,
            )
        )

    def _prefill(self, prompt: Prompt) -> Iterator[Step]:
        began = time.perf_counter()
        total = len(prompt.ids)
        checkpoints = marks(len(self._cells), total) if self._cells.memory.recurrent else []
        while (start := len(self._cells)) < total:
            end = min([total, self._chunk_end(start), *(mark for mark in checkpoints if mark > start)])
            yield from self._compute(prompt.ids[start:end], output=end == total)
            if end in checkpoints:
                self._take_checkpoint()
            seconds = time.perf_counter() - began
            done = len(self._cells) - self._usage.reused
            self._usage = replace(self._usage, prefill_seconds=seconds)
            self._emit(PromptProgress(self.request.turn, done, self._usage.computed, done / seconds))

    def _decode(self, prompt: Prompt) -> Iterator[Step]:
        sampler = Sampler(self.request.sampling, self._model.native.vocab_size, prompt.ids)
        began = time.perf_counter()
        decoded = 0
        try:
            while (token := self._next(sampler, decoded)) is not None:
                decoded += 1
                if decoded == 1:
                    self._usage = replace(self._usage, ttft_seconds=time.perf_counter() - self._began)
                self._take(self._text.feed(token, self._model.native.piece(token)))
                if self._text.stopped:
                    self.reason = "stop"
                    yield from self._end_at_stop()
                    return
                if self._is_full(decoded):
                    return
                yield from self._compute([token], output=True)
        finally:
            self._usage = replace(self._usage, decode_tokens=decoded, decode_seconds=time.perf_counter() - began)
            sampler.close()

    def _next(self, sampler: Sampler, decoded: int) -> int | None:
        """The next token of the reply, None when it is over."""
        if self.request.sampling.max_tokens == 0:
            self.reason = "length"
            return None
        token = sampler.sample(self._context.native)
        if self._model.native.ends_generation(token):
            self.reason = "stop"
            if not decoded:
                self._usage = replace(self._usage, ttft_seconds=time.perf_counter() - self._began)
            return None
        return token

    def _is_full(self, decoded: int) -> bool:
        """Whether the reply has all the tokens that it may have; the last one then is not in the cells."""
        limit = self.request.sampling.max_tokens
        if limit is not None and decoded >= limit:
            self.reason = "length"
            return True
        if len(self._cells) >= self._context.cells:
            self.reason = "context"
            return True
        return False

    def _end_at_stop(self) -> Iterator[Step]:
        """A stop string that begins inside a token leaves text without ids: they are made and decoded here, so that
        the cells end where the text ends. What the cells could not be cut to is decoded again."""
        told = self._usage.prompt_tokens + self._reply_tokens
        rest = self._model.tokenize(self._text.rest, special=False)
        wanted = [*self._cells.ids[:told], *rest]
        self._cells.truncate(told)
        self._take(Settled(self._text.rest, tuple(rest)))
        self._send()
        if len(wanted) != told + len(rest) or len(wanted) > self._context.cells:
            return
        while (start := len(self._cells)) < len(wanted):
            yield from self._compute(wanted[start : self._chunk_end(start)], output=False)

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

    def _compute(self, tokens: Sequence[int], *, output: bool) -> Iterator[Step]:
        began = time.perf_counter()
        yield Step(tokens, len(self._cells), output)
        self._cells.append(tokens, time.perf_counter() - began)
        if self._saver is not None:  # only text that is told, and so committed, goes to the disk
            self._saver.advance(self._usage.prompt_tokens + self._reply_tokens)

    def _take(self, settled: Settled) -> None:
        self._reply_tokens += len(settled.ids)
        self._unsent = Settled(self._unsent.text + settled.text, self._unsent.ids + settled.ids)
        if time.perf_counter() - self._sent_at >= DELTA_SECONDS:
            self._send()

    def _send(self) -> None:
        if self._unsent.text or self._unsent.ids:
            self._emit(TextDelta(self.request.turn, self._unsent.text, self._unsent.ids))
            self._unsent = Settled()
        self._sent_at = time.perf_counter()

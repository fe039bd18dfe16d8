"""A summary of the beginning of a chat, made in the scratch sequence step by step while nothing else is wanted.

Owns the cells of the scratch sequence while it computes, and what was written so far: whatever goes first may take the
cells away at any time, and the summary goes on afterwards. The scratch sequence shares the cells of what it summarizes
with the chat, so that little but the question is read. Nothing that is computed here is saved.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from kvchat.backend.protocol import Summarize, Summarized, Summarizing
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine.context import Context
from kvchat.engine.evicting import excess, prompt_past
from kvchat.engine.history import build_prompt
from kvchat.engine.memory import SCRATCH
from kvchat.engine.model import Model
from kvchat.engine.sampling import Sampler
from kvchat.engine.seat import Seat
from kvchat.engine.summaries import BEGUN, question, summary_from
from kvchat.errors import KvchatError
from kvchat.formats.past import Past, count, dead, joined, live, shared

STEP = 64  # tokens of one computation: whoever wants the engine does not wait for longer
_SAMPLING = Sampling(temperature=0, repeat_penalty=1.1)


class SummaryJob:
    """A summary in the making. `advance` computes a little of it; `suspend` gives the cells back."""

    def __init__(self, command: Summarize, model: Model) -> None:
        """KvchatError when there is no scratch sequence, or the template does not take the question."""
        if not model.geometry.kept:
            raise KvchatError("this model has no room beside the chat", "take another overflow policy")
        self.turn = command.turn
        self._most = command.most
        self._model = model
        asked = PromptMessage("user", question(command.most))
        prompt = build_prompt(
            (*command.messages, asked, PromptMessage("assistant", BEGUN)),
            template=model.template,
            tokenizer=model,
            history=command.history,
            clock=command.clock,
            continue_reply=True,
        )
        past, numbering, _ = prompt_past(prompt, (*command.messages, asked), command.evictions, None)
        self._past = past
        self._known = numbering.position(prompt.past)  # so many tokens the chat has, too
        self._later = tuple(each for each in command.evictions if each.at > prompt.past)
        left = [
            (numbering.position(start), numbering.position(end)) for each in self._later for start, end in each.ranges
        ]
        self._gone = joined([*dead(past.evictions, len(past.ids)), *((a, min(b, self._known)) for a, b in left)])
        self._sampler = Sampler(_SAMPLING, model.native.vocab_size, ())
        self._written: list[int] = []
        self._shared = 0
        self._seconds = 0.0
        self._steps: Iterator[Summarizing | Summarized] | None = None
        self._seat: Seat | None = None

    def advance(self, seat: Seat) -> Summarizing | Summarized:
        """One step; Summarized was the last one. Raises Aborted, after which it can go on, or KvchatError."""
        began = time.perf_counter()
        if self._steps is None or self._seat is not seat:
            self._seat, self._steps = seat, self._run(seat)
        try:
            return next(self._steps)
        finally:
            self._seconds += time.perf_counter() - began

    def suspend(self) -> None:
        """Give the cells back; what is written so far is kept."""
        if self._steps is not None and self._seat is not None:
            self._seat.context.forget_aside()
        self._steps = self._seat = None

    def close(self) -> None:
        """Give everything back, at the end or before it."""
        self.suspend()
        self._sampler.close()

    def _run(self, seat: Seat) -> Iterator[Summarizing | Summarized]:
        context = seat.context
        tokens = self._place(seat)
        total = len(tokens) + self._most - len(self._written)
        done, step = 0, min(STEP, context.chunk)
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            self._compute(context, part)
            done += len(part)
            yield Summarizing(self.turn, done, total)
        while len(self._written) < self._most:
            token = self._sampler.sample(context.native)
            if self._model.native.ends_generation(token):
                yield self._finished(whole=True)
                return
            self._written.append(token)
            if self._has_stopped():
                yield self._finished(whole=True)
                return
            self._compute(context, [token])
            done += 1
            yield Summarizing(self.turn, done, total)
        yield self._finished(whole=False)

    def _compute(self, context: Context, tokens: Sequence[int]) -> None:
        context.decode_aside(tokens, context.native.last_position(SCRATCH) + 1)

    # ---------------------------------------------------------------- its beginning in the cells

    def _place(self, seat: Seat) -> list[int]:
        """Let the scratch sequence begin with what the chat's cells have of it, or could have from disk; the tokens
        that are left to compute. Raises KvchatError when there is no room."""
        chat = self._past.upto(self._known)
        there = self._there(seat, chat)
        fits = self._fits(seat, there)
        if not seat.cells.memory.recurrent and excess(chat, seat.context.cells) <= 0:
            start = seat.reuser.plan(chat, self._known)
            if not fits or start.end > there:
                seat.reuser.warm(chat)
                there = self._there(seat, chat)
                fits = self._fits(seat, there)
        if not fits:
            seat.cells.truncate(0)
            there = 0
        if not self._fits(seat, there):
            needed = len(self._rest(0)) + self._most
            raise KvchatError(
                f"there is no room for a summary: it needs {needed:,} tokens, the context holds {seat.context.cells:,}",
                "a larger context, or another overflow policy",
            )
        if there:
            seat.context.native.share(seat.front.track.sequence, SCRATCH, 0, there)
        self._shared = max(self._shared, there)
        return self._rest(there)

    def _there(self, seat: Seat, chat: Past) -> int:
        """So many tokens the cells hold as the summary needs them. A recurrent state is only that of its end."""
        memory, cells = seat.cells.memory, seat.cells
        if memory.recurrent:
            return 0
        same, stand = shared(cells.past, chat)
        later = cells.past.evictions[stand:]
        if same == self._known and later == self._later and not any(each.root for each in later):
            return same if memory.can_truncate(same) else 0  # what left later is not read either
        return cells.reachable(same, stand)

    def _rest(self, there: int) -> list[int]:
        """What the summary reads behind the first `there` tokens."""
        ranges = live(there, len(self._past.ids), self._gone)
        return [token for start, end in ranges for token in self._past.ids[start:end]] + self._written

    def _fits(self, seat: Seat, there: int) -> bool:
        needed = len(self._rest(there)) + self._most - len(self._written)
        return seat.make_room(needed, seat.front)

    # ---------------------------------------------------------------- its end

    @property
    def _text(self) -> str:
        return b"".join(map(self._model.native.piece, self._written)).decode("utf-8", "replace")

    def _has_stopped(self) -> bool:
        """Whether a text that ends a reply was written, where the vocabulary has no token for it."""
        stops = self._model.template.stops
        text = self._text if stops else ""
        return any(stop in text for stop in stops)

    def _finished(self, *, whole: bool) -> Summarized:
        text = self._text
        for stop in self._model.template.stops:
            text = text.partition(stop)[0]
        shared = count(live(0, self._shared, self._gone))
        said = summary_from(text, whole=whole)
        return Summarized(self.turn, said, len(self._written), shared, self._seconds)

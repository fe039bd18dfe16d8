"""The tokens of a reply, one after the other, and the drafts that are checked on the way.

Owns the order of sampling, checking and cutting, and why a reply ends. Must not draft, and decodes only by yielding
steps.

A step decodes the last token of the text and, behind it, tokens that were drafted. Then the target is sampled at each
of these positions in turn, with the one sampler, until it says something else than the draft. So every token is drawn
from the same logits, up to the noise of batch shapes, in the same order, and with the same random numbers and penalties
as without drafts (speculative decoding by exact matching; the distribution is the target's for any sampler). What was
drafted and not said is cut from the cells before anything else happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from kvchat.backend.values import FinishReason, Sampling
from kvchat.engine.acceptance import MOST
from kvchat.engine.cells import Snapshot
from kvchat.engine.context import Context
from kvchat.engine.draft_control import Outcome
from kvchat.engine.model import Model
from kvchat.engine.place import Place
from kvchat.engine.reply import Reply
from kvchat.engine.sampling import Sampler
from kvchat.engine.speculate import Drafts
from kvchat.engine.step import Done, Step, Steps
from kvchat.engine.text import Settled
from kvchat.errors import KvchatError

_LEFT = 16  # tokens that are missing in the cells may be decoded together with the next ones; more go before them

Compute = Callable[[Sequence[int], int], Generator[Step, Done, Done]]
MakeRoom = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class _Checked:
    """The last decode: the draft in it, the state before it where that leads back, the seconds that it took (0: not
    known, since it computed other turns, too), and what went with it. `repeats`: tokens in it had been decoded before.
    """

    draft: tuple[int, ...] = ()
    before: Snapshot | None = None
    seconds: float = 0.0
    beside: float = 0.0
    repeats: bool = False


class Decoding:
    """One reply. `reason` is valid when `steps` is exhausted."""

    reason: FinishReason = "error"

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int],
        model: Model,
        context: Context,
        place: Place,
        reply: Reply,
        drafts: Drafts,
        compute: Compute,
        make_room: MakeRoom,
        margin: int,
    ) -> None:
        """The cells of `place` hold `prompt`, and the context has the logits of its last token. `compute(tokens,
        output)` decodes tokens behind those in the cells and returns what that took. `make_room(tokens)`: whether there
        are cells for so many more, for which others may be given up. `margin`: drafts leave so many cells free, so that
        something leaves at the same place with and without them."""
        self._sampling = sampling
        self._prompt = len(prompt)
        self._ids = list(prompt)  # and what was sampled
        self._model = model
        self._context = context
        self._place = place
        self._cells = place.cells
        self._reply = reply
        self._drafts = drafts
        self._compute = compute
        self._make_room = make_room
        self._margin = margin
        self.first_token: float | None = None  # when it was there, as time.perf_counter tells
        self.seconds = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of the reply that were sampled."""
        return len(self._ids) - self._prompt

    def steps(self) -> Steps:
        """The decodes of the reply. When it is exhausted the cells end where its text ends."""
        if self._sampling.max_tokens == 0:
            self.reason = "length"
            return
        began = time.perf_counter()
        sampler = Sampler(self._sampling, self._model.native.vocab_size, self._ids)
        try:
            yield from self._run(sampler)
        finally:
            self.seconds = time.perf_counter() - began
            sampler.close()

    def _run(self, sampler: Sampler) -> Steps:
        last = _Checked()
        while True:
            start = len(self._ids)
            stood, over = self._read(sampler, last)
            self._cut(last, start, stood)
            if over:
                yield from self._end(start + stood)
                return
            if not self._make_room(len(self._ids) - len(self._cells)):
                self.reason = "context"
                yield from self._end(len(self._ids) - 1)
                return
            last = yield from self._decode()

    def _read(self, sampler: Sampler, last: _Checked) -> tuple[int, bool]:
        """Sample where the last decode told logits, as long as the draft is right. How many of its tokens stood, and
        whether the reply is over."""
        draft, native = last.draft, self._model.native
        first = self._place.track.outputs.last - len(draft)
        for i in range(len(draft) + 1):
            token = sampler.sample(self._context.native, first + i)
            if self.first_token is None:
                self.first_token = time.perf_counter()
            if native.ends_generation(token):
                self.reason = "stop"
                return i, True
            self._ids.append(token)
            self._reply.feed(token)
            stands = i < len(draft) and token == draft[i]
            if self._reply.stopped:
                self.reason = "stop"
                return i + stands, True
            if self._is_full():
                return i + stands, True
            if not stands:
                return i, False
        raise AssertionError("the token behind a draft cannot stand in it")

    def _is_full(self) -> bool:
        """Whether the reply has all the tokens that it may have; the last one then is not in the cells."""
        limit = self._sampling.max_tokens
        if limit is not None and self.tokens >= limit:
            self.reason = "length"
            return True
        return False

    def _room(self) -> int:
        """How many tokens may be drafted: there must be cells for them, and not more be said than may be. None beside
        other turns: what checking costs there nobody has measured, and the batch is wanted."""
        if self._place.beside:
            return 0
        rollback = self._cells.memory.rollback
        most = min(MOST, self._free(len(self._ids)) - self._margin, rollback or MOST)
        if self._sampling.max_tokens is not None:
            most = min(most, self._sampling.max_tokens - self.tokens - 1)
        return max(0, most)

    # ---------------------------------------------------------------- cells

    def _free(self, length: int) -> int:
        """Cells that are left when the first `length` tokens are decoded."""
        return self._context.cells - self._cells.live - (length - len(self._cells))

    def _decode(self) -> Generator[Step, None, _Checked]:
        """What was said last, and a draft behind it; or, before it, what the cells lack."""
        yield from self._fill(len(self._ids) - 1 - _LEFT)
        last = self._ids[len(self._cells) :]
        draft = self._drafts.next(self._ids, self._room()) if len(last) == 1 else ()
        began = time.perf_counter()
        before: Snapshot | None = None
        if draft and self._cells.memory.rollback == 0:
            try:
                before = self._cells.present()
            except KvchatError as error:
                self._drafts.refuse(error.message)
                draft = ()
        beside = time.perf_counter() - began
        done = yield from self._compute([*last, *draft], 1 + len(draft))
        return _Checked(draft, before, done.seconds if done.alone or draft else 0.0, beside, repeats=len(last) > 1)

    def _cut(self, last: _Checked, start: int, stood: int) -> None:
        """Take back what was drafted and not said, and tell how the decode went. What the cells could not be cut to is
        decoded again with the next step."""
        if last.draft:
            began = time.perf_counter()
            keep = start + stood
            if self._reply.stopped:
                keep = min(keep, self._prompt + self._reply.tokens)
            self._cells.truncate(keep, last.before)
            beside = last.beside + time.perf_counter() - began
            ended = self._reply.stopped and len(self._ids) == start + stood
            self._drafts.checked(Outcome(len(last.draft), stood, last.seconds, beside, ended))
            self._reply.drafted(self._drafts.news())
            if len(self._cells) < keep and self._cells.memory.rollback is None:
                self._drafts.refuse(f"llama.cpp could not take tokens back, {keep} were computed again")
        elif last.seconds and last.repeats:
            self._drafts.repeated(last.seconds)
        elif last.seconds:
            self._drafts.plain(last.seconds)

    def _end(self, length: int) -> Steps:
        """The reply is over after the first `length` of all tokens. A stop string that begins inside a token leaves
        text without ids: they are made and decoded here, so that the cells end where the text ends."""
        if self._reply.stopped:
            told = self._prompt + self._reply.tokens
            rest = self._model.tokenize(self._reply.rest, special=False)
            self._cells.truncate(told)
            self._reply.take(Settled(self._reply.rest, tuple(rest)))
            self._reply.send()
            self._ids[told:] = rest
            length = told + len(rest)
        if self._free(length) >= 0:
            yield from self._fill(length)

    def _fill(self, length: int) -> Steps:
        """Decode what the cells lack of the first `length` tokens, in the chunks in which a prompt is read."""
        while (start := len(self._cells)) < length:
            chunk = self._context.chunk
            yield from self._compute(self._ids[start : min(length, start - start % chunk + chunk)], 0)

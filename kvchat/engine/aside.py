"""A short answer beside the chat, in the scratch sequence: a title, made step by step while nothing else is wanted.

Owns the cells of the scratch sequence while it lives, and gives them back at its end. Must not touch the chat's cells:
what is computed here is never saved, and the chat's past stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvchat.backend.protocol import Title, Titled
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine.history import build_prompt
from kvchat.engine.model import Model
from kvchat.engine.sampling import Sampler
from kvchat.engine.seat import Seat
from kvchat.engine.titles import BEGUN, MOST_TOKENS, question, title_from
from kvchat.errors import KvchatError

STEP = 64  # tokens of one computation: whoever wants the engine does not wait for longer


class TitleJob:
    """A title in the making. Every `advance` computes a little of it."""

    def __init__(self, command: Title, model: Model, seat: Seat) -> None:
        """KvchatError when the template does not take the question, or there is no scratch sequence."""
        if not model.geometry.kept:
            raise KvchatError("this model has no room beside the chat", "the title stays as it is")
        self.turn = command.turn
        self._model = model
        self._seat = seat
        self._context = seat.context
        prompt = build_prompt(
            (PromptMessage("user", question(command.messages)), PromptMessage("assistant", BEGUN)),
            template=model.template,
            tokenizer=model,
            history="append",
            clock=command.clock,
            continue_reply=True,
        )
        self._sampler = Sampler(Sampling(temperature=0), model.native.vocab_size, ())
        self._position = 0
        self._steps = self._run(prompt.ids)

    def advance(self) -> Titled | None:
        """One step; the answer when it was the last one. Raises Aborted or KvchatError, after which there is none."""
        return next(self._steps)

    def close(self) -> None:
        """Give the cells back, at the end or before it."""
        self._context.forget_aside()
        self._sampler.close()

    def _run(self, ids: Sequence[int]) -> Iterator[Titled | None]:
        if not self._seat.make_room(len(ids) + MOST_TOKENS, self._seat.front):
            yield Titled(self.turn, "")
            return
        step = min(STEP, self._context.chunk)
        for start in range(0, len(ids), step):
            self._compute(ids[start : start + step])
            yield None
        text = ""
        raw = b""
        for _ in range(MOST_TOKENS):
            token = self._sampler.sample(self._context.native)
            if self._model.native.ends_generation(token):
                break
            raw += self._model.native.piece(token)
            text = raw.decode("utf-8", "replace")
            if "\n" in text.lstrip():
                break
            self._compute([token])
            yield None
        yield Titled(self.turn, title_from(text))

    def _compute(self, tokens: Sequence[int]) -> None:
        self._context.decode_aside(tokens, self._position)
        self._position += len(tokens)

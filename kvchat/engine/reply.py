"""The text of one answer on its way to the person.

Owns what is told and what is still held back, and the joining of text into few messages; must not sample or touch the
cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kvchat.backend.protocol import Drafted, Event, TextDelta
from kvchat.engine.model import Model
from kvchat.engine.text import Settled, TextStream
from kvchat.engine.thought import Thought
from kvchat.reasoning import LONGEST_TAG

DELTA_SECONDS = 1 / 30  # text is joined so that the pipe carries at most this many messages a second


class Reply:
    """`tokens` of the answer are told so far; their text is that of exactly these ids. `told` are they."""

    def __init__(self, turn: str, stops: Sequence[str], model: Model, emit: Callable[[Event], None]) -> None:
        self._turn = turn
        self._piece = model.native.piece
        self._emit = emit
        self._text = TextStream((*stops, *model.template.stops))
        self.thought = Thought(model.native.piece)
        self._unsent = Settled()
        self._drafted: Drafted | None = None
        self._sent_at = 0.0
        self.told: list[int] = []

    @property
    def tokens(self) -> int:
        return len(self.told)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._text.stopped

    @property
    def rest(self) -> str:
        """Once stopped: text that belongs to the reply and has no ids, see TextStream."""
        return self._text.rest

    def begin(self, read: Sequence[int], had: Sequence[int]) -> None:
        """What the prompt ends with, and what the reply has already, where it goes on."""
        end = b"".join(self._piece(token, special=True) for token in read[-LONGEST_TAG:])
        self.thought.begin(end.decode("utf-8", "replace"))
        self.thought.recall(had)

    def feed(self, token: int) -> None:
        """The next token of the reply."""
        self.take(self._text.feed(token, self._piece(token)))

    def take(self, settled: Settled) -> None:
        """Text that is certain. It goes out now or with what comes within DELTA_SECONDS."""
        self.told += settled.ids
        self.thought.feed(settled.ids)
        self._unsent = Settled(self._unsent.text + settled.text, self._unsent.ids + settled.ids)
        if time.perf_counter() - self._sent_at >= DELTA_SECONDS:
            self.send()

    def finish(self) -> None:
        """The reply has ended: tell what is held."""
        self.take(self._text.flush())
        self.send()

    def drafted(self, news: Drafted) -> None:
        """How drafting goes; it is told with the text."""
        self._drafted = news

    def send(self) -> None:
        if self._unsent.text or self._unsent.ids:
            self._emit(TextDelta(self._turn, self._unsent.text, self._unsent.ids, self.thought.tokens))
            self._unsent = Settled()
            if self._drafted is not None:
                self._emit(self._drafted)
                self._drafted = None
        self._sent_at = time.perf_counter()

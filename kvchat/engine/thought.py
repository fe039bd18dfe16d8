"""How much of a reply is reasoning, in tokens and seconds. Owns the count; must not know where a reply goes.

The tokens are counted one by one, by where in the text each begins: the figure is exact however the tags are cut into
tokens. What begins and ends a block is what `kvchat.reasoning` says.
"""

from __future__ import annotations

import codecs
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Literal

from kvchat.reasoning import LONGEST_TAG, left_open, mentions, opening, split_late, undecided

_KEPT = 4_096  # characters of the reply that are looked at, at most


class Thought:
    """The block of reasoning at the beginning of one reply. `tokens` are those so far whose text begins between its
    tags, `seconds` those from the first token that was fed to the end of the block, or so far; 0 without one.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        """`piece` gives the bytes of a token."""
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state: Literal["begins", "open", "answers", "over"] = "begins"
        self._closing: re.Pattern[str] | None = None
        self._text = ""  # the end of the reply
        self._base = 0  # characters before it
        self._starts: list[int] = []  # where in the reply each token begins
        self._from = 0  # where the block begins
        self._mentioned = False  # a tag that opens a block stands in what is not looked at any more
        self._began: float | None = None
        self.tokens = 0
        self.seconds = 0.0

    def begin(self, prompt: str) -> None:
        """The reply is to follow this text of the prompt, whose end may open the block."""
        self._closing = left_open(prompt)
        if self._closing is not None:
            self._state = "open"

    def recall(self, ids: Iterable[int]) -> None:
        """Tokens of the reply from an earlier turn, which take no time in this one."""
        for token in ids:
            self._add(token)

    def feed(self, ids: Iterable[int]) -> None:
        """The next tokens of the reply."""
        if self._state == "over":
            return
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        for token in ids:
            self._add(token)
        self.seconds = now - self._began if self.tokens else 0.0

    def _add(self, token: int) -> None:
        if self._state == "over":
            return
        known = len(self._text)
        self._starts.append(self._base + known)
        self._text += self._decoder.decode(self._piece(token))
        if self._state == "begins":
            self._look_for_opening()
        if self._state == "open":
            self._look_for_closing(known)
        elif self._state == "answers":
            self._look_for_late_closing(known)
        if len(self._text) > _KEPT:
            self._forget()

    def _look_for_opening(self) -> None:
        found = opening(self._text)
        if found is not None:
            self._state, self._from, self._closing = "open", found.start, found.closing
        elif not undecided(self._text):
            self._state = "answers"

    def _look_for_closing(self, known: int) -> None:
        assert self._closing is not None
        found = self._closing.search(self._text, max(0, self._from - self._base, known - LONGEST_TAG))
        self._count(None if found is None else self._base + found.start())

    def _look_for_late_closing(self, known: int) -> None:
        found = split_late(self._text, known)
        if found.end and not self._mentioned:
            self._count(self._base + found.end)

    def _count(self, end: int | None) -> None:
        """The block has these tokens; `end` is where it ends, None while it does not."""
        last = len(self._starts) if end is None else bisect_left(self._starts, end)
        self.tokens = max(0, last - bisect_left(self._starts, self._from))
        if end is not None:
            self._state = "over"
            self._text, self._starts = "", []

    def _forget(self) -> None:
        """Of a long reply only the end can hold what ends the block."""
        self._mentioned = self._mentioned or mentions(self._text)
        self._base += len(self._text) - LONGEST_TAG
        self._text = self._text[-LONGEST_TAG:]

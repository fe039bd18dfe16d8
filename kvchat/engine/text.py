"""The text of a reply, from the bytes of its tokens.

Owns what may be shown already: complete characters, and nothing that may turn out to be a stop string. Must not know
where tokens come from or where text goes.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settled:
    """Text that is certain, and the ids that it is the text of."""

    text: str = ""
    ids: tuple[int, ...] = ()


class TextStream:
    """Turns (id, bytes) into text. All that was settled is, at any time, the text of exactly the ids that were settled.

    Text is what `bytes.decode("utf-8", "replace")` makes of all bytes together. It ends before the first stop string:
    the one that is complete first, and of several that end together the longest; how the text is cut into tokens makes
    no difference. Once `stopped`, nothing more comes out, and `rest` is text that belongs to the reply but has no
    ids, since the stop string begins inside a token: the caller tokenizes it.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._waiting: list[int] = []  # ids of tokens whose last character is not complete
        self._tokens: deque[tuple[int, tuple[int, ...]]] = deque()  # where in `_held` tokens end, and their ids
        self.stopped = False
        self.rest = ""

    def feed(self, token: int, piece: bytes) -> Settled:
        """Adds a token. Returns what is certain now."""
        if self.stopped:
            return Settled()
        self._waiting.append(token)
        return self._add(self._decoder.decode(piece), complete=not self._decoder.getstate()[0])

    def flush(self) -> Settled:
        """The reply has ended: all that is held, an incomplete character as U+FFFD. It may be a stop string."""
        if self.stopped:
            return Settled()
        settled = self._add(self._decoder.decode(b"", final=True), complete=True)
        return settled if self.stopped else _joined(settled, self._take(len(self._held)))

    def _add(self, text: str, complete: bool) -> Settled:
        self._held += text
        if complete and self._waiting:
            self._tokens.append((len(self._held), tuple(self._waiting)))
            self._waiting = []
        end = self._stop_at()
        if end is None:
            return self._take(len(self._held) - self._possible_stop())
        self.stopped = True
        settled = self._take(end)
        self.rest = self._held[: end - len(settled.text)]
        return settled

    def _take(self, end: int) -> Settled:
        """Whole tokens up to `end`."""
        ids: list[int] = []
        taken = 0
        while self._tokens and self._tokens[0][0] <= end:
            taken, some = self._tokens.popleft()
            ids += some
        text, self._held = self._held[:taken], self._held[taken:]
        self._tokens = deque((at - taken, some) for at, some in self._tokens)
        return Settled(text, tuple(ids))

    def _stop_at(self) -> int | None:
        """Where the stop string begins that is complete first."""
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        ends = range(min(longest, len(self._held)), 0, -1)
        return next((n for n in ends if any(stop.startswith(self._held[-n:]) for stop in self._stops)), 0)


def _joined(first: Settled, second: Settled) -> Settled:
    return Settled(first.text + second.text, first.ids + second.ids)

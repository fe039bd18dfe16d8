"""A reply that is being written. Owns its text and token ids so far, such that a piece costs its own length only.

Grows on the conversation's thread. What has been taken by `so_far` may be read on another one: pieces and ids are added
at the end and never changed. Must not know where a reply is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

Ids = Sequence[int]
SoFar = Callable[[], tuple[str, Ids | None]]
"""Makes the text and the ids of a moment. The ids are None when nothing is known of them."""


class GrowingReply:
    """`text` joins the pieces when it is asked for, and is the one piece from then on."""

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]
        self._ids: array[int] | None = None

    @property
    def text(self) -> str:
        """All of it so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]  # another list: the one before may be in use
        return self._pieces[0]

    @property
    def count(self) -> int:
        """Its tokens so far, where they are known."""
        return len(self._ids or ())

    def know_ids(self, ids: Ids) -> None:
        """The prompt is tokenized: the reply has these ids, and from now on those that come with its text."""
        self._ids = array("i", ids)

    def add(self, text: str, ids: Ids) -> None:
        """More of it."""
        self._pieces.append(text)
        if self._ids is not None:
            self._ids.extend(ids)

    def so_far(self) -> SoFar:
        """What there is now, to be made later."""
        pieces, count = self._pieces, len(self._pieces)
        ids, known = self._ids, len(self._ids or ())
        return lambda: ("".join(pieces[:count]), None if ids is None else ids[:known])

"""One sequence of a context and the logits that the last decode told of it. Owns where these are; must not decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvchat.engine.llama import NativeContext
from kvchat.engine.memory import Memory


class Outputs:
    """Where in the last batch the logits of a sequence are. They hold until the next decode of the context."""

    def __init__(self, native: NativeContext) -> None:
        self._native = native
        self._after = range(0)  # after so many tokens of the chat there are logits
        self.last = 0  # index in the batch of the last token of the sequence
        self.witnessed: npt.NDArray[np.float32] | None = None  # logits of the last witness, shape (vocabulary,)

    def told(self, first: int, end: int, output: int) -> None:
        """Logits came: of the last `output` tokens up to position `end`; the last of them has the index `first` in the
        batch."""
        self.last = first
        self._after = range(end - output + 1, end + 1)

    def forget(self) -> None:
        """What was told is about cells that may be others from now on."""
        self._after = range(0)

    def after(self, length: int) -> npt.NDArray[np.float32] | None:
        """Logits of the token after the first `length` of the chat, shape (vocabulary,), if the last decode told
        them."""
        if length not in self._after:
            return None
        return self._native.logits(self.last - (self._after[-1] - length))

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last token, shape (vocabulary,)."""
        return self._native.logits(self.last)


@dataclass(frozen=True, slots=True)
class Track:
    """A sequence by its number."""

    sequence: int
    memory: Memory
    outputs: Outputs

"""The check on resume within a turn: which token is decoded once more, and where its logits are.

Owns where the check finds what it compares; `check` owns the comparison. Must not decode, or act on the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.engine.cells import Cells
from kvchat.engine.check import ResumeCheck
from kvchat.engine.context import Context
from kvchat.engine.step import Witness
from kvchat.engine.track import Outputs


class Proof:
    """What is to be proved of the tokens that were restored."""

    def __init__(self, check: ResumeCheck, context: Context, cells: Cells, outputs: Outputs) -> None:
        self._check = check
        self._context = context
        self._cells = cells
        self._outputs = outputs

    def witness(self, tokens: int) -> Witness | None:
        """The last restored token, where the next batch, of so many tokens, has room to compute it once more. A batch
        of one is left alone: it is computed in another way than one of two."""
        mark, there = self._check.pending(self._cells.past), len(self._cells)
        room = min(self._context.chunk, self._context.cells - self._cells.live) - 1
        if mark is None or mark.length > there or not 1 < tokens <= room:
            return None
        if not self._cells.memory.sees_as_before(mark.length):
            return None
        return Witness(mark.last, mark.length - 1)

    def stands(self, tokens: Sequence[int], witness: Witness | None, output: int) -> bool:
        """Whether the last decode, of `tokens`, told what it told when the past was saved, as far as that is known."""
        logits = self._outputs.witnessed if witness is not None else None
        if witness is None and output and len(tokens) == 1:
            mark = self._check.pending(self._cells.past)
            if mark is not None and mark.length == len(self._cells) + 1 and mark.last == tokens[0]:
                logits = self._outputs.logits()
        return logits is None or self._check.passes(logits)

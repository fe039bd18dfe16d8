"""What of several turns is computed together: a pure choice.

Owns the order and the shares. A turn that writes its answer wants few tokens at a time, and wants them now; a prompt
that is read wants many, and takes what is left. Must not know turns or measure time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 4  # tokens that are computed with a proof: one alone is computed in another way
SMALL = 32  # tokens: a step of an answer, with a draft; more is reading


@dataclass(frozen=True, slots=True)
class Want:
    """What a turn wants to have computed next: so many tokens, the last `output` of them with logits. `alone`: with
    nothing else in the batch. `reads`: of a prompt."""

    tokens: int
    output: int
    reads: bool
    alone: bool = False

    @property
    def is_small(self) -> bool:
        """Whether it goes first, and as a whole."""
        return not self.reads and self.tokens <= SMALL


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens and logits of a batch, free cells, and tokens of prompts beside answers."""

    tokens: int
    outputs: int
    cells: int
    beside_answers: int


def compose(wants: Sequence[Want], limits: Limits) -> list[int]:
    """How many tokens of each are computed now. Who stands first comes first; answers come before prompts, and prompts
    share what is left alike, so that a short one does not wait for the end of a long one."""
    shares = [0] * len(wants)
    room, outputs = min(limits.tokens, limits.cells), limits.outputs
    lonely = next((i for i, want in enumerate(wants) if want.alone), None)
    if lonely is not None and room > LEAST:
        answers = any(want.is_small and not want.alone for want in wants)
        most = max(LEAST, limits.beside_answers) if answers else room
        shares[lonely] = min(wants[lonely].tokens, most, room)
        return shares
    for i, want in enumerate(wants):
        if want.is_small and not want.alone and want.tokens <= room and want.output <= outputs:
            shares[i] = want.tokens
            room -= want.tokens
            outputs -= want.output
    if any(shares):
        room = min(room, limits.beside_answers)
    _share(wants, shares, room, outputs)
    return shares


def _share(wants: Sequence[Want], shares: list[int], room: int, outputs: int) -> None:
    """Divide `room` among the prompts: those who want least get all of it, the others equal parts."""
    prompts = [i for i, want in enumerate(wants) if not want.is_small and not want.alone]
    for number, i in enumerate(sorted(prompts, key=lambda i: wants[i].tokens)):
        part = min(wants[i].tokens, -(-room // (len(prompts) - number)))
        if part == wants[i].tokens and wants[i].output > outputs:
            part -= 1  # its logits must wait
        elif part == wants[i].tokens:
            outputs -= wants[i].output
        shares[i] = part
        room -= part

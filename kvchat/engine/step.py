"""One decode that a turn asks for, and what became of it. Values; own nothing."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Witness(NamedTuple):
    """A token of the chat that is in its cells and is computed once more, for its logits: in the scratch sequence,
    which shares all cells before it, so that those of the chat stay as they are."""

    token: int
    position: int


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens to be decoded next at `position`; the logits of the last `output` of them are wanted. `whole`: it is not
    to be interrupted. `witness` is decoded with them, for the check on resume."""

    tokens: Sequence[int]
    position: int
    output: int
    whole: bool = False
    witness: Witness | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What a step took: its part of the seconds of a decode that computed others, too, by tokens. `alone`: it did not,
    and was one decode."""

    seconds: float
    alone: bool = True


Steps = Generator[Step, Done, None]
"""Decodes, one after the other; each is sent what became of it."""

"""One decode that a turn asks for. A value; owns nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.engine.context import Witness


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens to be decoded next at `position`; the logits of the last `output` of them are wanted. `whole`: it is not
    to be interrupted. `witness` is decoded with them, for the check on resume."""

    tokens: Sequence[int]
    position: int
    output: int
    whole: bool = False
    witness: Witness | None = None

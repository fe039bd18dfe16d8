"""Tokens in order as a row of cells, which differ in glyph as well as in colour. Pure; must not know chats."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from textual.content import Content


@dataclass(frozen=True, slots=True)
class Look:
    """How a token is drawn. Glyphs differ where meanings do, so that a bar can be read without colour."""

    glyph: str
    style: str


FREE = Look("·", "$edge")


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many tokens in a row that look alike."""

    tokens: int
    look: Look


def bar(stretches: Sequence[Stretch], cells: int) -> Content:
    """All tokens in `cells` cells, each of which looks as the token in its middle does."""
    total = sum(each.tokens for each in stretches)
    if total <= 0 or cells <= 0:
        return Content(" " * max(0, cells))
    ends = list(accumulate(each.tokens for each in stretches))
    middles = ((2 * cell + 1) * total // (2 * cells) for cell in range(cells))
    runs = groupby(stretches[bisect_right(ends, middle)].look for middle in middles)
    return Content.assemble(*(Content.styled(look.glyph * len(list(run)), look.style) for look, run in runs))


def filled(share: float, cells: int, look: Look, rest: Look = FREE) -> Content:
    """A bar that is full at share 1; of what is there, at least one cell is seen."""
    full = min(cells, max(round(share * cells), 1 if share > 0 else 0))
    return Content.assemble(
        Content.styled(look.glyph * full, look.style), Content.styled(rest.glyph * (cells - full), rest.style)
    )

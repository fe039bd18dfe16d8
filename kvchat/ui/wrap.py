"""Plain text to rows of cells. Pure functions: owns nothing, must not know widgets, styles or scrolling.

A row is a range of the source, so that what is copied from the screen is the source and not what was wrapped. Widths
are those of `rich.cells`, by which Textual composes the screen. Wrapping is greedy, and every row but the last depends
only on text before its own break: a text that grows is wrapped again from its last row on, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes

from kvchat.ui.display import SELECTOR, agreed

TAB = 4
NEVER_FIRST = frozenset("、。，．・：；？！）］｝」』】〉》〕ーゝ々ぁぃぅぇぉっゃゅょァィゥェォッャュョ…‥,.:;?!)]}%")
NEVER_LAST = frozenset("（［｛「『【〈《〔([{$¥￥")


class Row(NamedTuple):
    """Text `[start, end)` of the source. White space at the break belongs to no row."""

    start: int
    end: int


def wrap(text: str, width: int, start: int = 0) -> list[Row]:
    """Rows of `text[start:]`, none wider than `width` cells unless one grapheme is. Every line feed ends a row."""
    rows: list[Row] = []
    width = max(1, width)
    while True:
        stop = text.find("\n", start)
        end = len(text) if stop < 0 else stop
        rows += _wrap_line(text, start, end, width)
        if stop < 0:
            return rows
        start = stop + 1


def shown(text: str, row: Row) -> str:
    """The row as it stands on the screen: tabs become spaces, emoji are as wide as everywhere."""
    piece = agreed(text[row.start : row.end])
    if "\t" not in piece:
        return piece
    out: list[str] = []
    column = 0
    for part in piece.split("\t"):
        column += cell_len(part)
        gap = TAB - column % TAB
        out += [part, " " * gap]
        column += gap
    return "".join(out[:-1])


def source_offset(text: str, row: Row, column: int) -> int:
    """Where in the source the character `column` of the shown row stands, clamped to the row."""
    if column <= 0:
        return row.start
    piece = text[row.start : row.end]
    if "\t" not in piece and SELECTOR not in piece:
        return min(row.start + column, row.end)
    for index in range(len(piece)):
        if len(shown(text, Row(row.start, row.start + index + 1))) > column:
            return row.start + index
    return row.end


def _wrap_line(text: str, start: int, end: int, width: int) -> Iterator[Row]:
    """The fast way for ASCII. It must break where `_wrap_graphemes` does: a line may turn from one to the other."""
    piece = text[start:end]
    at_line_start = start == 0 or text[start - 1] == "\n"
    indent = len(piece) - len(piece.lstrip(" ")) if at_line_start else 0
    if not piece.isascii() or "\t" in piece or indent >= width:
        yield from _wrap_graphemes(text, start, end, width)
        return
    least = start + indent
    while end - start > width:
        space = text.rfind(" ", start, start + width + 1)
        if space <= least:
            yield Row(start, start + width)
            start += width
        else:
            stop = space
            while stop > start + 1 and text[stop - 1] == " ":
                stop -= 1
            yield Row(start, stop)
            start = space + 1
            while start < end and text[start] == " ":
                start += 1
            if start == end:
                return
        least = start
    yield Row(start, end)


def _wrap_graphemes(text: str, start: int, end: int, width: int) -> Iterator[Row]:
    spans = list(_graphemes(text, start, end))
    first = index = 0  # the first grapheme of this row, the one to be placed
    breaking = -1  # the last grapheme that may begin the next row
    column = 0
    while index < len(spans):
        begin, _, cells = spans[index]
        if text[begin] == "\t":
            cells = TAB - column % TAB
        if index > first and _may_break(text, spans, first, index):
            breaking = index
        if column + cells <= width or index == first:
            column += cells
            index += 1
            continue
        if text[begin] in " \t":
            stop = following = index
        else:
            following = breaking if breaking > first else index
            stop = following
        while stop > first + 1 and text[spans[stop - 1][0]] in " \t":
            stop -= 1
        yield Row(spans[first][0], spans[stop - 1][1])
        while following < len(spans) and text[spans[following][0]] in " \t":
            following += 1
        if following == len(spans):
            return
        first = index = following
        breaking, column = -1, 0
    yield Row(spans[first][0], end)


def _graphemes(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and cells of each grapheme. A tab is one of its own, which `split_graphemes` does not see."""
    while start < end:
        tab = text.find("\t", start, end)
        stop = end if tab < 0 else tab
        for first, last, cells in split_graphemes(text[start:stop])[0]:
            grapheme = text[start + first : start + last]
            yield start + first, start + last, cell_len(agreed(grapheme)) if SELECTOR in grapheme else cells
        if tab >= 0:
            yield tab, tab + 1, TAB
        start = stop + 1


def _may_break(text: str, spans: list[tuple[int, int, int]], first: int, index: int) -> bool:
    """Whether grapheme `index` may stand first in a row that began with `first`."""
    here, before = text[spans[index][0]], text[spans[index - 1][0]]
    if here in " \t":
        return False
    if before in " \t":
        return any(text[spans[k][0]] not in " \t" for k in range(first, index))
    if here in NEVER_FIRST or before in NEVER_LAST:
        return False
    return (spans[index][2] == 2 and not _hangul(here)) or (spans[index - 1][2] == 2 and not _hangul(before))


def _hangul(character: str) -> bool:
    """Korean is written with spaces and breaks at them."""
    return "가" <= character <= "힣"

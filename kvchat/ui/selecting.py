"""From a selection on the screen to the source below it, and its colours. Pure; must not know widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.strip import Strip

from kvchat.ui.entry import Item
from kvchat.ui.markdown_rows import Block, source_end, source_start
from kvchat.ui.positions import Positions

_FAR = 1 << 30  # a column behind the end of every row
_CODE = ("fence", "code_block")


class Place(NamedTuple):
    """A row of what an entry says, and a character of it."""

    row: int
    column: int


def selected_source(items: Sequence[Item], positions: Positions, start: Offset, end: Offset, indent: int) -> str:
    """The text between two offsets (character and line), `end.x` exclusive; entries a blank line apart."""
    pieces: list[str] = []
    for index in range(positions.at(start.y), positions.at(end.y) + 1):
        item = items[index]
        top = positions.top(index) + bool(item.heading)
        first = last = None
        if start.y > positions.top(index) or (start.y == positions.top(index) and start.x > 0):
            first = Place(start.y - top, start.x - indent)
        if end.y < positions.top(index + 1):
            last = Place(end.y - top, end.x - indent)
        if piece := source_between(item, first, last):
            pieces.append(piece)
    return "\n\n".join(pieces)


def source_between(item: Item, first: Place | None, last: Place | None) -> str:
    """The source of an entry between two places, `last` exclusive; None: from the beginning, to the end.

    A block that is selected as a whole, or to its edge from outside, is taken with its marks; of code that is selected
    from inside its fence stays behind.
    """
    text = item.clean_text()
    start, begun = (item.body.shown_from, -1) if first is None else _forward(item, first)
    end, ended = (len(text), len(item.body)) if last is None else _backward(item, last)
    if start >= end:
        return ""
    bare_start, bare_end = start, end
    for block in item.blocks:
        rows = range(block.first, block.first + block.rows)
        if (begun not in rows and ended not in rows) or (begun in rows and ended in rows and block.kind in _CODE):
            continue
        head, tail = _edges(item, block)
        if bare_start <= head and bare_end >= tail:
            start = min(start, block.start) if begun in rows else start
            end = max(end, block.end) if ended in rows else end
    return text[start:end]


def _edges(item: Item, block: Block) -> tuple[int, int]:
    """Where what is shown of a block begins and ends in the source."""
    start, _ = _forward(item, Place(block.first, 0))
    end, _ = _backward(item, Place(block.first + block.rows - 1, _FAR))
    return start, end


def _forward(item: Item, place: Place) -> tuple[int, int]:
    """The first character at or after a place that shows something of the source, and its row."""
    row, column = (0, 0) if place.row < 0 else place
    while row < len(item.body):
        found = source_start(item.body.row(row), column, item.text)
        if found is not None:
            return found, row
        row, column = row + 1, 0
    return len(item.text), row


def _backward(item: Item, place: Place) -> tuple[int, int]:
    """The end of the last character before a place that shows something of the source, and its row."""
    last = len(item.body) - 1
    row, column = (last, _FAR) if place.row > last else place
    while row >= 0:
        found = source_end(item.body.row(row), column, item.text)
        if found is not None:
            return found, row
        row, column = row - 1, _FAR
    return 0, row


def highlight(strip: Strip, span: tuple[int, int], indent: int, style: Style) -> Strip:
    """The strip with characters `span` in the style of the selection; an end of -1 is the end of the text."""
    text = strip.text.rstrip()
    start, end = span
    end = len(text) if end == -1 else min(end, len(text))
    start = max(start, indent)
    if start >= end:
        return strip
    left, right = cell_len(text[:start]), cell_len(text[:end])
    chosen = Strip(Segment.apply_style(strip.crop(left, right), post_style=style), right - left)
    return Strip.join([strip.crop(0, left), chosen, strip.crop(right, strip.cell_length)])

"""From a selection on the screen to the source below it, and its colours. Pure; must not know widgets."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.strip import Strip

from kvchat.ui.entry import Item
from kvchat.ui.positions import Positions


def selected_source(items: Sequence[Item], positions: Positions, start: Offset, end: Offset, indent: int) -> str:
    """The text between two offsets (character and line), `end.x` exclusive; entries a blank line apart."""
    pieces: list[str] = []
    last = positions.at(end.y)
    for index in range(positions.at(start.y), last + 1):
        item, top = items[index], positions.top(index)
        first, stop = 0, len(item.clean_text())
        if start.y > top or (start.y == top and start.x > 0):
            first = item.offset(start.y - top, start.x - indent)
        if end.y < positions.top(index + 1):
            stop = item.offset(end.y - top, end.x - indent)
        if piece := item.text[first:stop]:
            pieces.append(piece)
    return "\n\n".join(pieces)


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

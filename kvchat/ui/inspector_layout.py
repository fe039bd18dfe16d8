"""Which panels of the inspector are on which page, and how high. Owns boxes and their places; must not know what is in
them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

from kvchat.ui.inspector_turns import ChartName
from kvchat.ui.meters import shortened

Panel = Literal["context", "store", "memory", "turns"] | ChartName
CHART_PANELS: tuple[ChartName, ...] = ("first", "speed", "tokens", "drafts")

WIDE = 108  # cells from which panels stand side by side
NARROWEST_CHART = 35  # cells of one that stands beside others
FRAME = 2  # lines and, with a blank on each side, 4 cells
_CHART_LINES, _TALLEST_CHART = 7, 14
_FEWEST_TURNS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side, with the height of their boxes."""

    panels: tuple[Panel, ...]
    height: int


def pages(width: int, height: int, lines: Mapping[Panel, int], *, drafted: bool = False) -> list[list[Row]]:
    """Rows of panels, page by page: as many to a page as fit into `height`. `lines`: how many those panels have whose
    height is known; charts and turns share what is left. `drafted`: the chart of drafts has something to show."""
    found: list[list[Row]] = [[]]
    free = height
    charts = CHART_PANELS if drafted else tuple(panel for panel in CHART_PANELS if panel != "drafts")
    for row in _rows(width, lines, charts):
        needed = min(row.height, height)
        if found[-1] and needed > free:
            found.append([])
            free = height
        found[-1].append(Row(row.panels, needed))
        free -= needed
    return [list(_stretched(page, height)) for page in found]


def _rows(width: int, lines: Mapping[Panel, int], charts: Sequence[ChartName]) -> Iterator[Row]:
    """All rows in their order, none higher than it must be. Charts that have no room beside the others stand behind the
    turns."""

    def fixed(*panels: Panel) -> Row:
        return Row(panels, max(lines[panel] for panel in panels) + FRAME)

    yield fixed("context")
    if width >= WIDE:
        yield fixed("memory", "store")
        beside = max(3, width // NARROWEST_CHART)
        yield Row(tuple(charts[:beside]), _CHART_LINES)
        yield Row(("turns",), _FEWEST_TURNS)
        yield from (Row((panel,), _CHART_LINES) for panel in charts[beside:])
    else:
        yield fixed("store")
        yield fixed("memory")
        yield Row(("turns",), _FEWEST_TURNS)
        yield from (Row((panel,), _CHART_LINES) for panel in charts)


def _stretched(page: Sequence[Row], height: int) -> Iterator[Row]:
    """The page with what is left given to charts, up to a height, and to the turns."""
    left = height - sum(row.height for row in page)
    charts = sum(row.panels[0] in CHART_PANELS for row in page)
    turns = any("turns" in row.panels for row in page)
    share = left // (charts + turns) if charts + turns else 0
    more = min(share, _TALLEST_CHART - _CHART_LINES)
    for row in page:
        if row.panels[0] in CHART_PANELS:
            yield Row(row.panels, row.height + more)
        elif "turns" in row.panels:
            yield Row(row.panels, row.height + left - more * charts)
        else:
            yield row


def widths(width: int, count: int) -> list[int]:
    """`width` cells in so many parts, the first ones a cell wider where it does not come out even."""
    return [width // count + (index < width % count) for index in range(count)]


def box(title: str, below: str, lines: Sequence[Content], width: int, height: int) -> list[Content]:
    """A frame with words in its upper and lower edge around lines that are cut to its inside; what `height` has no room
    for is left out from below."""
    inner, room = max(0, width - 4), max(0, height - FRAME)
    shown = [*lines[:room], *[Content("")] * (room - len(lines))]
    side = Content.styled("│", "$edge")
    middle = [
        Content.assemble(side, " ", line.truncate(inner, pad=True) if inner else Content(""), " ", side)
        for line in shown
    ]
    return [_edge("╭╮", title, "$foreground", width), *middle, _edge("╰╯", below, "$meta", width)][:height]


def beside(boxes: Sequence[Sequence[Content]]) -> list[Content]:
    """Boxes of the same height, side by side."""
    return [Content.assemble(*lines) for lines in zip(*boxes, strict=True)]


def _edge(corners: str, words: str, style: str, width: int) -> Content:
    words = shortened(words, max(0, width - 6))
    label = f" {words} " if words else ""
    rest = max(0, width - 3 - Content(label).cell_length)
    return Content.assemble(
        Content.styled(f"{corners[0]}─", "$edge"),
        Content.styled(label, style),
        Content.styled(f"{'─' * rest}{corners[1]}", "$edge"),
    )

"""Line plots in braille dots, with axes. Pure: numbers in, rows of text in styles out; must not know what they mean, or
how a style looks.

Lines that cross can be told apart without colour: by their dashes, and where points are few by their markers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

AXIS_ROWS = 2
EDGE, LABEL = "edge", "label"  # styles of the axes and of what stands at them; others are those of the series
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
_BLANK = 0x2800
_ROOM = 3  # cells for each point, so that markers do not touch
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 20)

Cell = tuple[str, str]  # a character and its style
Run = tuple[str, str]  # characters of one style, and that; "" for none


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) from left to right, y from 0 up. `dots` drawn, then `gap` left out; `marker` stands at a point."""

    points: tuple[tuple[float, float], ...]
    style: str
    marker: str
    dots: int = 1
    gap: int = 0


def plot(series: Sequence[Series], width: int, height: int, last: int, first: int = 1) -> list[list[Run]]:
    """`height` lines of `width` cells: the series for x from `first` to `last`, above an axis with whole numbers. Later
    series are drawn over earlier ones."""
    top = nice_top(max((y for each in series for _, y in each.points), default=0.0))
    rows = max(1, height - AXIS_ROWS)
    labels = _labels(top, rows)
    gutter = max(map(len, labels))
    cells = max(1, width - gutter - 1)
    canvas = _Canvas(cells, rows, top, first, last)
    for each in series:
        canvas.draw(each)
    if max((len(each.points) for each in series), default=0) * _ROOM <= max(cells, _ROOM):
        for each in series:
            canvas.mark(each)
    lines = [_line(label.rjust(gutter), row) for label, row in zip(labels, canvas.rows(), strict=True)]
    return [*lines, *_axis(gutter, cells, first, last, canvas)][:height]


def nice_top(value: float) -> float:
    """The smallest round number (one digit, half of which is round too) that is not below `value`; 1 for nothing."""
    if not value > 0 or math.isinf(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def number_text(value: float) -> str:
    """A number in few characters: 0.5, 12, 1.5k, 20M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


class _Canvas:
    """Dots of several series, two columns and four rows to a cell."""

    def __init__(self, cells: int, rows: int, top: float, first: int, last: int) -> None:
        self._width, self._height = 2 * cells, 4 * rows
        self._top, self._first, self._last = top, first, last
        self._dots = [[0] * cells for _ in range(rows)]
        self._styles = [[""] * cells for _ in range(rows)]
        self._marks: dict[tuple[int, int], Cell] = {}

    def column(self, x: float) -> int:
        """The column of dots for x."""
        return round((x - self._first) / max(1, self._last - self._first) * (self._width - 1))

    def draw(self, series: Series) -> None:
        """The lines between its points."""
        places = [self._place(x, y) for x, y in series.points]
        steps = (step for start, end in pairwise(places) for step in _between(start, end))
        for number, (x, y) in enumerate([*places[:1], *steps]):
            if number % (series.dots + series.gap) < series.dots:
                self._set(x, y, series.style)

    def mark(self, series: Series) -> None:
        """The points themselves."""
        for x, y in series.points:
            column, row = self._place(x, y)
            self._marks[row // 4, column // 2] = series.marker, series.style

    def rows(self) -> Iterator[list[Cell]]:
        """The cells of each row, from the top."""
        for row, (dots, styles) in enumerate(zip(self._dots, self._styles, strict=True)):
            drawn = [(chr(_BLANK + dot) if dot else " ", style) for dot, style in zip(dots, styles, strict=True)]
            yield [self._marks.get((row, column), cell) for column, cell in enumerate(drawn)]

    def _place(self, x: float, y: float) -> tuple[int, int]:
        row = round((1 - min(max(y / self._top, 0.0), 1.0)) * (self._height - 1))
        return min(max(self.column(x), 0), self._width - 1), row

    def _set(self, x: int, y: int, style: str) -> None:
        self._dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
        self._styles[y // 4][x // 2] = style


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots after `start` up to `end`."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
    for step in range(1, steps + 1):
        yield (
            start[0] + round((end[0] - start[0]) * step / steps),
            start[1] + round((end[1] - start[1]) * step / steps),
        )


def _labels(top: float, rows: int) -> list[str]:
    """Of each row: the top, 0 at the bottom, and half of the top where a row is in the middle."""
    labels = [""] * rows
    if rows > 2 and rows % 2:
        labels[rows // 2] = number_text(top / 2)
    labels[-1] = "0"
    labels[0] = number_text(top)
    return labels


def _line(label: str, row: list[Cell]) -> list[Run]:
    runs = [("".join(text for text, _ in run), style) for style, run in groupby(row, key=lambda cell: cell[1])]
    return [(label, LABEL), ("┤" if label.strip() else "│", EDGE), *runs]


def _axis(gutter: int, cells: int, first: int, last: int, canvas: _Canvas) -> list[list[Run]]:
    """The base line with its ticks, and the numbers below them."""
    ticks = sorted({first, (first + last) // 2, last} if last - first > 1 else {first, last})
    base, numbers = ["─"] * cells, [" "] * cells
    free = 0
    for tick in [first, *(tick for tick in reversed(ticks) if tick != first)]:
        text = str(tick)
        at = canvas.column(tick) // 2
        start = min(max(0, at - len(text) // 2), max(0, len(numbers) - len(text)))
        around = numbers[max(0, start - 1) : start + len(text) + 1]
        if any(character != " " for character in around):
            continue  # two numbers would touch
        base[at] = "┴"
        numbers[start : start + len(text)] = text
        free = max(free, start + len(text))
    left = " " * gutter
    return [
        [(f"{left}└{''.join(base)}", EDGE)],
        [(f"{left} {''.join(numbers[: max(free, 1)])}", LABEL)],
    ]

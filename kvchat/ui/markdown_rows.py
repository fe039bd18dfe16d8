"""Rows of the transcript as runs of styled text. Pure values and functions; must not know Markdown, colours or widgets.

A run knows which part of the source it shows, so that a selection on the screen leads back to what was written. Its ink
is the name of a style, with marks behind a slash: "text", "text/bi", "link/b" (bold, italic, struck, underlined).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kvchat.ui.display import agreed
from kvchat.ui.wrap import Row, shown, source_offset, wrap


class Run(NamedTuple):
    """Text in one ink that shows `[start, end)` of the source; a start of -1 is a decoration that shows none."""

    text: str
    ink: str
    start: int = -1
    end: int = -1


Runs = tuple[Run, ...]
"""One row, from left to right."""


class LateRow(Protocol):
    """A row that is made when it is drawn, because its colours cost something."""

    def runs(self) -> Runs:
        """The row."""
        ...

    def behind(self, run: Run) -> LateRow:
        """The same row with a run before it."""
        ...


AnyRow = Runs | LateRow


class Block(NamedTuple):
    """What browsing marks and copies as one: `rows` rows from `first`, showing `[start, end)` of the source."""

    kind: str
    start: int
    end: int
    first: int
    rows: int


def marked(ink: str, marks: str) -> str:
    """The ink with these marks besides its own."""
    name, _, own = ink.partition("/")
    both = "".join(sorted({*own, *marks}))
    return f"{name}/{both}" if both else name


def runs_of(row: AnyRow) -> Runs:
    """The runs of a row, made now if they are not made yet."""
    return row if isinstance(row, tuple) else row.runs()


def behind(run: Run, row: AnyRow) -> AnyRow:
    """The row with a run before it."""
    return (run, *row) if isinstance(row, tuple) else row.behind(run)


def prefixed(rows: Iterable[AnyRow], first: Run, rest: Run) -> list[AnyRow]:
    """Rows behind `first`, which stands before the first of them only, and `rest`."""
    return [behind(rest if index else first, row) for index, row in enumerate(rows)]


def wrap_runs(runs: Sequence[Run], width: int) -> list[AnyRow]:
    """Rows of the text of all runs together, none wider than `width` cells. Line feeds end rows."""
    flat = "".join(run.text for run in runs)
    rows: list[AnyRow] = []
    index, offset = 0, 0  # the first run that the row may begin in, and where that run begins
    for start, end in wrap(flat, width):
        while index < len(runs) and offset + len(runs[index].text) <= start:
            offset += len(runs[index].text)
            index += 1
        rows.append(_cut(runs, index, start - offset, end - offset))
    return rows


def cut_runs(runs: Sequence[Run], start: int, end: int) -> Runs:
    """Characters `[start, end)` of the text of all runs together."""
    return _cut(runs, 0, start, end)


def _cut(runs: Sequence[Run], index: int, start: int, end: int) -> Runs:
    """Characters `[start, end)`, counted from run `index`, as they are drawn."""
    pieces: list[Run] = []
    while index < len(runs) and end > 0:
        run = runs[index]
        length = len(run.text)
        if start < length and (piece := run.text[max(0, start) : end]):
            first = last = -1
            if run.start >= 0:
                exact = run.end - run.start == length
                first = run.start + max(0, start) if exact else run.start
                last = first + len(piece) if exact else run.end
            pieces.append(Run(agreed(piece), run.ink, first, last))
        start -= length
        end -= length
        index += 1
    return tuple(pieces)


def source_start(row: Runs, column: int, source: str) -> int | None:
    """Where in the source the first character at or after `column` of the row stands; None: there is none."""
    for run in row:
        if run.start >= 0 and column < len(run.text):
            return source_offset(source, Row(run.start, run.end), column)
        column -= len(run.text)
    return None


def source_end(row: Runs, column: int, source: str) -> int | None:
    """Where in the source the last character before `column` of the row ends; None: there is none."""
    found = None
    for run in row:
        if column <= 0:
            break
        if run.start >= 0:
            whole = column >= len(run.text)
            found = run.end if whole else source_offset(source, Row(run.start, run.end), column)
        column -= len(run.text)
    return found


class PlainRows:
    """Text that is no markup, from `start` on, as rows. `grow` costs the new text and the last row."""

    def __init__(self, width: int, start: int = 0, ink: str = "text") -> None:
        self._width = width
        self._start = start
        self._ink = ink
        self._rows: list[Row] = []
        self._text = ""

    def grow(self, text: str) -> int:
        """`text` begins with what it was before. Returns the first row that changed."""
        self._text = text
        start = self._start
        if self._rows:
            start = self._rows.pop().start
        else:
            start += len(text) - start - len(text[start:].lstrip("\n"))
        first = len(self._rows)
        if start < len(text):
            self._rows += wrap(text, self._width, start)
        return first

    def __len__(self) -> int:
        """Rows without the blank ones at the end."""
        count = len(self._rows)
        while count and self._rows[count - 1].start == self._rows[count - 1].end:
            count -= 1
        return count

    def row(self, number: int) -> Runs:
        """Row `number`."""
        row = self._rows[number]
        return (Run(shown(self._text, row), self._ink, row.start, row.end),)

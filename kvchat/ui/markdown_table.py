"""Tables to rows. Owns the widths of columns; must not know Markdown beyond the tokens of one table.

A table that is still being written keeps its rows: only a wider cell lays all of them out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from kvchat.ui.display import agreed
from kvchat.ui.markdown_inline import inline_runs
from kvchat.ui.markdown_parse import Group, Parsed
from kvchat.ui.markdown_rows import AnyRow, Run, Runs, marked, runs_of, wrap_runs

if TYPE_CHECKING:
    from markdown_it.token import Token

_NARROWEST = 4  # cells of a column; a table that does not fit so is shown as a list
_FEW = 16  # lines of a table that may be laid out again with each letter
_SEPARATOR = Run(" │ ", "edge")
Cells = list[list[Run]]


class TableLine(NamedTuple):
    """One line of the source: its cells, and the line's number in the parsed text."""

    cells: Cells
    line: int


class Table:
    """Rows of cells, the first of which is the heading, as rows of text."""

    def __init__(self, width: int, aligns: Sequence[str]) -> None:
        self._width = width
        self._aligns = aligns
        self._lines: list[Cells] = []
        self._natural = [1] * len(aligns)
        self._columns: list[int] | None = None
        self.rows: list[AnyRow] = []

    def add(self, cells: Cells) -> None:
        """One more line at the end."""
        self._lines.append(cells)
        room = self._width
        wider = False
        for column, runs in enumerate(cells[: len(self._natural)]):
            needed = min(room, _natural(runs))
            if needed > self._natural[column]:
                self._natural[column], wider = needed, True
        if wider or self._columns is None:
            self._lay_out(cells)
        else:
            self.rows += self._line(len(self._lines) - 1, cells)

    def with_last(self, cells: Cells) -> list[AnyRow]:
        """All rows and one more, which is still being written: a long table does not change its columns for it."""
        if len(self._lines) > _FEW:
            return [*self.rows, *self._line(len(self._lines), cells)]
        return self.with_lines([cells])

    def with_lines(self, lines: list[Cells]) -> list[AnyRow]:
        """All rows and those of more lines."""
        if not lines:
            return self.rows
        other = Table(self._width, self._aligns)
        for line in (*self._lines, *lines):
            other.add(line)
        return other.rows

    def _lay_out(self, cells: Cells) -> None:
        room = self._width - len(_SEPARATOR.text) * (len(self._natural) - 1)
        columns = fitted(self._natural, room)
        if columns == self._columns and self._columns:
            self.rows += self._line(len(self._lines) - 1, cells)
            return
        self._columns = columns
        self.rows = [row for number, line in enumerate(self._lines) for row in self._line(number, line)]

    def _line(self, number: int, cells: Cells) -> list[AnyRow]:
        if not self._columns:
            return self._listed(number, cells)
        wrapped = [
            [runs_of(row) for row in wrap_runs(cells[column] if column < len(cells) else [], width)]
            for column, width in enumerate(self._columns)
        ]
        rows: list[AnyRow] = [self._row(wrapped, line) for line in range(max(map(len, wrapped), default=1))]
        if number == 0:
            rows.append((Run("─┼─".join("─" * width for width in self._columns), "edge"),))
        return rows

    def _row(self, wrapped: list[list[Runs]], line: int) -> Runs:
        runs: list[Run] = []
        for column, width in enumerate(self._columns or ()):
            piece = wrapped[column][line] if line < len(wrapped[column]) else ()
            missing = width - sum(cell_len(run.text) for run in piece)
            align = self._aligns[column]
            left = missing if align == "right" else missing // 2 if align == "center" else 0
            runs += [_SEPARATOR] * bool(column)
            runs += [Run(" " * left, "text"), *piece, Run(" " * (missing - left), "text")]
        return tuple(run for run in runs if run.text)

    def _listed(self, number: int, cells: Cells) -> list[AnyRow]:
        """A line of a table that is too wide: each cell in a row of its own behind the heading of its column."""
        if number == 0:
            return []
        rows: list[AnyRow] = [()] if number > 1 else []
        for head, cell in zip(self._lines[0], cells, strict=False):
            title = [Run(run.text, run.ink) for run in head]
            rows += wrap_runs([*title, Run(": ", "text/b"), *cell], self._width)
        return rows


def fitted(natural: Sequence[int], room: int) -> list[int]:
    """Widths of columns that together take at most `room`; the widest give first. Empty: they cannot."""
    if sum(min(width, _NARROWEST) for width in natural) > room:
        return []
    low, high = _NARROWEST, max(natural)
    while low < high:  # the widest column that there can be
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(width, middle) for width in natural) <= room else (low, middle - 1)
    widths = [min(width, low) for width in natural]
    spare = room - sum(widths)
    for column, width in enumerate(natural):
        if spare > 0 and width > widths[column]:
            widths[column] += 1
            spare -= 1
    return widths


def table_rows(parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
    """A whole table."""
    table = new_table(group, width)
    for line in table_lines(parsed, group):
        table.add(line.cells)
    return table.rows


def new_table(group: Group, width: int) -> Table:
    """An empty table with the columns of this one."""
    heads = [token for token in group.tokens if token.type == "th_open"]
    return Table(width, [str(token.attrs.get("style", "")).removeprefix("text-align:") for token in heads])


def table_lines(parsed: Parsed, group: Group) -> list[TableLine]:
    """The lines of a table: its heading, then the others."""
    lines: list[TableLine] = []
    cells: Cells = []
    marks, first = "", group.first
    place = last = 0
    for token in group.tokens:
        if token.type == "tr_open":
            first = (token.map or (group.first, 0))[0]
            cells, place, last = [], parsed.place(first), parsed.place(first + 1)
            marks = "" if lines else "b"
        elif token.type == "inline":
            cells.append(_cell(parsed, token, place, last, marks))
            place = _after(cells[-1], parsed, place)
        elif token.type == "tr_close":
            lines.append(TableLine(cells, first))
    return lines


def _cell(parsed: Parsed, token: Token, first: int, last: int, marks: str) -> list[Run]:
    runs = inline_runs(parsed, token, first, last)
    return [run._replace(ink=marked(run.ink, marks)) for run in runs] if marks else runs


def _after(runs: list[Run], parsed: Parsed, place: int) -> int:
    return max((run.end - parsed.base for run in runs if run.start >= 0), default=place)


def _natural(runs: list[Run]) -> int:
    """Cells of the longest line of a cell."""
    return max(cell_len(agreed(line)) for line in "".join(run.text for run in runs).split("\n"))

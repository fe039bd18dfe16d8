"""A benchmark's report on a terminal: tables and plots in lines of text. Owns that form; must not measure.

A table that is wider than the terminal is told with its rows as columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from kvchat.bench.compare import Compared, Comparison
from kvchat.bench.report import NOISY, Line, Part, Report, Row, lines
from kvchat.clean import clean_line
from kvchat.commands.bench_words import MISSING, SPREAD, facts, number_text, value_text
from kvchat.commands.table import print_facts, print_table
from kvchat.plotting import Series, plot

_PLOT_ROWS, _WIDEST_PLOT = 13, 76
_MARKS = (("●", 1, 0), ("◆", 3, 2), ("○", 1, 2), ("▲", 5, 2), ("□", 2, 4), ("+", 1, 5))  # marker, dots, gap


def print_report(report: Report, out: TextIO, width: int) -> None:
    """All of it, in lines of `width` cells."""
    print_facts(facts(report.setup), out)
    for part in report.parts:
        print(f"\n{clean_line(part.title).upper()}", file=out)
        print(f"{_wrapped(part.method, width)}\n", file=out)
        _print_part(part, out, width)
    said = list(_remarks(report))
    if said:
        print(file=out)
    for line in said:
        print(_wrapped(line, width), file=out)


def _print_part(part: Part, out: TextIO, width: int) -> None:
    if part.rows:
        _print_rows(part, out, width)
    for spec in part.plots:
        drawn = lines(part, spec)
        if any(len(points) > 1 for _, points in drawn):
            print(f"\n{clean_line(spec.title)}", file=out)
            for line in plot_lines(drawn, min(width, _WIDEST_PLOT)):
                print(line, file=out)
    for note in part.notes:
        print(_wrapped(f"note: {note}", width), file=out)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(clean_line(text), width))


def _print_rows(part: Part, out: TextIO, width: int) -> None:
    cells = [[value_text(column, row.get(column.key)) for column in part.columns] for row in part.rows]
    titles = [column.title for column in part.columns]
    widest = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    if sum(widest) + 2 * (len(widest) - 1) <= width:
        numbers = [column.title for column in part.columns if column.kind != "text"]
        print_table(_apart(titles), cells, out, numbers=[_apart(titles)[titles.index(each)] for each in numbers])
        return
    head = [_row_name(part, row) for row in part.rows]
    at = [number for number, column in enumerate(part.columns) if not column.names]
    turned = [[titles[number], *(row[number] for row in cells)] for number in at]
    names = _apart(["", *head])
    print_table(names, turned, out, numbers=names[1:])


def _row_name(part: Part, row: Row) -> str:
    return " ".join(value_text(column, row.get(column.key)) for column in part.columns if column.names)


def _apart(titles: Sequence[str]) -> list[str]:
    """Titles of which no two are the same, as tables want them: spaces tell those apart that are."""
    found: list[str] = []
    for title in titles:
        while title in found:
            title += " "  # noqa: PLW2901 (until it is another)
        found.append(title)
    return found


def plot_lines(drawn: Sequence[Line], width: int) -> Iterator[str]:
    """The plot, and below it which marker is what."""
    series = [
        Series(points, "", marker, dots, gap) for (_, points), (marker, dots, gap) in zip(drawn, _MARKS, strict=False)
    ]
    xs = [x for each in series for x, _ in each.points]
    for row in plot(series, width, _PLOT_ROWS, round(max(xs)), round(min(xs))):
        yield "".join(text for text, _ in row).rstrip()
    named = zip(drawn, _MARKS, strict=False)
    yield "  ".join(f"{marker} {clean_line(name)}" for (name, _), (marker, _, _) in named)
    if left_out := [clean_line(name) for name, _ in drawn[len(_MARKS) :]]:
        yield from textwrap.wrap(f"only in the table: {', '.join(left_out)}", width)


def _remarks(report: Report) -> Iterator[str]:
    if any(part.noisy() for part in report.parts):
        yield SPREAD
    noisy = [part for part in report.parts if part.noisy() > NOISY]
    if noisy:
        load, after = (report.setup.get(name) for name in ("load_average", "load_average_after"))
        told = f" (load average {load} before it, {MISSING if after is None else after} after it)" if load else ""
        names = ", ".join(clean_line(part.title.lower()) for part in noisy)
        yield f"note: values differ by more than {NOISY:.0%} in {names}: other programs may have been at work{told}"
    yield f"measured in {report.seconds:,.0f} s" + (", ended before it was done" if report.interrupted else "")


def print_comparison(found: Comparison, names: tuple[str, str], out: TextIO, width: int) -> None:
    """The second report against the first."""
    print(f"A: {clean_line(names[0])}\nB: {clean_line(names[1])}", file=out)
    if found.differences:
        print("\nwhat the set-ups differ in", file=out)
        most = max(16, (width - 4 - max(len(each.name) for each in found.differences)) // 2)
        cells = [(each.name, _short(each.first, most), _short(each.second, most)) for each in found.differences]
        print_table(("", "A", "B"), cells, out)
    titles = dict.fromkeys(each.part for each in found.results)
    for title in titles:
        print(f"\n{clean_line(title)}", file=out)
        rows = [_result(each) for each in found.results if each.part == title]
        print_table(("", "result", "A", "B", "B/A", "B is"), rows, out, numbers=("A", "B", "B/A"))
    for sentence in found.left_out:
        print(_wrapped(f"note: {sentence}", width), file=out)


def _result(each: Compared) -> tuple[str, ...]:
    ratio = MISSING if each.ratio is None else number_text("ratio", each.ratio)
    first, second = (value_text(each.column, value) for value in (each.first, each.second))
    return each.row, each.column.title, first, second, ratio, each.verdict


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."

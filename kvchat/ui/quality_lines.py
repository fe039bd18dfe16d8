"""The check of quality as lines: what it needs, how far it is, what it found. Pure; must not know widgets, engines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from kvchat.backend.fidelity import FidelityReport, FidelityRow, Pair
from kvchat.bench.fidelity_text import COLUMNS, about, cells, depths, heading, name_of
from kvchat.plotting import Series
from kvchat.ui.display import display_line
from kvchat.ui.meters import bar, shortened
from kvchat.ui.plot import plot
from kvchat.ui.wording import duration

MIB = 2**20
FEWEST_LINES = 8  # of a plot that can be read
_STYLES = ("$primary", "$warning", "$success", "$accent", "$error")
_MARKS = "●◆▲■○"


@dataclass(frozen=True, slots=True)
class Question:
    """What would be measured. `own`: on the tokens of the chat, else on a text of kvchat's. Bytes that it needs and
    those that are free, None where that is not known; `seconds` that it would take, None: no speed is known yet."""

    tokens: int
    own: bool
    pairs: tuple[Pair, ...]
    needed: int | None
    free: int | None
    seconds: float | None


def question_lines(question: Question, width: int) -> Iterator[Content]:
    """What is asked before anything is computed."""
    text = "of this chat" if question.own else "of a text of kvchat's own, since this chat is short,"
    types = ", ".join(_types(pair) for pair in question.pairs)
    yield from wrapped(
        f"{question.tokens:,} tokens {text} are computed once more with each of these caches: {types}, and converted "
        "from f16; f16 itself is what they are compared with.",
        width,
    )
    yield Content("")
    yield from wrapped("The cells of the chat stay as they are. Whatever you send meanwhile goes first.", width)
    yield from wrapped(_needs(question), width)
    if question.needed is not None and question.free is not None and question.needed > question.free:
        yield from wrapped("Memory is short: it goes in several passes, which takes longer.", width, "$warning")


def wrapped(text: str, width: int, style: str = "") -> list[Content]:
    """Paragraphs in lines of at most so many characters."""
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, max(1, width)) or [""]]
    return [Content.styled(line, style) if style else Content(line) for line in lines]


def _needs(question: Question) -> str:
    parts = []
    if question.needed is not None:
        free = f", {question.free / MIB:,.0f} MiB are free" if question.free is not None else ""
        parts.append(f"It needs about {question.needed / MIB:,.0f} MiB of memory beside the model{free}.")
    if question.seconds is not None:
        parts.append(f"It takes about {duration(question.seconds)}.")
    return " ".join(parts) or "How long it takes is not known before a prompt was read."


def progress_lines(done: int, total: int, width: int) -> Iterator[Content]:
    """How far it is."""
    part = done / total if total else 0.0
    yield bar(part, max(1, min(width, 60)), "$primary")
    yield Content(f"{part:.0%} of {total:,} tokens" if total else "waiting for the engine")


def report_lines(report: FidelityReport, width: int, height: int) -> list[Content]:
    """The tables, the deepest first, and below as much of the course as fits."""
    lines = wrapped(display_line(about(report)), width, "$meta")
    for depth in reversed(depths(report)):
        lines += [Content(""), *_table(report, depth, width)]
    lines += [Content.styled(shortened(display_line(said), width), "$warning") for said in report.refused]
    left = height - len(lines) - 2
    drawn = [row for row in report.rows if row.curve and row.way == "native"]
    if left >= FEWEST_LINES and drawn:
        lines += [Content(""), _legend(drawn, width), *_plot(drawn, report, width, left)]
    return lines


def _table(report: FidelityReport, depth: int, width: int) -> Iterator[Content]:
    yield Content(shortened(heading(report, depth), width))
    rows = [(row, cells(row, at)) for row in report.rows for at in row.depths if at.depth == depth]
    widths = [max(map(cell_len, column)) for column in zip(COLUMNS, *(row for _, row in rows), strict=True)]
    yield Content.styled(_aligned(COLUMNS, widths, width), "$meta")
    for row, texts in rows:
        noise = row.way in ("batch", "flash")
        line = _aligned(texts, widths, width)
        yield Content.styled(line, "$meta") if noise else Content(line)


def _aligned(texts: Sequence[str], widths: Sequence[int], width: int) -> str:
    first, *others = texts
    right = (text.rjust(size) for text, size in zip(others, widths[1:], strict=True))
    return shortened("  ".join((set_cell_size(first, widths[0]), *right)), width)


def _legend(rows: Sequence[FidelityRow], width: int) -> Content:
    names = "  ".join(f"{mark} {name_of(row)}" for mark, row in zip(_MARKS, rows, strict=False))
    return Content.styled(shortened(f"Mean KL over the text, nats  {names}", width), "$meta")


def _plot(rows: Sequence[FidelityRow], report: FidelityReport, width: int, height: int) -> list[Content]:
    series = [
        Series(
            tuple((min((at + 1) * report.stretch, report.tokens), value) for at, value in enumerate(row.curve)),
            style,
            mark,
            dots=1 + number,
            gap=number,
        )
        for number, (row, style, mark) in enumerate(zip(rows, _STYLES, _MARKS, strict=False))
    ]
    return plot(series, width, height, report.tokens)


def _types(pair: Pair) -> str:
    return pair[0] if pair[0] == pair[1] else f"K {pair[0]} V {pair[1]}"

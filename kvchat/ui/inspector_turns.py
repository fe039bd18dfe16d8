"""What each turn of a chat cost and what reuse saved it: a table and three plots. Pure; must not know widgets.

What a turn would have cost without a cache is what computing the reused tokens took when they were computed, as the
engine noted it then; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

from kvchat.backend.values import Usage
from kvchat.chats.types import Message
from kvchat.conversation import read_usage
from kvchat.ui.inspector_context import ORIGINS
from kvchat.ui.meters import shortened
from kvchat.ui.plot import Series, plot
from kvchat.ui.wording import duration, source

ENDINGS = {"cancelled": "stopped", "length": "token limit", "context": "context full", "died": "engine died"}
NOTHING_YET = "No turn has been measured yet."
ChartName = Literal["first", "speed", "tokens"]
MEASURED, REUSE, WITHOUT = "●─", "◆╌", "○┄"


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn of a chat, counted from 1 over all its branches. `shown`: its answer is in the branch that is shown."""

    number: int
    usage: Usage
    finish: str
    shown: bool

    @property
    def speed(self) -> float | None:
        """Tokens a second of the answer."""
        usage = self.usage
        return usage.decode_tokens / usage.decode_seconds if usage.decode_tokens and usage.decode_seconds > 0 else None

    @property
    def first(self) -> float | None:
        """Seconds to the first token."""
        return self.usage.ttft_seconds or None

    @property
    def first_without(self) -> float | None:
        """The same, had nothing been reused: what computing the reused tokens took then comes on top."""
        return self.first + self.usage.saved_seconds if self.first is not None else None


def turn_rows(answers: Sequence[Message], shown: Collection[str]) -> tuple[TurnRow, ...]:
    """The turns that the engine reported on, the oldest first. `shown`: ids of the messages of the branch."""
    found = [(message, read_usage(message)) for message in answers]
    told = [(message, usage) for message, usage in found if usage is not None and usage.prompt_tokens]
    return tuple(
        TurnRow(number, usage, message.finish or "", message.id in shown)
        for number, (message, usage) in enumerate(told, 1)
    )


# ------------------------------------------------------------------ the table

Column = tuple[str, Callable[[TurnRow], str]]


def _glyphs(row: TurnRow) -> str:
    usage = row.usage
    counts = (("resident", usage.resident), ("pages", usage.pages), ("checkpoint", usage.checkpoint))
    return "".join(ORIGINS[origin].glyph for origin, count in counts if count)  # type: ignore[index]


def _words(row: TurnRow) -> str:
    return source(row.usage.resident, row.usage.pages, row.usage.checkpoint) or "-"


def _note(row: TurnRow) -> str:
    parts = [f"cut: {row.usage.cut}" if row.usage.cut else "", ENDINGS.get(row.finish, "")]
    return ", ".join(filter(None, (*parts, "" if row.shown else "other branch")))


NUMBER: Column = ("#", lambda row: str(row.number))
PROMPT: Column = ("prompt", lambda row: f"{row.usage.prompt_tokens:,}")
REUSED: Column = ("reused", lambda row: f"{row.usage.reused:,}")
WORDS: Column = ("from", _words)
GLYPHS: Column = ("from", _glyphs)
COMPUTED: Column = ("computed", lambda row: f"{row.usage.computed:,}")
FIRST: Column = ("first", lambda row: f"{row.first:.2f} s" if row.first is not None else "-")
SPEED: Column = ("tok/s", lambda row: f"{row.speed:,.1f}" if row.speed is not None else "-")
SAVED: Column = ("saved", lambda row: duration(row.usage.saved_seconds) if row.usage.saved_seconds else "-")

# The most columns that fit are taken; where the sources are glyphs, they are those of the context bar.
FORMS: tuple[tuple[Column, ...], ...] = (
    (NUMBER, PROMPT, REUSED, WORDS, COMPUTED, FIRST, SPEED, SAVED),
    (NUMBER, PROMPT, REUSED, GLYPHS, COMPUTED, FIRST, SPEED, SAVED),
    (NUMBER, REUSED, GLYPHS, COMPUTED, FIRST, SPEED, SAVED),
    (NUMBER, REUSED, COMPUTED, FIRST, SAVED),
)
NOTE_CELLS = 14
WIDEST_GAP = 4


def table_lines(rows: Sequence[TurnRow], width: int, height: int, first: int = 0) -> list[Content]:
    """A heading and the turns, the newest first, `first` of them left out."""
    if not rows:
        return [Content.styled(NOTHING_YET, "$meta")]
    newest = rows[::-1]
    form, widths = _form(rows, width)
    notes = max(NOTE_CELLS, *(len(_note(row)) + 2 for row in rows))
    gap = " " * max(1, min(WIDEST_GAP, (width - notes - sum(widths)) // len(form)))
    heading = gap.join(title.rjust(cells) for (title, _), cells in zip(form, widths, strict=True))
    lines = [Content.styled(heading, "$meta")]
    for row in newest[first : first + max(1, height - 1)]:
        cells = gap.join(text(row).rjust(cells) for (_, text), cells in zip(form, widths, strict=True))
        note = shortened(_note(row), max(0, width - len(cells) - 2))
        style = "$warning" if row.usage.cut else "$meta"
        shown = Content(cells) if row.shown else Content.styled(cells, "$meta")
        lines.append(Content.assemble(shown, Content.styled(f"  {note}", style)))
    return lines


def _form(rows: Sequence[TurnRow], width: int) -> tuple[tuple[Column, ...], list[int]]:
    """The columns that fit, and how wide they are for all turns, so that nothing moves when the table does."""
    widths: list[int] = []
    for form in FORMS:
        widths = [max(len(title), *(len(text(row)) for row in rows)) for title, text in form]
        if sum(widths) + len(form) + NOTE_CELLS <= width:
            return form, widths
    return FORMS[-1], widths


# ------------------------------------------------------------------ the plots


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot over the turns with what its lines mean: above it, and below."""

    title: str
    below: str
    series: Callable[[Sequence[TurnRow]], tuple[Series, ...]]


def _first_tokens(rows: Sequence[TurnRow]) -> tuple[Series, ...]:
    return (
        _without([(row.number, row.first_without) for row in rows]),
        _measured([(row.number, row.first) for row in rows], "$success"),
    )


def _speeds(rows: Sequence[TurnRow]) -> tuple[Series, ...]:
    return (_measured([(row.number, row.speed) for row in rows], "$primary"),)


def _prompts(rows: Sequence[TurnRow]) -> tuple[Series, ...]:
    reused = _points([(row.number, row.usage.reused) for row in rows])
    return (
        _without([(row.number, row.usage.prompt_tokens) for row in rows]),
        Series(reused, "$success", REUSE[0], dots=3, gap=2),
        _measured([(row.number, row.usage.computed) for row in rows], "$warning"),
    )


CHARTS: dict[ChartName, Chart] = {
    "first": Chart(f"First token, s  {MEASURED} measured", f"{WITHOUT} without cache, as computed then", _first_tokens),
    "speed": Chart(f"Answer, tokens/s  {MEASURED} measured", "", _speeds),
    "tokens": Chart(f"Prompt  {MEASURED} computed  {REUSE} reused", f"{WITHOUT} computed without cache: all", _prompts),
}


def chart_lines(chart: Chart, rows: Sequence[TurnRow], width: int, height: int) -> list[Content]:
    """The plot in so many lines."""
    series = chart.series(rows)
    if not any(each.points for each in series):
        return [Content.styled(shortened(NOTHING_YET, width), "$meta")]
    return plot(series, width, height, len(rows))


def _points(pairs: Sequence[tuple[int, float | None]]) -> tuple[tuple[float, float], ...]:
    """Those that were measured."""
    return tuple((number, value) for number, value in pairs if value is not None)


def _measured(pairs: Sequence[tuple[int, float | None]], style: str) -> Series:
    return Series(_points(pairs), style, MEASURED[0])


def _without(pairs: Sequence[tuple[int, float | None]]) -> Series:
    """Dotted: it did not happen."""
    return Series(_points(pairs), "$meta", WITHOUT[0], dots=1, gap=2)

"""What each turn of a chat cost and what reuse saved it: a table and three plots. Pure; must not know widgets.

What a turn would have cost without a cache is what computing the reused tokens took when they were computed, as the
engine noted it then; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

from kvchat.backend.values import Usage
from kvchat.chats.types import Message
from kvchat.conversation import read_usage
from kvchat.conversation.draft_words import accepted_share
from kvchat.plotting import Series
from kvchat.ui.inspector_context import ORIGINS
from kvchat.ui.meters import shortened
from kvchat.ui.plot import plot
from kvchat.ui.wording import duration, read_ahead_words, source

ENDINGS = {"cancelled": "stopped", "length": "token limit", "context": "context full", "died": "engine died"}
_FEWEST_TOKENS = 16  # of a prompt whose speed means something
NOTHING_YET = "No turn has been measured yet."
ChartName = Literal["first", "speed", "tokens", "drafts"]
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

    @property
    def accepted(self) -> float | None:
        """The part of the drafted tokens that stood."""
        return accepted_share(self.usage.draft_proposed, self.usage.draft_accepted)

    @property
    def speedup(self) -> float | None:
        """Decode speed against plain decoding; 1 for a turn in which nothing was drafted."""
        if self.accepted is None:
            return 1.0 if self.speed is not None else None
        return self.usage.draft_speedup or None


def turn_rows(answers: Sequence[Message], shown: Collection[str]) -> tuple[TurnRow, ...]:
    """The turns that the engine carried out, the oldest first. `shown`: ids of the messages of the branch."""
    found = [(message, usage) for message in answers if (usage := read_usage(message)) is not None]
    told = [(message, usage) for message, usage in found if usage.prompt_tokens and not usage.excess]
    return tuple(
        TurnRow(number, usage, message.finish or "", message.id in shown)
        for number, (message, usage) in enumerate(told, 1)
    )


def prompt_speed(rows: Sequence[TurnRow]) -> float | None:
    """Tokens a second of the newest prompt that was long enough to tell, None: none was."""
    told = (
        row.usage.computed / row.usage.prefill_seconds
        for row in reversed(rows)
        if row.usage.computed >= _FEWEST_TOKENS and row.usage.prefill_seconds > 0
    )
    return next(told, None)


# ------------------------------------------------------------------ the table

Column = tuple[str, Callable[[TurnRow], str]]


def _glyphs(row: TurnRow) -> str:
    usage = row.usage
    counts = (("resident", usage.resident), ("pages", usage.pages), ("checkpoint", usage.checkpoint))
    return "".join(ORIGINS[origin].glyph for origin, count in counts if count)  # type: ignore[index]


def _words(row: TurnRow) -> str:
    return source(row.usage) or "-"


def _note(row: TurnRow) -> str:
    usage = row.usage
    parts = [f"cut: {usage.cut}" if usage.cut else "", ENDINGS.get(row.finish, "")]
    if usage.evicted > 0:
        parts.append(f"let {usage.evicted:,} go")
    parts += read_ahead_words(usage)
    if usage.reasoning_evicted > 0:
        parts.append(f"reasoning left {usage.reasoning_evicted:,}")
    return ", ".join(filter(None, (*parts, "" if row.shown else "other branch")))


NUMBER: Column = ("#", lambda row: str(row.number))
PROMPT: Column = ("prompt", lambda row: f"{row.usage.prompt_tokens:,}")
REUSED: Column = ("reused", lambda row: f"{row.usage.reused:,}")
WORDS: Column = ("from", _words)
GLYPHS: Column = ("from", _glyphs)
COMPUTED: Column = ("computed", lambda row: f"{row.usage.computed:,}")
FIRST: Column = ("first", lambda row: f"{row.first:.2f} s" if row.first is not None else "-")
SPEED: Column = ("tok/s", lambda row: f"{row.speed:,.1f}" if row.speed is not None else "-")
DRAFTS: Column = ("draft", lambda row: f"{row.accepted:.0%}" if row.accepted is not None else "-")
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
    """The columns that fit, and how wide they are for all turns, so that nothing moves when the table does. Drafts have
    one where there were any."""
    widths: list[int] = []
    form: tuple[Column, ...] = ()
    for form in _with_drafts(FORMS) if drafted(rows) else FORMS:
        widths = [max(len(title), *(len(text(row)) for row in rows)) for title, text in form]
        if sum(widths) + len(form) + NOTE_CELLS <= width:
            break
    return form, widths


def _with_drafts(forms: Sequence[tuple[Column, ...]]) -> Iterator[tuple[Column, ...]]:
    """Behind the speed, which they are the reason for; the narrowest form has neither."""
    for form in forms:
        at = form.index(SPEED) + 1 if SPEED in form else len(form)
        yield (*form[:at], DRAFTS, *form[at:]) if SPEED in form else form


def drafted(rows: Sequence[TurnRow]) -> bool:
    """Whether anything was drafted in one of these turns."""
    return any(row.accepted is not None for row in rows)


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


def _drafts(rows: Sequence[TurnRow]) -> tuple[Series, ...]:
    accepted = _points([(row.number, row.accepted) for row in rows])
    return (
        _without([(row.number, 1.0 if row.speed is not None else None) for row in rows]),
        Series(accepted, "$success", REUSE[0], dots=3, gap=2),
        _measured([(row.number, row.speedup) for row in rows], "$primary"),
    )


CHARTS: dict[ChartName, Chart] = {
    "first": Chart(f"First token, s  {MEASURED} measured", f"{WITHOUT} without cache, as computed then", _first_tokens),
    "speed": Chart(f"Answer, tokens/s  {MEASURED} measured", "", _speeds),
    "tokens": Chart(f"Prompt  {MEASURED} computed  {REUSE} reused", f"{WITHOUT} computed without cache: all", _prompts),
    "drafts": Chart(f"Drafts  {MEASURED} times plain  {REUSE} accepted", f"{WITHOUT} plain decoding", _drafts),
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

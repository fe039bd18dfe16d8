"""Long paragraphs that grow: their rows are settled one after the other. Owns where that is safe; must not know blocks.

A row is safe when nothing before it is open that a later mark could close.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.ui.markdown_blocks import text_runs
from kvchat.ui.markdown_opened import Opened, Step
from kvchat.ui.markdown_parse import Group, Parsed
from kvchat.ui.markdown_rows import AnyRow, Run, runs_of, wrap_runs

_LONG = 600  # characters of a paragraph from which on its rows are settled
_TOO_LONG = 3_000  # then they are settled even where a mark is open
_MARKUP = frozenset("*_`[<~$\\")


@dataclass(frozen=True, slots=True)
class OpenParagraph:
    """A paragraph from one of its rows on. The prefix is a word, so that the row is no list, heading or rule."""

    prefix: str
    continues: bool = True

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """What is left of it."""
        return wrap_runs(self._runs(parsed, group), width)

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """Settle more rows."""
        return split_paragraph(self, parsed, group, width, self._runs(parsed, group))

    def _runs(self, parsed: Parsed, group: Group) -> list[Run]:
        size = len(self.prefix)
        runs = text_runs(parsed, group, "text")
        if not runs:
            start, end = parsed.base + size, parsed.end(group)
            return [Run(parsed.source[start:end], "text", start, end)]
        head, *rest = runs
        return [Run(head.text[size:], head.ink, head.start + size, head.end), *rest] if head.text[size:] else rest


def split_paragraph(opened: Opened, parsed: Parsed, group: Group, width: int, runs: list[Run]) -> Step:
    """Settle the rows of a long paragraph but the last ones."""
    rows = wrap_runs(runs, width)
    length = len(parsed.text) - parsed.place(group.first)
    row = _safe_row(rows, parsed.source, length > _TOO_LONG) if length > _LONG else 0
    if not row:
        return Step([], 0, opened, rows)
    start = runs_of(rows[row])[0].start
    before = parsed.source[start - 1]
    prefix = f"x{before if before.isalnum() else ' '}"
    return Step(rows[:row], start, OpenParagraph(prefix), rows[row:])


def _safe_row(rows: list[AnyRow], source: str, anyway: bool) -> int:
    """The last row before which nothing is open that a later mark could close, but for the last two; 0: there is none.
    `anyway`: the last one before which there is a letter or a space."""
    safe, last = 0, 0
    plain = True
    for number in range(1, len(rows) - 1):
        above, here = runs_of(rows[number - 1]), runs_of(rows[number])
        plain = plain and not any(_MARKUP & set(run.text) for run in above if run.start >= 0 and run.ink != "code")
        if not here or here[0].start < 1:
            continue
        before = source[here[0].start - 1]
        if before.isalnum() or before.isspace():
            last = number
            if plain and here[0].ink == "text" and (not above or above[-1].ink == "text"):
                safe = number
    return safe or (last if anyway else 0)

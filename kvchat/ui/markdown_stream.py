"""Markdown that is still being written, to rows. Owns what is settled and what may change; must not know colours.

Only the text behind the last settled place is parsed: all top-level blocks but the last are settled, and of the last
its finished lines of code, rows of a table, items of a list, blocks of a quote, and most of a long paragraph. What
later text changes about settled blocks (a link defined at the end) is put right by `document`, once, at the end.
"""

from __future__ import annotations

from kvchat.ui.markdown_blocks import block_of, gap
from kvchat.ui.markdown_open import Afresh
from kvchat.ui.markdown_opened import Opened
from kvchat.ui.markdown_parse import Group, Parsed, finished
from kvchat.ui.markdown_rows import AnyRow, Block, Run, wrap_runs

_LONG_TAIL = 4_000  # characters that may be parsed again with each piece of text


class Stream:
    """Rows of a text that grows. `settled` rows never change; those of the tail may, with every `feed`."""

    def __init__(self, width: int, start: int = 0) -> None:
        self.settled: list[AnyRow] = []
        self.tail: list[AnyRow] = []
        self._width = width
        self._opened: Opened = Afresh()
        self._start = start  # where the text that is parsed again begins
        self._above = ""  # the kind of the block above it
        self._blocks: list[Block] = []
        self._tail_blocks: list[Block] = []
        self._parsed = start  # characters of the text when it was last parsed
        self._tail_parsed: list[AnyRow] = []

    @property
    def blocks(self) -> list[Block]:
        """The blocks so far. The last one grows."""
        return [*self._blocks, *self._tail_blocks]

    def feed(self, text: str) -> int:
        """`text` begins with what it was before. Returns the first row that changed."""
        first = len(self.settled)
        if self._too_soon(text):
            rest = Run(text[self._parsed :].replace("\t", " "), "text", self._parsed, len(text))
            self.tail = [*self._tail_parsed, *wrap_runs([rest], self._width)]
            return first
        self._parsed = len(text)
        parsed = Parsed(text, self._start, self._opened.prefix)
        closed = finished(parsed, parsed.groups)
        for group in parsed.groups[:closed]:
            self._close(parsed, group)
        rest_groups = parsed.groups[closed:]
        self.tail, self._tail_blocks = [], []
        if len(rest_groups) == 1:
            self._step(parsed, rest_groups[0])
        else:
            self._show(parsed, rest_groups)
        self._tail_parsed = self.tail
        return first

    def _too_soon(self, text: str) -> bool:
        """A long block that cannot be settled in part is parsed when it has grown by a part of itself."""
        length = self._parsed - self._start
        return length > _LONG_TAIL and len(text) - self._parsed < length // 8

    def _close(self, parsed: Parsed, group: Group) -> None:
        """A block to which nothing will be added."""
        opened, self._opened = self._opened, Afresh()
        self._settle(parsed, group, opened.rows(parsed, group, self._width), opened.continues)
        self._start = parsed.offset(group.last)
        self._above = group.kind

    def _step(self, parsed: Parsed, group: Group) -> None:
        """The last block: settle what is finished of it, show the rest."""
        before = self._opened
        step = before.step(parsed, group, self._width)
        if step.opened is not before:
            self._settle(parsed, group, step.rows, before.continues)
            self._start, self._opened = step.start, step.opened
        self._show_rows(parsed, group, step.tail, self._opened.continues, self._above)

    def _show(self, parsed: Parsed, groups: list[Group]) -> None:
        """Blocks of which none is settled: the line that would end the first of them is not complete."""
        opened, above = self._opened, self._above
        for group in groups:
            self._show_rows(parsed, group, opened.rows(parsed, group, self._width), opened.continues, above)
            opened, above = Afresh(), group.kind

    def _show_rows(self, parsed: Parsed, group: Group, rows: list[AnyRow], continues: bool, above: str) -> None:
        if continues:
            self.tail += rows
            self._grow(parsed, group, len(self.settled) + len(self.tail))
            return
        self.tail += gap(parsed, above, group)
        self._tail_blocks.append(block_of(parsed, group, len(self.settled) + len(self.tail), len(rows)))
        self.tail += rows

    def _settle(self, parsed: Parsed, group: Group, rows: list[AnyRow], continues: bool) -> None:
        if not continues:
            self.settled += gap(parsed, self._above, group)
            self._blocks.append(block_of(parsed, group, len(self.settled), 0))
        self.settled += rows
        self._grow(parsed, group, len(self.settled))

    def _grow(self, parsed: Parsed, group: Group, rows: int) -> None:
        """The last settled block goes on: it has this end now, and the rows up to this one."""
        block = self._blocks[-1]
        self._blocks[-1] = block._replace(end=max(block.end, parsed.end(group)), rows=rows - block.first)

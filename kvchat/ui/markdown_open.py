"""The last block of a text that grows, from its beginning on, and code and tables of which the beginning is settled.

Owns when a block is far enough to be settled in part; must not know what is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.ui.code_lines import CodeLines
from kvchat.ui.code_panel import bottom, code_lines, is_closed, language, line_rows, top
from kvchat.ui.markdown_blocks import NOTHING, Before, group_rows, text_runs
from kvchat.ui.markdown_containers import LISTS, split_list, split_quote
from kvchat.ui.markdown_long import split_paragraph
from kvchat.ui.markdown_opened import Step
from kvchat.ui.markdown_parse import Group, Parsed
from kvchat.ui.markdown_rows import AnyRow
from kvchat.ui.markdown_table import Table, new_table, table_lines


@dataclass(frozen=True, slots=True)
class Afresh:
    """The block is parsed from its beginning."""

    prefix: str = ""
    continues: bool = False

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """All of it."""
        return group_rows(parsed, group, width)

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """Where the beginning of the block is complete it opens."""
        lines = parsed.text[parsed.place(group.first) :].split("\n", 2)
        if group.kind == "fence" and len(lines) > 1:
            opened = OpenFence(f"{lines[0]}\n", CodeLines(language(group)))
            step = opened.step(parsed, group, width)
            return Step([top(group, width), *step.rows], step.start, opened, step.tail)
        if group.kind == "table" and len(lines) > 2:
            table = OpenTable(f"{lines[0]}\n{lines[1]}\n", new_table(group, width))
            table.table.add(table_lines(parsed, group)[0].cells)
            return table.step(parsed, group, width)
        if group.kind in LISTS:
            number = int(group.tokens[0].attrs.get("start", 1)) if group.kind == "ordered_list" else None
            return split_list(self, parsed, group, width, Before("", number))
        if group.kind == "blockquote":
            return split_quote(self, parsed, group, width, NOTHING)
        if group.kind == "paragraph":
            return split_paragraph(self, parsed, group, width, text_runs(parsed, group, "text"))
        return Step([], 0, self, group_rows(parsed, group, width))


@dataclass(slots=True)
class OpenFence:
    """A block of code: its complete lines are settled."""

    prefix: str
    code: CodeLines
    continues: bool = True

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """The lines that are left, and the edge below."""
        step = self.step(parsed, group, width)
        self.code.close()
        return [*step.rows, *step.tail]

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """Settle complete lines."""
        lines = list(code_lines(parsed, group))
        closed = is_closed(group, len(lines))
        complete = lines if closed or parsed.text.endswith("\n") else lines[:-1]
        known = len(self.code)
        for text, start in complete:
            self.code.add(text, start)
        rows = line_rows(self.code, range(known, len(self.code)), width)
        tail: list[AnyRow] = [bottom(width)] if closed else []
        for text, start in lines[len(complete) :]:
            partial = CodeLines("")
            partial.add(text, start)
            tail += line_rows(partial, [0], width)
        opened = OpenFence(self.prefix, self.code) if complete else self
        return Step(rows, parsed.offset(group.first + 1 + len(complete)), opened, tail)


@dataclass(slots=True)
class OpenTable:
    """A table: its complete lines are laid out, and stay where they are unless a column becomes wider."""

    prefix: str
    table: Table
    continues: bool = True

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:  # noqa: ARG002 (the table knows it)
        """All of it: none of its rows is settled before it is complete."""
        return self.table.with_lines([line.cells for line in table_lines(parsed, group)[1:]])

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:  # noqa: ARG002
        """Take complete lines."""
        lines = table_lines(parsed, group)[1:]
        complete = lines if parsed.text.endswith("\n") else lines[:-1]
        for line in complete:
            self.table.add(line.cells)
        tail = self.table.with_last(lines[-1].cells) if len(lines) > len(complete) else self.table.rows
        end = complete[-1].line + 1 if complete else group.first + 2
        return Step([], parsed.offset(end), OpenTable(self.prefix, self.table), tail)

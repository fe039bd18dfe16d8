"""Code to rows in a panel with the name of its language. Owns its edge and its wrapping; must not know colours.

Rows are cheap until they are drawn: only then the lines are highlighted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from kvchat.clean import clean_line
from kvchat.ui.code_lines import CodeLines
from kvchat.ui.display import agreed
from kvchat.ui.markdown_parse import Group, Parsed
from kvchat.ui.markdown_rows import AnyRow, Run, Runs, cut_runs
from kvchat.ui.wrap import wrap

_BAR = Run("│ ", "edge")
_LONGEST_NAME = 24
_INDENT = re.compile(r"^(?: {0,3}\t| {1,4})")


@dataclass(frozen=True, slots=True)
class CodeRow:
    """Characters `[start, end)` of one line of code, behind the runs of whatever contains it."""

    code: CodeLines
    line: int
    start: int
    end: int
    before: Runs = (_BAR,)

    def runs(self) -> Runs:
        """The row, highlighted."""
        return (*self.before, *cut_runs(self.code.runs(self.line), self.start, self.end))

    def behind(self, run: Run) -> CodeRow:
        """The same row with a run before it."""
        return CodeRow(self.code, self.line, self.start, self.end, (run, *self.before))


def code_rows(parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
    """A block of code, with the edge below when its fence is closed."""
    code = CodeLines(language(group))
    lines = list(code_lines(parsed, group))
    for text, start in lines:
        code.add(text, start)
    code.close()
    rows: list[AnyRow] = [top(group, width), *line_rows(code, range(len(lines)), width)]
    return [*rows, bottom(width)] if is_closed(group, len(lines)) else rows


def language(group: Group) -> str:
    """What the fence says the code is; "" for nothing."""
    words = clean_line(group.tokens[0].info).split() if group.tokens else []
    return words[0].strip("{}").removeprefix(".")[:_LONGEST_NAME] if words else ""


def code_lines(parsed: Parsed, group: Group) -> Iterator[tuple[str, int]]:
    """Lines of code, and where in the source each begins: it is the end of a line there."""
    content = group.tokens[0].content
    number = group.first + (group.kind == "fence")
    for text in content.removesuffix("\n").split("\n") if content else ():
        start = parsed.offset(number)
        end = parsed.source.find("\n", start)
        stop = len(parsed.source) if end < 0 else end
        yield text, max(start, stop - len(text))
        number += 1


def code_of(kind: str, text: str) -> str:
    """The lines of code in the source of a block, without fence and indent."""
    lines = text.split("\n")
    if kind == "code_block":
        return "\n".join(_INDENT.sub("", line) for line in lines)
    fence = lines[0].strip()
    mark = fence[: len(fence) - len(fence.lstrip(fence[:1]))]
    closed = len(lines) > 1 and lines[-1].strip().startswith(mark) and not lines[-1].strip(f" \t{mark[:1]}")
    return "\n".join(lines[1:-1] if closed else lines[1:])


def is_closed(group: Group, lines: int) -> bool:
    """Whether nothing more belongs to the code: its fence is closed, or it has none."""
    return group.kind != "fence" or group.last - group.first == lines + 2


def line_rows(code: CodeLines, numbers: Iterable[int], width: int) -> list[AnyRow]:
    """These lines, wrapped."""
    inner = max(1, width - len(_BAR.text))
    return [CodeRow(code, number, start, end) for number in numbers for start, end in wrap(code.drawn(number), inner)]


def top(group: Group, width: int) -> Runs:
    """The edge above, with the name of the language."""
    name = agreed(language(group))
    if not name or width < 8:
        return (Run(f"╭{'─' * (width - 2)}╮"[:width], "edge"),)
    if cell_len(name) > width - 6:
        name = set_cell_size(name, width - 6).rstrip()
    rest = "─" * (width - 4 - cell_len(name))
    return (Run("╭ ", "edge"), Run(name, "meta"), Run(f" {rest}╮", "edge"))


def bottom(width: int) -> Runs:
    """The edge below."""
    return (Run(f"╰{'─' * (width - 2)}╯"[:width], "edge"),)

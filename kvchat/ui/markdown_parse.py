"""Markdown text to top-level blocks. Owns the parser and its limits; must not know rows or widths.

No text may get lost: what Markdown takes away, the definitions of links, is a block of its own here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

if TYPE_CHECKING:
    from markdown_it.token import Token

DEEPEST = 32  # levels of quotes and lists; what is deeper is shown as it was written
_MOST_BRACKETS = 2_000  # the parser looks for the end of each link anew
_LONGEST_MATH = 2_000  # characters
_GREEDY = frozenset({"paragraph", "bullet_list", "ordered_list", "list_item", "blockquote", "table"})
_MATH = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}


@dataclass(frozen=True, slots=True)
class Group:
    """One block: its kind (the type of its first token without "_open"), tokens and lines `[first, last)`."""

    kind: str
    tokens: list[Token]
    first: int
    last: int


class Parsed:
    """Blocks of `prefix + source[start:]`. The prefix makes the beginning mean what it means where it stands."""

    def __init__(self, source: str, start: int = 0, prefix: str = "") -> None:
        self.source = source
        self.text = prefix + source[start:]
        self.base = start - len(prefix)
        self._starts = [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]
        self.groups = list(self._groups())

    def offset(self, line: int) -> int:
        """Where in the source a line of the text begins."""
        return min(self.base + self._starts[min(line, len(self._starts) - 1)], len(self.source))

    def place(self, line: int) -> int:
        """Where in the text a line of it begins."""
        return min(self._starts[min(line, len(self._starts) - 1)], len(self.text))

    def line_at(self, place: int) -> int:
        """The line of the text that holds a place in it."""
        return bisect_right(self._starts, place) - 1

    def end(self, group: Group) -> int:
        """Where in the source a block ends, without the blank lines after it."""
        return self.base + len(self.text[: self.place(group.last)].rstrip())

    def blank_above(self, line: int) -> bool:
        """Whether the line above this one is blank, but for marks of quotes."""
        offset = self.offset(line)
        above = self.source[self.source.rfind("\n", 0, max(0, offset - 1)) + 1 : max(0, offset - 1)]
        return offset > 0 and not above.strip(" \t>")

    def _groups(self) -> Iterator[Group]:
        env: dict[str, Any] = {}
        tokens = _parser(self.text.count("[") <= _MOST_BRACKETS).parse(self.text, env)
        found: list[Group] = []
        first = 0
        for index, token in enumerate(tokens):
            if token.level == 0 and token.nesting <= 0:
                found.append(_group(tokens[first : index + 1]))
                first = index + 1
        yield from sorted([*found, *_definitions(env, found)], key=lambda group: group.first)


def _group(tokens: list[Token]) -> Group:
    first, last = tokens[0].map or (0, 0)
    kind = tokens[0].type.removesuffix("_open")
    deep = any(token.level >= DEEPEST - 2 for token in tokens)
    return Group("deep" if deep else kind, tokens, first, last)


def _definitions(env: dict[str, Any], groups: list[Group]) -> Iterator[Group]:
    for found in (*env.get("references", {}).values(), *env.get("duplicate_refs", ())):
        first, last = found["map"]
        if not any(group.first <= first < group.last for group in groups):
            yield Group("definition", [], first, last)


def subgroups(tokens: list[Token]) -> list[Group]:
    """The blocks right inside a container, whose first and last token are its own."""
    found: list[Group] = []
    inner = tokens[1:-1]
    first = 0
    for index, token in enumerate(inner):
        if token.level == tokens[0].level + 1 and token.nesting <= 0:
            found.append(_group(inner[first : index + 1]))
            first = index + 1
    return found


def finished(parsed: Parsed, groups: list[Group]) -> int:
    """How many of these blocks will not change: all but the last, or but the last two where the line that ends the one
    above is not complete and could yet belong to it."""
    count = len(groups) - 1
    if count < 1 or parsed.text.endswith("\n"):
        return max(0, count)
    above, last = groups[-2:]
    begun = last.first >= parsed.line_at(len(parsed.text)) and not parsed.blank_above(last.first)
    return count - 1 if begun and above.kind in _GREEDY else count


@cache
def _parser(links: bool) -> MarkdownIt:
    """CommonMark with tables and strike-through. Escapes and entities stay apart, so that their source is known."""
    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough"]).disable("text_join")
    parser.inline.ruler.before("escape", "math", _math)
    return parser if links else parser.disable(["link", "image"])


def _math(state: StateInline, silent: bool) -> bool:
    r"""A formula in \( \), \[ \] or $$ $$ is shown as it was written: its backslashes and stars mean something else."""
    opening = state.src[state.pos : state.pos + 2]
    closing = _MATH.get(opening)
    if closing is None:
        return False
    end = state.src.find(closing, state.pos + 2, min(state.posMax, state.pos + _LONGEST_MATH))
    if end < 0:
        return False
    if not silent:
        state.push("math", "", 0).content = state.src[state.pos : end + 2]
    state.pos = end + 2
    return True


LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)

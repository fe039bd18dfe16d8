"""Blocks of Markdown to rows. Owns how headings, lists, quotes and rules look; must not know colours or scrolling."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvchat.ui.code_panel import code_rows
from kvchat.ui.markdown_inline import inline_runs
from kvchat.ui.markdown_parse import Group, Parsed, subgroups
from kvchat.ui.markdown_rows import AnyRow, Block, Run, prefixed, wrap_runs
from kvchat.ui.markdown_table import table_rows

if TYPE_CHECKING:
    from markdown_it.token import Token

_NARROWEST = 8  # cells of text beside the marks of lists and quotes; what is narrower is not indented
_APART = frozenset({"fence", "code_block", "table", "hr", "heading", "definition"})
_TASK = re.compile(r"\[[ xX]\] ")
QUOTE_BAR = Run("▎ ", "edge")


@dataclass(frozen=True, slots=True)
class Before:
    """What stands before a block: the kind of the block above ("" for none) and, in a list, the number of its item."""

    kind: str = ""
    number: int | None = None


NOTHING = Before()


def document(text: str, width: int, start: int = 0) -> tuple[list[AnyRow], list[Block]]:
    """A whole text from `start` on as rows, and its blocks."""
    parsed = Parsed(text, start)
    rows: list[AnyRow] = []
    blocks: list[Block] = []
    kind = ""
    for group in parsed.groups:
        rows += gap(parsed, kind, group)
        made = group_rows(parsed, group, width)
        blocks.append(block_of(parsed, group, len(rows), len(made)))
        rows += made
        kind = group.kind
    return rows, blocks


def gap(parsed: Parsed, kind: str, group: Group) -> list[AnyRow]:
    """The blank row between a block and the one of this kind above it: where the source has one, or where it is due."""
    if not kind:
        return []
    apart = group.kind in _APART or kind in _APART - {"heading"}
    if kind == group.kind == "definition":
        apart = False
    return [()] if apart or parsed.blank_above(group.first) else []


def block_of(parsed: Parsed, group: Group, first: int, count: int) -> Block:
    """A group as what can be marked and copied."""
    return Block(group.kind, parsed.offset(group.first), parsed.end(group), first, count)


def group_rows(  # noqa: PLR0911 (one for each kind)
    parsed: Parsed, group: Group, width: int, before: Before = NOTHING
) -> list[AnyRow]:
    """One block as rows."""
    width = max(1, width)
    match group.kind:
        case "paragraph" | "heading":
            ink = "text" if group.kind == "paragraph" else _heading_ink(group.tokens[0])
            return wrap_runs(text_runs(parsed, group, ink), width)
        case "bullet_list" | "ordered_list":
            return item_rows(parsed, group, subgroups(group.tokens), width, before)
        case "blockquote":
            return quote_rows(parsed, subgroups(group.tokens), width, before)
        case "fence" | "code_block":
            return code_rows(parsed, group, width)
        case "table":
            return table_rows(parsed, group, width)
        case "hr":
            return [(Run("─" * width, "edge", parsed.offset(group.first), parsed.end(group)),)]
        case _:
            return _raw_rows(parsed, group, width)


def text_runs(parsed: Parsed, group: Group, ink: str) -> list[Run]:
    """The runs of a paragraph or heading."""
    first, last = parsed.place(group.first), parsed.place(group.last)
    tokens = [token for token in group.tokens if token.type == "inline"]
    return [run for token in tokens for run in inline_runs(parsed, token, first, last, ink)]


def quote_rows(parsed: Parsed, inside: list[Group], width: int, before: Before) -> list[AnyRow]:
    """Blocks behind a bar."""
    inner = width - len(QUOTE_BAR.text)
    if inner < _NARROWEST:
        return _stacked(parsed, inside, width, before.kind)
    return prefixed(_stacked(parsed, inside, inner, before.kind), QUOTE_BAR, QUOTE_BAR)


def item_rows(parsed: Parsed, group: Group, items: list[Group], width: int, before: Before) -> list[AnyRow]:
    """Items of a list, each behind its mark. A blank row stands between two of them where the source has a blank line
    or the first one ends with code, so that no item changes how those before it look."""
    number = before.number
    if number is None and group.kind == "ordered_list":
        number = int(group.tokens[0].attrs.get("start", 1))
    rows: list[AnyRow] = []
    above = before.kind
    for index, item in enumerate(items):
        if above and (parsed.blank_above(item.first) or above in _APART):
            rows.append(())
        above = last_kind(item)
        mark = f"{number + index}{item.tokens[0].markup} " if number is not None else _bullet(group.tokens[0])
        rows += _item(parsed, item, mark, width)
    return rows


def last_kind(item: Group) -> str:
    """The kind of the last block of an item."""
    inside = subgroups(item.tokens)
    return inside[-1].kind if inside else item.kind


def _item(parsed: Parsed, item: Group, mark: str, width: int) -> list[AnyRow]:
    inside = subgroups(item.tokens)
    first = Run(mark, "bullet")
    task = _task(parsed, inside)
    if task is not None:
        first = task
    indent = len(first.text)
    if width - indent < _NARROWEST:
        return [(first,), *_stacked(parsed, inside, width, "", task is not None)]
    rows = _stacked(parsed, inside, width - indent, "", task is not None)
    return prefixed(rows or [()], first, Run(" " * indent, "text"))


def _task(parsed: Parsed, inside: list[Group]) -> Run | None:
    """The box of a task, which takes the place of the bullet."""
    if not inside or inside[0].kind != "paragraph":
        return None
    runs = text_runs(parsed, inside[0], "text")
    if runs and (found := _TASK.match(runs[0].text)):
        return Run(found[0], "bullet", runs[0].start, runs[0].start + 4)
    return None


def _stacked(parsed: Parsed, groups: Iterable[Group], width: int, kind: str, task: bool = False) -> list[AnyRow]:
    """Blocks below each other; `task`: the first begins with a box that stands elsewhere."""
    rows: list[AnyRow] = []
    for group in groups:
        rows += gap(parsed, kind, group)
        if task and group.kind == "paragraph" and not rows:
            head, *rest = text_runs(parsed, group, "text")
            rows += wrap_runs([Run(head.text[4:], head.ink, head.start + 4, head.end), *rest], width)
        else:
            rows += group_rows(parsed, group, width)
        kind = group.kind
    return rows


def _raw_rows(parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
    """HTML, definitions of links and what is nested too deep: as it was written."""
    start, end = parsed.offset(group.first), parsed.end(group)
    ink = "meta" if group.kind == "definition" else "text"
    text = parsed.source[start:end]
    return wrap_runs([Run(text.replace("\t", " "), ink, start, end)], width)


def _heading_ink(token: Token) -> str:
    return "title/b" if token.tag in ("h1", "h2") else "text/b"


def _bullet(token: Token) -> str:
    return "◦ " if token.level > 1 else "• "

"""Lists and quotes that grow: all that they hold is settled but the last. Owns that step; must know no other block."""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.ui.markdown_blocks import Before, group_rows, item_rows, last_kind, quote_rows
from kvchat.ui.markdown_opened import Opened, Step
from kvchat.ui.markdown_parse import Group, Parsed, finished, subgroups
from kvchat.ui.markdown_rows import AnyRow

LISTS = ("bullet_list", "ordered_list")


@dataclass(frozen=True, slots=True)
class OpenList:
    """A list from its last item on."""

    before: Before
    prefix: str = ""
    continues: bool = True

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """The items that are left."""
        if group.kind not in LISTS:
            return group_rows(parsed, group, width)
        return item_rows(parsed, group, subgroups(group.tokens), width, self.before)

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """Settle all items but the last."""
        if group.kind not in LISTS:
            return Step([], 0, self, group_rows(parsed, group, width))
        return split_list(self, parsed, group, width, self.before)


@dataclass(frozen=True, slots=True)
class OpenQuote:
    """A quote from its last block on."""

    before: Before
    prefix: str = ""
    continues: bool = True

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """The blocks that are left."""
        return self.step(parsed, group, width).tail if group.kind != "blockquote" else self._all(parsed, group, width)

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """Settle all blocks but the last."""
        if group.kind != "blockquote":
            return Step([], 0, self, group_rows(parsed, group, width))
        return split_quote(self, parsed, group, width, self.before)

    def _all(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        return quote_rows(parsed, subgroups(group.tokens), width, self.before)


def split_list(opened: Opened, parsed: Parsed, group: Group, width: int, before: Before) -> Step:
    """Settle all items but the last."""
    items = subgroups(group.tokens)
    count = finished(parsed, items)
    if not count:
        return Step([], 0, opened, item_rows(parsed, group, items, width, before))
    rest = Before(last_kind(items[count - 1]), None if before.number is None else before.number + count)
    rows = item_rows(parsed, group, items[:count], width, before)
    tail = item_rows(parsed, group, items[count:], width, rest)
    return Step(rows, parsed.offset(items[count].first), OpenList(rest), tail)


def split_quote(opened: Opened, parsed: Parsed, group: Group, width: int, before: Before) -> Step:
    """Settle all blocks but the last."""
    inside = subgroups(group.tokens)
    count = finished(parsed, inside)
    if not count:
        return Step([], 0, opened, quote_rows(parsed, inside, width, before))
    rest = Before(inside[count - 1].kind)
    rows = quote_rows(parsed, inside[:count], width, before)
    tail = quote_rows(parsed, inside[count:], width, rest)
    return Step(rows, parsed.offset(inside[count].first), OpenQuote(rest), tail)

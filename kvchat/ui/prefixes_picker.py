"""The list of pinned prefixes. Owns how one looks; must not use it.

Names are those that a person gave, and those of files: they are shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content, Span

from kvchat.chats.prefixes import Prefix
from kvchat.ui.display import display_line
from kvchat.ui.fuzzy import rank
from kvchat.ui.listing import MOST_ROWS, Listing
from kvchat.ui.meters import shortened, size_text

NAME_CELLS = 18

Wish = Literal["begin", "compute", "drop"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A prefix, as it is for the model that runs: its tokens, the bytes that are kept of it in all, how it is (`state`,
    in words), and whether a chat on it begins at once."""

    prefix: Prefix
    tokens: int
    size: int
    state: str
    ready: bool


class Wanted(NamedTuple):
    """What is to be done with a prefix: begin a chat on it, compute it for the model that runs, let it go."""

    what: Wish
    prefix: Prefix


class PrefixPicker(Listing[Wanted]):
    """Ends with what is wanted of a prefix."""

    NAME = "Pinned prefixes"
    PLACEHOLDER = "type to find a prefix"
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("⏎ new chat on it", "choose"),
        ("{prefixes.compute} compute it", "want('compute')"),
        ("{prefixes.drop} let it go", "want('drop')"),
        ("{list.cancel} back", "cancel"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "want('compute')", "Compute a prefix for this model", show=False, id="prefixes.compute"),
        Binding("ctrl+g", "want('drop')", "Let a prefix go", show=False, id="prefixes.drop"),
    ]

    def __init__(self, prefixes: Sequence[Listed]) -> None:
        super().__init__()
        self._prefixes = {Wanted("begin", each.prefix): each for each in prefixes}

    def found(self, query: str) -> Sequence[Wanted]:
        """The best matches in names and texts."""
        rows = list(self._prefixes)
        if not query:
            return rows
        texts = [f"{each.prefix.name} {each.prefix.text[:200]}" for each in rows]
        return [rows[match.index] for match in rank(query, texts, MOST_ROWS)]

    def row(self, item: Wanted, width: int) -> Content:
        """Name, size, how it is, how often it was of use."""
        listed = self._prefixes[item]
        name = shortened(display_line(item.prefix.name), NAME_CELLS)
        gap = " " * (NAME_CELLS - cell_len(name) + 1)
        size = f"{listed.tokens:,} tokens, {size_text(listed.size)}" if listed.tokens else "size not known"
        said = " · ".join((listed.state, size, uses_text(item.prefix)))
        text = shortened(f"{name}{gap}{said}", width)
        start = len(name) + len(gap)
        at = text.find(listed.state, start)
        marked = [Span(at, at + len(listed.state), "$success" if listed.ready else "$warning")] if at >= 0 else []
        return Content(text, [Span(start, len(text), "$meta"), *marked])

    def action_want(self, what: Wish) -> None:
        """Something else than a chat is wanted of the marked one."""
        if self.marked is not None:
            self.end(self.marked._replace(what=what))


def uses_text(prefix: Prefix) -> str:
    """How often it was of use, and what that saved."""
    if not prefix.uses:
        return "not used yet"
    return f"used {prefix.uses} time{'' if prefix.uses == 1 else 's'}, saved {prefix.seconds_saved:.1f} s"

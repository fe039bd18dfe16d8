"""What a line in the list of chats looks like. Pure functions from chats to styled text; must not know widgets.

Titles and snippets are foreign text: cleaned, never markup, cut to their cells, so that the ages stand in one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len
from textual.content import Content

from kvchat.chats.types import Chat
from kvchat.ui.display import display_line
from kvchat.ui.marking import excerpt, marks
from kvchat.ui.meters import shortened
from kvchat.ui.wording import age

Kind = Literal["answering", "waiting", "done", "failed"]
UNTITLED = "(no title)"
_AROUND_TITLE = 3  # cells: bar, glyph, and a space before what stands at the right edge
_AGE = 3  # cells
_GLYPHS: dict[Kind, tuple[str, str]] = {
    "answering": ("●", "$success"),
    "waiting": ("◔", "$warning"),
    "done": ("✓", "bold $accent"),
    "failed": ("!", "bold $error"),
}
_PALE = "$meta"  # at every second look at an answer of which is said how far it is
_BEFORE_SNIPPET = 2
_MOST_LINES = 3  # of what is said in a line of its own
_MARK = "bold $accent"


@dataclass(frozen=True, slots=True)
class ChatState:
    """What goes on in a chat, or has ended there and was not looked at yet. `words` stand in place of its age, `more`
    below them."""

    kind: Kind
    words: str = ""
    more: str = ""

    @property
    def is_moving(self) -> bool:
        """Whether it is told how far an answer is."""
        return self.kind == "answering" and self.words != ""


def head(name: str, *, first: bool) -> Content:
    """The name of a group."""
    return Content.styled(f"{'' if first else chr(10)}  {name}", "$meta")


def row(
    chat: Chat,
    now: float,
    cells: int,
    *,
    is_open: bool,
    state: ChatState | None = None,
    pale: bool = False,
    query: str = "",
    snippet: str = "",
) -> Content:
    """A chat, so many cells wide: its title with its age or how far its answer is, and where it was found. `pale`: it
    is drawn so between two looks, where an answer is being written."""
    right = (state.words if state is not None else "") or age(now - chat.updated)
    room = max(1, cells - _AROUND_TITLE - max(_AGE, cell_len(right)))
    title = shortened(display_line(chat.title) or UNTITLED, room)
    parts = [
        Content.styled("▌", "$accent") if is_open else Content(" "),
        _glyph(state, pale=pale),
        _marked(title, query),
        Content(" " * (room - cell_len(title))),
        Content.styled(f" {right:>{_AGE}}", "$meta"),
    ]
    if state is not None and (line := display_line(state.more)):
        more = wrap(line, max(1, cells - _BEFORE_SNIPPET))[:_MOST_LINES]
        parts += [Content.styled("".join(f"\n  {shortened(each, cells - _BEFORE_SNIPPET)}" for each in more), "$meta")]
    if line := display_line(snippet):
        parts += [Content("\n  "), _marked(excerpt(line, query, cells - _BEFORE_SNIPPET), query, "$meta")]
    return Content.assemble(*parts)


def _glyph(state: ChatState | None, *, pale: bool) -> Content:
    if state is None:
        return Content(" ")
    glyph, style = _GLYPHS[state.kind]
    return Content.styled(glyph, _PALE if pale and state.is_moving else style)


def _marked(text: str, query: str, style: str = "") -> Content:
    content = Content.styled(text, style) if style else Content(text)
    for start, end in marks(text, query) if query else ():
        content = content.stylize(_MARK, start, end)
    return content

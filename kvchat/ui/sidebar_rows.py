"""What a line in the list of chats looks like. Pure functions from chats to styled text; must not know widgets.

Titles and snippets are foreign text: cleaned, never markup, cut to their cells, so that the ages stand in one column.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from kvchat.chats.types import Chat
from kvchat.ui.display import display_line
from kvchat.ui.lines import shortened
from kvchat.ui.marking import excerpt, marks
from kvchat.ui.wording import age

UNTITLED = "(no title)"
_AROUND_TITLE = 6  # cells: bar, dot, a space and an age of three
_BEFORE_SNIPPET = 2
_MARK = "bold $accent"


def head(name: str, *, first: bool) -> Content:
    """The name of a group."""
    return Content.styled(f"{'' if first else chr(10)}  {name}", "$meta")


def row(
    chat: Chat, now: float, cells: int, *, is_open: bool, is_active: bool, query: str = "", snippet: str = ""
) -> Content:
    """A chat, so many cells wide: its title with its age, and where it was found."""
    room = max(1, cells - _AROUND_TITLE)
    title = shortened(display_line(chat.title) or UNTITLED, room)
    parts = [
        Content.styled("▌", "$accent") if is_open else Content(" "),
        Content.styled("●", "$success") if is_active else Content(" "),
        _marked(title, query),
        Content(" " * (room - cell_len(title))),
        Content.styled(f" {age(now - chat.updated):>3}", "$meta"),
    ]
    if line := display_line(snippet):
        parts += [Content("\n  "), _marked(excerpt(line, query, cells - _BEFORE_SNIPPET), query, "$meta")]
    return Content.assemble(*parts)


def _marked(text: str, query: str, style: str = "") -> Content:
    content = Content.styled(text, style) if style else Content(text)
    for start, end in marks(text, query):
        content = content.stylize(_MARK, start, end)
    return content

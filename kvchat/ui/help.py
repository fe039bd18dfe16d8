"""Keys and commands for what has the keyboard. Owns what is told where; must not know what the actions do.

The keys are those in force: the person's, where there are some.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import set_cell_size
from textual.content import Content

from kvchat.ui.key_catalogue import Action, Section, actions, keys_text
from kvchat.ui.keys import Keys
from kvchat.ui.listing import Listing
from kvchat.ui.slash import COMMANDS

WIDEST_KEYS = 22  # cells
NARROW_KEYS = 16
NARROW = 70  # cells of a list that is narrow
# What the prompt does without a key of its own.
WRITING = (
    ("/", "Commands, at the beginning; two slashes send a text that begins with one"),
    ("@", "A file, after a space or at the beginning; @path#10-40 for lines of it"),
)
PROMPT, CHAT = "Writing", "Chat"
NOT_EDITING = frozenset(
    f"prompt.{name}" for name in ("send", "new-line", "search", "editor", "cursor-up", "cursor-down")
)


@dataclass(frozen=True, slots=True)
class Line:
    """A heading (no words), or keys or a command with what they do."""

    name: str
    words: str = ""


def help_lines(sections: Sequence[Section], keys: Keys) -> list[Line]:
    """All that is to be told in these places: how to edit a text comes last."""
    lines: list[Line] = []
    editing: list[Line] = []
    for section in sections:
        told = [(action, Line(keys_text(action, keys), action.words)) for action in actions(section)]
        main = [line for action, line in told if line.name and not _edits(action)]
        editing += [line for action, line in told if line.name and _edits(action)]
        if section.title == PROMPT:
            main[2:2] = [Line(*each) for each in WRITING]
        lines += [Line(section.title), *main] if main else []
    if any(section.title == CHAT for section in sections):
        lines.append(Line("Commands"))
        for name, (argument, words) in COMMANDS.items():
            lines.append(Line(" ".join(filter(None, (name, argument))), words))
    return [*lines, Line("Editing"), *editing] if editing else lines


def _edits(action: Action) -> bool:
    return action.name.startswith("prompt.") and action.name not in NOT_EDITING


def matching(lines: Sequence[Line], query: str) -> list[Line]:
    """The lines that hold all words of the query, below their headings."""
    words = query.lower().split()
    found: list[Line] = []
    head: Line | None = None
    for line in lines:
        if not line.words:
            head = line
        elif all(word in f"{line.name} {line.words}".lower() for word in words):
            found += [head] if head is not None else []
            head = None
            found.append(line)
    return found


class Help(Listing[Line]):
    """The keys of the places from the inside out."""

    NAME = "Keys and commands"
    PLACEHOLDER = "type to find a key or a command"
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("{list.cancel|app.help} back", "cancel"),
        ("/keys to change them", ""),
    )

    def __init__(self, sections: Sequence[Section], keys: Keys, words: str = "") -> None:
        super().__init__()
        self._query = words
        self._lines = help_lines(sections, keys)

    def found(self, query: str) -> Sequence[Line]:
        """Those that hold the words."""
        return matching(self._lines, query)

    def is_head(self, item: Line) -> bool:
        """Names of places."""
        return not item.words

    def row(self, item: Line, width: int) -> Content:
        """Keys, and beside them what they do, on as many lines as that takes."""
        if self.is_head(item):
            return Content.styled(item.name, "bold $primary")
        column = NARROW_KEYS if width < NARROW else WIDEST_KEYS
        words = textwrap.wrap(item.words, max(8, width - column)) or [""]
        if len(item.name) >= column:  # on a line of its own
            names = [item.name[:width], *[" " * column] * len(words)]
            words = ["", *words]
        else:
            names = [set_cell_size(item.name, column), *[" " * column] * (len(words) - 1)]
        lines = [
            Content.assemble(Content.styled(name, "$accent"), text) for name, text in zip(names, words, strict=True)
        ]
        return Content("\n").join(lines)

    def action_choose(self) -> None:
        """There is nothing to choose: Enter leaves, as Escape does."""
        self.end(None)

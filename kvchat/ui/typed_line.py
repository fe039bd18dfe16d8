"""One line that is being typed, as a value: text and cursor. Pure; must not know keys in force, widgets or meanings.

Whoever shows it has the keyboard and hands on what is typed, in its order: there is no other widget whose queue a key
could wait in.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from kvchat.clean import clean_line
from kvchat.ui.graphemes import boundary_after, boundary_before

LONGEST = 2_000  # characters


@dataclass(frozen=True, slots=True)
class TypedLine:
    """`cursor` is a place in `text`, between two graphemes."""

    text: str = ""
    cursor: int = 0

    @classmethod
    def at_end(cls, text: str) -> TypedLine:
        """This text, to go on with."""
        text = clean_line(text)
        return cls(text, len(text))

    def put(self, text: str) -> TypedLine:
        """Something typed or pasted at the cursor."""
        text = text if len(text) == 1 and text.isprintable() else clean_line(text)
        text = text[: max(0, LONGEST - len(self.text))]
        return TypedLine(self.text[: self.cursor] + text + self.text[self.cursor :], self.cursor + len(text))

    def moved(self, step: int) -> TypedLine:
        """The cursor a grapheme to the left or right."""
        move = boundary_before if step < 0 else boundary_after
        return TypedLine(self.text, move(self.text, self.cursor))

    def to(self, end: bool) -> TypedLine:
        """The cursor at the beginning or end."""
        return TypedLine(self.text, len(self.text) if end else 0)

    def without(self, step: int) -> TypedLine:
        """The grapheme before or behind the cursor deleted."""
        other = self.moved(step).cursor
        start, end = sorted((self.cursor, other))
        return TypedLine(self.text[:start] + self.text[end:], start)

    def window(self, cells: int) -> tuple[str, str, str]:
        """What is seen in so many cells: before the cursor, below it, behind it."""
        end = boundary_after(self.text, self.cursor) if self.cursor < len(self.text) else self.cursor
        below = self.text[self.cursor : end] or " "
        room = max(0, cells - cell_len(below))
        before = self.text[: self.cursor]
        while cell_len(before) > room:
            before = before[boundary_after(before, 0) :]
        behind, left = self.text[end:], room - cell_len(before)
        while cell_len(behind) > left:
            behind = behind[: boundary_before(behind, len(behind))]
        return before, below, behind

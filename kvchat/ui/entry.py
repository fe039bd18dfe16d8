"""One entry of the transcript as lines of text. Owns its wrapping; must not know widgets, styles or scrolling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.cells import cell_len

from kvchat.clean import clean
from kvchat.ui.display import display, display_line
from kvchat.ui.wrap import Row, shown, source_offset, wrap

NoteKind = Literal["info", "warning", "error"]
Kind = Literal["user", "assistant"] | NoteKind
LineRole = Literal["heading", "body", "footer", "blank"]
CARET = "▍"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message, or a note of the program's own. `live`: text is still coming. No string here is ever markup."""

    id: str
    kind: Kind
    text: str
    heading: str = ""
    footer: str = ""
    live: bool = False


class Line(NamedTuple):
    """One line as it stands on the screen, and the part of the entry's text that it shows."""

    role: LineRole
    text: str
    row: Row | None = None


BLANK = Line("blank", "")


class Item:
    """An entry being shown. It is cleaned and wrapped when it is first measured, which a long chat does for few."""

    __slots__ = ("_cleaned", "_footer_rows", "_rows", "_width", "footer", "heading", "id", "kind", "live", "text")

    def __init__(self, entry: Entry) -> None:
        self.id = entry.id
        self.kind = entry.kind
        self.heading = display_line(entry.heading)
        self.footer = display(entry.footer)
        self.live = entry.live
        self.text = entry.text
        self._cleaned = False
        self._width = 0
        self._rows: list[Row] = []
        self._footer_rows: list[Row] = []

    def estimate(self, width: int) -> int:
        """Lines that it will probably have, without looking at each character."""
        lines = self.text.count("\n") + 1 + len(self.text) // max(1, width)
        return bool(self.heading) + lines + bool(self.footer) + 1

    def measure(self, width: int) -> int:
        """Wrap to `width` cells, if that is not done, and return the number of lines."""
        if width != self._width:
            self._width = width
            self._wrap_from_start()
        return self.height

    @property
    def height(self) -> int:
        return bool(self.heading) + self._body_height + len(self._footer_rows) + 1

    @property
    def _body_height(self) -> int:
        """Rows of the text without the blank ones at its end; a live entry has at least the caret's."""
        count = len(self._rows)
        while count and self._rows[count - 1].start == self._rows[count - 1].end:
            count -= 1
        return max(count, int(self.live))

    def append(self, text: str) -> int:
        """Add text at the end and return the first line that changed. Costs the new text and one row."""
        if not self._width:
            self.text += text
            self._cleaned = False
            return 0
        first = max(0, self._body_height - 1)
        self.text += clean(text)
        start = self._rows.pop().start if self._rows else self._first_character()
        self._rows += wrap(self.text, self._width, start) if start < len(self.text) else []
        return bool(self.heading) + min(first, max(0, self._body_height - 1))

    def finish(self, footer: str) -> None:
        """No more text comes. Everything is wrapped once more: a grapheme may have come in two pieces."""
        self.live = False
        self.footer = display(footer)
        if self._width:
            self._wrap_from_start()

    def line(self, number: int) -> Line:
        """Line `number`, counted from the top of the entry."""
        if self.heading:
            if number == 0:
                return Line("heading", self.heading)
            number -= 1
        body = self._body_height
        if number < body:
            return self._body_line(number, last=number == body - 1)
        number -= body
        if number < len(self._footer_rows):
            return Line("footer", shown(self.footer, self._footer_rows[number]))
        return BLANK

    def offset(self, number: int, column: int) -> int:
        """Where in `text` the character `column` of line `number` stands; past the text it is its end."""
        number -= bool(self.heading)
        if number < 0:
            return 0
        if number >= min(self._body_height, len(self._rows)):
            return len(self.text)
        return source_offset(self.text, self._rows[number], column)

    def clean_text(self) -> str:
        """The text without anything that a terminal would obey."""
        if not self._cleaned:
            self.text = clean(self.text)
            self._cleaned = True
        return self.text

    def _body_line(self, number: int, *, last: bool) -> Line:
        row = self._rows[number] if number < len(self._rows) else Row(len(self.text), len(self.text))
        text = shown(self.text, row)
        if self.live and last and cell_len(text) < self._width:
            text += CARET
        return Line("body", text, row)

    def _first_character(self) -> int:
        return len(self.text) - len(self.text.lstrip("\n"))

    def _wrap_from_start(self) -> None:
        text = self.clean_text()
        start = self._first_character()
        self._rows = wrap(text, self._width, start) if start < len(text) else []
        self._footer_rows = wrap(self.footer, self._width) if self.footer else []

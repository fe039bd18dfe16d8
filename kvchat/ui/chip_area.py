"""A text area in which chips and graphemes are whole. Owns how the cursor goes round them; must not know what is sent.

The cursor stands before or behind a chip, never within: keys and clicks that would lead there end at its edge.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.document._document import Location
from textual.geometry import Offset
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from kvchat.ui.chips import Chips, FileRef
from kvchat.ui.display import agreed_in_place
from kvchat.ui.graphemes import boundary_after, boundary_before


class ChipArea(TextArea, inherit_bindings=False):
    """See the module."""

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        self._chips = Chips()  # the base class sets a selection, which looks for chips
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
        )
        self.cursor_blink = False  # a blink is a frame twice a second for nothing

    @property
    def chips(self) -> Chips:
        """What stands behind the labels."""
        return self._chips

    def type_text(self, text: str) -> None:
        """Put a text in place of what is selected, as a key does."""
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)

    def render_line(self, y: int) -> Strip:
        """A line of it; nothing where there is no column for it, which the base class does not expect."""
        return super().render_line(y) if self.content_size.width else Strip.blank(self.size.width)

    # ------------------------------------------------------------------ chips

    def put_file(self, start: Location, end: Location, file: FileRef, size: str) -> str:
        """A chip for a file in place of what was typed; its label. A space follows, to go on writing."""
        label = self._chips.refer(file, size)
        following = self.document.get_line(end[0])[end[1] : end[1] + 1]
        space = "" if following.isspace() else " "
        result = self.replace(label + space, start, end, maintain_selection_offset=False)
        self.move_cursor(result.end_location)
        return label

    def relabel(self, label: str, new: str) -> None:
        """Another text in place of a label, wherever it stands; the cursor stays at its word."""
        for row in range(self.document.line_count):
            line = self.document.get_line(row)
            spans = [span for span in self._chips.spans(line) if line[slice(*span)] == label]
            for start, end in reversed(spans):
                self.replace(new, (row, start), (row, end))

    def unfold_chip(self) -> bool:
        """Put what a chip stands for in its place: the one that is selected, or else the one that the cursor is drawn
        on. False when there is none."""
        (row, column), (end_row, end) = sorted(self.selection)
        line = self.document.get_line(row)
        span = self._chips.at(line, column)
        if span is None or (self.selection.start != self.selection.end and (end_row, end) != (row, span[1])):
            return False
        text = self._chips.text(line[slice(*span)])
        if text is None:
            return False
        result = self.replace(text, (row, span[0]), (row, span[1]), maintain_selection_offset=False)
        self.move_cursor(result.end_location)
        return True

    def unfold_again(self, text: str) -> bool:
        """The same text pasted again behind its chip takes the chip's place."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        span = self._chips.before(line, column)
        if span is None or self._chips.text(line[slice(*span)]) != text:
            return False
        self.selection = Selection((row, span[0]), (row, span[1]))
        return True

    # ------------------------------------------------------------------ the cursor

    def validate_selection(self, selection: Selection) -> Selection:
        """Neither end of a selection lies within a chip."""
        (start_row, start), (end_row, end) = selection
        forward = (start_row, start) <= (end_row, end)
        return Selection(
            (start_row, self._outside_chip(start_row, start, forward)),
            (end_row, self._outside_chip(end_row, end, not forward if selection.start != selection.end else None)),
        )

    def _outside_chip(self, row: int, column: int, left: bool | None) -> int:
        """The column, or the edge of the chip around it; `left` None: the edge that is nearer."""
        span = self._chips.around(self.document.get_line(row), column) if row < self.document.line_count else None
        if span is None:
            return column
        if left is None:
            left = column - span[0] < span[1] - column
        return span[0] if left else span[1]

    def get_line(self, line_index: int) -> Text:
        """The line as it is drawn: emoji are as wide as everywhere."""
        return Text(agreed_in_place(self.document.get_line(line_index)), end="", no_wrap=True)

    @property
    def _cursor_is_astray(self) -> bool:
        """Below the last line, as for a moment while an edit is undone: the base class would raise."""
        return self.cursor_location[0] >= self.document.line_count

    def _recompute_cursor_offset(self) -> None:
        if not self._cursor_is_astray:
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]

    @property
    def cursor_screen_offset(self) -> Offset:
        """Where the terminal's own cursor goes, and with it what an input method shows: behind what is drawn."""
        if self._cursor_is_astray:
            return super().cursor_screen_offset
        row, column = self.cursor_location
        start = max(at for at in (0, *self.wrapped_document.get_offsets(row)) if at <= column)
        before = self.document.get_line(row)[start:column]
        return super().cursor_screen_offset - Offset(cell_len(before) - cell_len(agreed_in_place(before)), 0)

    def get_cursor_left_location(self) -> Location:
        """One grapheme to the left, which backspace deletes as well."""
        row, column = self.cursor_location
        if column == 0:
            return super().get_cursor_left_location()
        line = self.document.get_line(row)
        before = boundary_before(line, column)
        return row, self._outside_chip(row, before, left=True)

    def get_cursor_right_location(self) -> Location:
        """One grapheme to the right, which delete deletes as well."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column >= len(line):
            return super().get_cursor_right_location()
        return row, self._outside_chip(row, boundary_after(line, column), left=False)

    def get_cursor_word_left_location(self) -> Location:
        """One word to the left, a chip as a whole."""
        row, column = super().get_cursor_word_left_location()
        return row, self._outside_chip(row, column, left=True)

    def get_cursor_word_right_location(self) -> Location:
        """One word to the right, a chip as a whole."""
        row, column = super().get_cursor_word_right_location()
        return row, self._outside_chip(row, column, left=False)

"""Where the person writes. Owns the draft, its chips and the recall of sent texts; must not know chats or commands.

All editing keys run in the order in which they were typed: a binding with priority, or one that takes the way over the
app, would overtake characters that still wait in this widget's queue.
"""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Location
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from kvchat.clean import clean
from kvchat.ui.chips import Chips, is_long
from kvchat.ui.display import agreed_in_place
from kvchat.ui.graphemes import boundary_after, boundary_before
from kvchat.ui.paste import normal

NEW_LINE_KEYS = frozenset({"ctrl+j", "shift+enter", "ctrl+enter", "shift+\r"})
FOR_THE_SCREEN = frozenset({"ctrl+c", "ctrl+d", "pageup", "pagedown"})
LONGEST_DRAFT = 50_000  # characters that are put into the prompt as they are; more would make each key slow
JOINERS = frozenset({"\u200c", "\u200d"})  # not printable for Python, so no text for TextArea, but part of emoji


def _editing_keys() -> list[BindingType]:
    """TextArea's bindings without the keys that mean something else here, with ids."""
    found: list[BindingType] = []
    for binding in TextArea.BINDINGS:
        assert isinstance(binding, Binding)
        keys = [key for key in binding.key.split(",") if key not in FOR_THE_SCREEN]
        if keys:
            name = "prompt." + binding.description.lower().replace(" ", "-")
            found.append(Binding(",".join(keys), binding.action, binding.description, show=False, id=name))
    return found


class Prompt(TextArea, inherit_bindings=False):
    """Enter sends, Ctrl+J (Shift+Enter, a backslash before Enter) makes a new line."""

    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 12;
        border: round $edge; padding: 0 1; background: $background; scrollbar-size-vertical: 1;
        &:focus { border: round $primary; background: $background; }
        & .text-area--cursor { background: $foreground; color: $background; }
        & .text-area--placeholder { color: $meta; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = _editing_keys()

    class Edged(Message):
        """Up in an empty prompt that has nothing to recall."""

    class Submitted(Message):
        """The person sent `text`. `literal`: it was pasted and begins with a slash, so it is no command."""

        def __init__(self, text: str, literal: bool) -> None:
            self.text = text
            self.literal = literal
            super().__init__()

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
        self._sent: list[str] = []
        self._recalled: int | None = None
        self._draft = ""
        self._pasted_slash = False

    @property
    def draft(self) -> str:
        """What would be sent: pastes in full."""
        return self._chips.unfold(self.text)

    def remember(self, texts: list[str]) -> None:
        """What Up brings back, the oldest first."""
        self._sent = list(texts)
        self._recalled = None

    def put(self, text: str) -> None:
        """Replace the draft, with the cursor at its end."""
        self._chips.clear()
        text = clean(text)
        self.text = text if len(text) < LONGEST_DRAFT else self._chips.fold(text)
        self.move_cursor(self.document.end)

    def put_back(self, text: str) -> None:
        """Return a text that could not be sent, before whatever was written since."""
        self.put(f"{text}\n{self.draft}" if self.text else text)

    # ------------------------------------------------------------------ keys

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            _take(event)
            self._enter()
        elif event.key in NEW_LINE_KEYS:
            _take(event)
            self._type("\n")
        elif event.character in JOINERS:
            _take(event)
            self._type(event.character)
        elif event.key == "ctrl+d" and self.text:
            _take(event)
            self.action_delete_right()
        elif not event.is_printable and (bindings := self._bindings.key_to_bindings.get(event.key)):
            _take(event)
            for binding in bindings:
                await self.run_action(binding.action)
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        _take(event)
        text = clean(normal(event.text))
        if not self.text and text.startswith("/"):
            self._pasted_slash = True
        if is_long(text) and not self._unfold_again(text):
            text = self._chips.fold(text)
        self._type(text)

    def _unfold_again(self, text: str) -> bool:
        """The same text pasted again behind its chip takes the chip's place."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        span = self._chips.before(line, column)
        if span is None or self._chips.text(line[slice(*span)]) != text:
            return False
        self.selection = Selection((row, span[0]), (row, span[1]))
        return True

    def _type(self, text: str) -> None:
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)

    def _enter(self) -> None:
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        text = self.draft
        literal = self._pasted_slash or (text.startswith("/") and not self.text.startswith("/"))
        if not text.strip():
            return
        self.clear_draft()
        self.post_message(self.Submitted(text, literal))

    def clear_draft(self) -> None:
        """Empty the prompt; Up brings the text back."""
        if self.text.strip():
            self._sent.append(self.draft)
        self._recalled = None
        self._pasted_slash = False
        self.clear()
        self._chips.clear()
        self.history.clear()

    # ------------------------------------------------------------------ recall

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; from the first row, the text sent before."""
        at_edge = self.wrapped_document.location_to_offset(self.cursor_location).y == 0
        before = len(self._sent) if self._recalled is None else self._recalled
        if not self.text and not before and not select:
            self.post_message(self.Edged())
            return
        if select or not at_edge or before == 0:
            super().action_cursor_up(select)
            return
        if self._recalled is None:
            self._draft = self.draft
        self._recalled = before - 1
        self.put(self._sent[self._recalled])

    def action_cursor_down(self, select: bool = False) -> None:
        """Down; from the last row, the text sent after, and in the end the draft."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        if select or self._recalled is None or row < self.wrapped_document.height - 1:
            super().action_cursor_down(select)
            return
        following = self._recalled + 1
        self._recalled = following if following < len(self._sent) else None
        self.put(self._draft if self._recalled is None else self._sent[following])

    # ------------------------------------------------------------------ chips and graphemes

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


def _take(event: events.Event) -> None:
    """The event is dealt with: neither the base class nor the screen may act on it."""
    event.stop()
    event.prevent_default()

"""A list of choices above the prompt. Owns its place and how it is drawn; must not know what the choices are for.

It lies over the transcript and takes neither room nor keyboard: whoever offers something moves the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content, Span
from textual.widget import Widget
from textual.widgets import Static

from kvchat.ui.display import display_line
from kvchat.ui.meters import shortened

MOST_ROWS = 10
WIDEST = 100  # cells, with the border
FRAME = 2  # cells that the border takes of the width
SIDES = 2  # cells beside a row: the mark, and a space at its end
MARK = "▌"
WIDEST_NAME = 0.6  # of the row, when something stands behind the name


@dataclass(frozen=True, slots=True)
class Choice:
    """One line: a name, a note behind it, something at the right edge. `put` is what takes the place of what was
    typed, `marks` the characters of the name that were meant by it. `tail`: of a long name the end counts. Names and
    notes may be foreign, asides are not."""

    name: str
    put: str = ""
    note: str = ""
    aside: str = ""
    marks: tuple[int, ...] = ()
    tail: bool = False


class Overlay(Static):
    """Hidden until something is shown."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Overlay {
        layer: overlay; position: absolute; display: none;
        border: round $primary; background: $surface; color: $foreground;
        border-title-color: $foreground; border-subtitle-color: $meta; text-wrap: nowrap;
        &.-bare { border: none; }
    }
    """

    def __init__(self, above: Widget, picked: Callable[[int], object], stepped: Callable[[int], object]) -> None:
        """It stands above `above`. `picked` hears of a click on a choice, `stepped` of the wheel."""
        super().__init__("", id="overlay", markup=False)
        self._above = above
        self._picked = picked
        self._stepped = stepped
        self._choices: Sequence[Choice] = ()
        self._marked: int | None = None
        self._first = 0
        self._rows = 0
        self._placed = (0, 0, 0, 0)
        self._title = ""
        self._foot = ""

    def on_mount(self) -> None:
        """Whatever moves the prompt moves this."""
        self.screen.screen_layout_refresh_signal.subscribe(self, lambda _: self._place(), immediate=True)

    def show(self, title: str, choices: Sequence[Choice], marked: int | None, foot: str) -> None:
        """Show these, with the one at `marked` highlighted."""
        self._choices, self._marked = choices, marked
        self._title, self._foot = title, foot
        self.display = True
        self._place()
        self._draw()

    def hide(self) -> None:
        """Nothing is offered."""
        self.display = False

    @property
    def room(self) -> int:
        """So many rows there are for choices."""
        above = self._above.region.y
        return min(MOST_ROWS, above - 2 if above > 3 else above)

    def _place(self) -> None:
        """Right above the prompt, as wide as that."""
        if not self.display or not self.is_attached:
            return
        region = self._above.region
        bare = region.y <= 3
        rows = max(0, min(len(self._choices), self.room))
        width = min(region.width, WIDEST)
        height = rows if bare else rows + 2
        place = (region.x, region.y - height)
        wanted = (*place, width, height)
        if wanted == self._placed:
            return
        self._placed = wanted
        self._rows = rows
        self.set_class(bare, "-bare")
        self.styles.offset = place
        self.styles.width = width
        self.styles.height = height
        self._draw()

    def _draw(self) -> None:
        frame = 0 if self.has_class("-bare") else FRAME
        width = min(self._above.region.width, WIDEST) - frame - SIDES
        if width < 1 or not self.display:
            return
        self._follow()
        rows = range(self._first, min(len(self._choices), self._first + self._rows))
        self.border_title = Content(shortened(display_line(self._title), width))
        self.border_subtitle = Content(shortened(self._foot, width))
        names = _name_cells([self._choices[row] for row in rows], width)
        lines = [_line(self._choices[row], width, names, row == self._marked) for row in rows]
        self.update(Content("\n").join(lines))

    def _follow(self) -> None:
        """The marked choice is among those that are seen."""
        marked = self._marked or 0
        self._first = max(min(self._first, marked, len(self._choices) - self._rows), marked - self._rows + 1, 0)

    def on_click(self, event: events.Click) -> None:
        """Take what was clicked."""
        event.stop()
        row = event.y - (0 if self.has_class("-bare") else 1)
        index = self._first + row
        if 0 <= row < self._rows and index < len(self._choices):
            self._picked(index)

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._stepped(1)

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._stepped(-1)


def _name_cells(choices: Sequence[Choice], width: int) -> int:
    """The column of the names: as wide as they are, as far as notes and asides have room beside it."""
    names = max((cell_len(display_line(choice.name)) for choice in choices), default=0)
    aside = max((cell_len(choice.aside) for choice in choices), default=0)
    notes = any(choice.note for choice in choices)
    most = int(width * WIDEST_NAME) if notes else width - (aside + 2 if aside else 0)
    return max(1, min(names, most))


def _line(choice: Choice, width: int, names: int, marked: bool) -> Content:
    """One row, exactly so wide."""
    name = _name(choice, names)
    name = name.pad_right(names - name.cell_length)
    left = width - name.cell_length
    aside = shortened(choice.aside, max(0, left - 2))
    behind = "$foreground" if marked else "$meta"  # the dim colour is too dim on the marked row
    note = shortened(display_line(choice.note), max(0, left - 2 - (cell_len(aside) + 2 if aside else 0)))
    gap = " " * max(0, left - 2 - cell_len(note) - cell_len(aside))
    rest = Content.styled(f"  {note}{gap}{aside}", behind) if left >= 2 else Content("")
    mark = Content.styled(MARK, "$primary") if marked else Content(" ")
    row = Content.assemble(mark, name, rest, " ")
    return row.stylize("on $panel bold") if marked else row


def _name(choice: Choice, cells: int) -> Content:
    name = display_line(choice.name)
    shown = _end(name, cells) if choice.tail else shortened(name, cells)
    content = Content(shown)
    if name != choice.name:
        return content  # characters were left out: the marks would be beside theirs
    shift = len(shown) - len(name) if shown != name and choice.tail else 0
    places = (mark + shift for mark in choice.marks)
    return Content(shown, [Span(place, place + 1, "$primary") for place in places if 0 <= place < len(shown)])


def _end(text: str, cells: int) -> str:
    """The text, or three dots and its end."""
    if cell_len(text) <= cells:
        return text
    while text and cell_len(text) > cells - 1:
        text = text[1:]
    return "…" + text

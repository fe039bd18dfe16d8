"""A screen with a filter and a list: type, move, choose. Owns filter, highlight and how it ends; must not know what is
listed: that is in the palette and in the help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.ui.display import display_line
from kvchat.ui.inline_keys import LineInput, is_on_top, is_there
from kvchat.ui.options import Options
from kvchat.ui.settings_row import Hint

TINY = 12  # lines of a screen without room for a border
AROUND = {True: 2, False: 6}  # lines around the list on a tiny screen, on another
EDGES = 3  # cells of a row's padding, with the scroll bar
MOST_ROWS = 200

Item = TypeVar("Item")


class Rows(Options):
    """The list; the keyboard stays with the filter."""

    DEFAULT_CSS = """
    Rows {
        border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; height: auto; margin: 1 0 0 0;
        & > .option-list--option { padding: 0 1; color: $foreground; }
        & > .option-list--option-highlighted { background: $panel; color: $foreground; text-style: none; }
        & > .option-list--option-disabled { color: $primary; }
    }
    """


class Listing(ModalScreen[Item | None], Generic[Item]):
    """Ends with what was chosen, or None. A subclass says what there is and how a row looks."""

    DEFAULT_CSS = """
    Listing {
        align: center top; background: $background 60%;
        & > #box {
            width: 100%; max-width: 84; height: auto; max-height: 100%; margin: 1 0 0 0;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #filter { border: none; height: 1; padding: 0 1; background: $panel; &:focus { border: none; } }
        & #none { padding: 0 1; margin: 1 0 0 0; color: $meta; display: none; }
        & #hints { height: 1; padding: 0 1; }
        &.-tiny #box { border: none; padding: 0; margin: 0; }
        &.-tiny Rows { margin: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Back", show=False, id="list.cancel"),
        Binding("ctrl+home", "edge(-1)", "First row", show=False, id="list.first"),
        Binding("ctrl+end", "edge(1)", "Last row", show=False, id="list.last"),
    ]
    NAME = ""
    PLACEHOLDER = "type to find"
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (("⏎ choose", "choose"), ("{list.cancel} back", "cancel"))

    def __init__(self) -> None:
        super().__init__()
        self._rows = Rows(id="rows", markup=False)
        self._rows.can_focus = False
        self._shown: list[Item] = []
        self._query = ""
        self._over = False

    # ------------------------------------------------------------------ what a subclass says

    def found(self, query: str) -> Sequence[Item]:
        """What is listed for a query, the best first."""
        raise NotImplementedError

    def row(self, item: Item, width: int) -> Content:
        """How it looks in so many cells."""
        raise NotImplementedError

    def is_head(self, item: Item) -> bool:  # noqa: ARG002
        """Whether it is a heading, which cannot be chosen."""
        return False

    def looked_at(self, item: Item | None) -> None:
        """The person moved to an item."""

    # ------------------------------------------------------------------ the screen

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = display_line(self.NAME)
            line = LineInput(self.PLACEHOLDER, id="filter")
            line.value = self._query
            yield line
            yield self._rows
            yield Static("nothing has such a name", id="none", markup=False)
            with Horizontal(id="hints"):
                for text, action in self.HINTS:
                    yield Hint(text, action)

    def on_resize(self, event: events.Resize) -> None:
        """The list has what the lines around it leave."""
        self._rows.styles.max_height = max(1, event.size.height - AROUND[event.size.height < TINY])
        self.call_after_refresh(self.fill)

    def fill(self, *, keep: bool = True) -> None:
        """List what there is; the highlight stays on its item, or goes to the first."""
        kept = self.marked if keep else None
        width = self._rows.size.width - EDGES
        if width <= 0 or not is_there(self):
            return
        self._shown = list(self.found(self._query))[:MOST_ROWS]
        options = [Option(self.row(item, width), disabled=self.is_head(item)) for item in self._shown]
        self._rows.set_options(options)
        usable = [index for index, item in enumerate(self._shown) if not self.is_head(item)]
        same = [index for index in usable if self._shown[index] == kept]
        self._rows.highlighted = next(iter([*same, *usable]), None)
        self.query_one("#none").display = not options
        self._rows.refresh(layout=True)  # the list does not do so when nothing is left

    @property
    def marked(self) -> Item | None:
        """The highlighted item."""
        row = self._rows.highlighted
        return self._shown[row] if row is not None and row < len(self._shown) else None

    # ------------------------------------------------------------------ keys

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another filter."""
        event.stop()
        self._query = event.value.strip()
        self.fill(keep=False)
        self._rows.scroll_home(animate=False)

    def on_line_input_stepped(self, event: LineInput.Stepped) -> None:
        """Up and Down."""
        event.stop()
        self._move(event.step)

    def action_edge(self, direction: int) -> None:
        """To the first or last row."""
        self._move(direction * len(self._shown))

    def _move(self, step: int) -> None:
        usable = [index for index, item in enumerate(self._shown) if not self.is_head(item)]
        if not usable:
            return
        now = usable.index(self._rows.highlighted) if self._rows.highlighted in usable else 0
        place = max(0, min(len(usable) - 1, now + step))
        self._rows.highlighted = usable[place]
        if place == 0:  # its heading, too
            self._rows.scroll_home(animate=False)
        self.looked_at(self.marked)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self.action_choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        event.stop()
        self.action_choose()

    def action_choose(self) -> None:
        """End with the highlighted item."""
        if self.marked is not None:
            self.end(self.marked)

    def action_cancel(self) -> None:
        """End with nothing."""
        self.end(None)

    def end(self, item: Item | None) -> None:
        """Once, whatever was typed after it."""
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(item)

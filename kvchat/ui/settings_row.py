"""One line of the settings screen. Owns how a field is drawn and what a click on it means; knows no values."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kvchat.ui.display import display_line
from kvchat.ui.meters import shortened
from kvchat.ui.settings_fields import LABELS, SHORT_LABELS, FieldName

MARK_CELLS = 2
VALUE_CELLS = 12
NARROW = 50  # cells of a line below which labels are short


@dataclass(frozen=True, slots=True)
class RowState:
    """What a row shows. `walkable`: the arrow keys change it."""

    value: str = ""
    note: str = ""
    selected: bool = False
    walkable: bool = True


class FieldRow(Static):
    """Mark, label, value between its arrows, note; cut at the edge, never wrapped."""

    DEFAULT_CSS = "FieldRow { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    class Clicked(Message):
        """A click on the row of `field`: on its arrows (`step` -1 or 1) or elsewhere (0)."""

        def __init__(self, field: FieldName, step: int) -> None:
            self.field = field
            self.step = step
            super().__init__()

    def __init__(self, field: FieldName) -> None:
        super().__init__("", id=f"field-{field}", markup=False)
        self.field = field
        self.state = RowState()

    def say(self, state: RowState) -> None:
        """Show this."""
        self.state = state
        self._draw()

    def on_resize(self) -> None:
        """Another width has other columns."""
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Which part of the row was meant."""
        event.stop()
        left = MARK_CELLS + self._label_cells
        right = left + 2 + self._value_cells
        step = 0
        if self.state.selected and self.state.walkable:
            step = -1 if left <= event.x < left + 2 else 1 if right <= event.x < right + 3 else 0
        self.post_message(self.Clicked(self.field, step))

    @property
    def _label_cells(self) -> int:
        labels = SHORT_LABELS if self.size.width < NARROW else LABELS
        return max(map(cell_len, labels.values())) + 2

    @property
    def _value_cells(self) -> int:
        """A model's name takes the room of the note as far as it needs it."""
        room = self.size.width - MARK_CELLS - self._label_cells - 4
        wanted = max(VALUE_CELLS, cell_len(display_line(self.state.value)))
        return max(1, min(wanted, max(VALUE_CELLS, room * 3 // 5)))

    def _draw(self) -> None:
        state = self.state
        labels = SHORT_LABELS if self.size.width < NARROW else LABELS
        arrows = ("‹ ", " ›") if state.selected and state.walkable else ("  ", "  ")
        value = set_cell_size(shortened(display_line(state.value), self._value_cells), self._value_cells)
        self.update(
            Content.assemble(
                Content.styled("▸ " if state.selected else "  ", "$accent"),
                Content.styled(set_cell_size(labels[self.field], self._label_cells), "" if state.selected else "$meta"),
                Content.styled(arrows[0], "$primary"),
                Content.styled(value, "bold $primary" if state.selected else "$foreground"),
                Content.styled(arrows[1], "$primary"),
                Content.styled("  " + display_line(state.note), "$meta"),
            ),
            layout=False,
        )


class Hint(Static):
    """A key and what it does; a click does the same."""

    DEFAULT_CSS = "Hint { width: auto; height: 1; color: $meta; margin: 0 2 0 0; &:hover { color: $foreground; } }"

    def __init__(self, text: str, action: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(text, id=id, classes=classes, markup=False)
        self._action = action

    async def on_click(self, event: events.Click) -> None:
        """As the key."""
        event.stop()
        if self._action:
            await self.screen.run_action(self._action)

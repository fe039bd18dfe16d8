"""One line of the settings screen. Owns how a field is drawn and what a click on it means; knows no values."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kvchat.ui.display import display, display_line
from kvchat.ui.key_hints import hints, keys_at, words_of
from kvchat.ui.meters import shortened
from kvchat.ui.typed_line import TypedLine

MARK_CELLS = 2
LABEL_CELLS = (9, 17)  # of the longest label and its gap: short, whole
VALUE_CELLS = 12
SHORTEST_LINE = 24  # cells for what is typed
NARROW = 50  # cells of a line below which labels are short


@dataclass(frozen=True, slots=True)
class RowState:
    """What a row shows. `walkable`: the arrow keys change it. `own`: not the default. `line`: it is being typed;
    `problem` says why what was typed cannot be had."""

    value: str = ""
    note: str = ""
    selected: bool = False
    walkable: bool = True
    own: bool = False
    line: TypedLine | None = None
    problem: str = ""


class FieldRow(Static):
    """Mark, label, value between its arrows, note; cut at the edge, never wrapped."""

    DEFAULT_CSS = "FieldRow { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    class Clicked(Message):
        """A click on the row of `field`: on its arrows (`step` -1 or 1) or elsewhere (0)."""

        def __init__(self, field: str, step: int) -> None:
            self.field = field
            self.step = step
            super().__init__()

    def __init__(self, field: str, label: str, short: str) -> None:
        super().__init__("", id=f"field-{field}", markup=False)
        self.field = field
        self.state = RowState()
        self._labels = (short, label)

    def say(self, state: RowState) -> None:
        """Show this."""
        if state != self.state:
            self.state = state
            self._draw()

    def on_resize(self) -> None:
        """Another width has other columns."""
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Which part of the row was meant."""
        event.stop()
        left = MARK_CELLS + LABEL_CELLS[self._wide]
        right = left + 2 + self._value_cells
        step = 0
        if self.state.selected and self.state.walkable and self.state.line is None:
            step = -1 if left <= event.x < left + 2 else 1 if right <= event.x < right + 3 else 0
        self.post_message(self.Clicked(self.field, step))

    @property
    def _wide(self) -> bool:
        return self.size.width >= NARROW

    @property
    def _value_cells(self) -> int:
        """A long value, such as a model's name, takes the room of the note as far as it needs it."""
        room = self.size.width - MARK_CELLS - LABEL_CELLS[self._wide] - 4
        wanted = max(VALUE_CELLS, cell_len(display_line(self.state.value)))
        return max(1, min(wanted, max(VALUE_CELLS, room * 3 // 5)))

    def _draw(self) -> None:
        state = self.state
        label = set_cell_size(self._labels[self._wide], LABEL_CELLS[self._wide])
        self.update(
            Content.assemble(
                Content.styled("▸ " if state.selected else "  ", "$accent"),
                Content.styled(label, "" if state.selected else "$meta"),
                self._value() if state.line is None else self._typed(state.line),
                Content.styled(f"  ! {state.problem}", "$error") if state.problem else Content(""),
            ),
            layout=False,
        )

    def _value(self) -> Content:
        """A value of this chat's own has a mark that needs no colour."""
        state = self.state
        arrows = ("‹ ", " ›") if state.selected and state.walkable else ("  ", "  ")
        value = set_cell_size(shortened(display_line(state.value), self._value_cells), self._value_cells)
        return Content.assemble(
            Content.styled(arrows[0], "$primary"),
            Content.styled(value, "bold $primary" if state.selected else "bold" if state.own else "$foreground"),
            Content.styled(arrows[1], "$primary"),
            Content.styled(" ● " if state.own else "   ", "$accent"),
            Content.styled("" if state.problem else display_line(state.note), "$meta"),
        )

    def _typed(self, line: TypedLine) -> Content:
        room = self.size.width - MARK_CELLS - LABEL_CELLS[self._wide] - 3
        taken = cell_len(self.state.problem) + 4 if self.state.problem else 0
        before, below, behind = line.window(max(1, min(room, max(SHORTEST_LINE, room - taken))))
        parts = (display(before), Content.styled(display(below), "reverse"), display(behind))
        return Content.assemble("  ", *parts)


class Hint(Static):
    """Keys and what they do, as a template of key_hints; a click does the same. Where no key does it, the words are for
    the click, and go where a click does nothing."""

    DEFAULT_CSS = "Hint { width: auto; height: 1; color: $meta; margin: 0 2 0 0; &:hover { color: $foreground; } }"

    def __init__(self, text: str, action: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(text, id=id, classes=classes, markup=False)
        self._template = text
        self._action = action

    def on_mount(self) -> None:
        """With the keys that it has here."""
        if self._template:
            self.say(self._template)

    def say(self, template: str) -> None:
        """Show this."""
        self._template = template
        text = hints(template, keys_at(self)) or (words_of(template) if self._action else "")
        self.update(text)

    async def on_click(self, event: events.Click) -> None:
        """As the key."""
        event.stop()
        if self._action:
            await self.screen.run_action(self._action)

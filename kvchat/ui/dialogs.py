"""Small questions over the screen: yes or no, one line of text. Owns nothing but the answer."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kvchat.clean import clean_line
from kvchat.ui.display import display, display_line
from kvchat.ui.inline_keys import LineInput, is_on_top, run_bound
from kvchat.ui.key_hints import hints, keys_at

Answer = TypeVar("Answer")


class Question(ModalScreen[Answer]):
    """A box in the middle, for a few words and the keys."""

    DEFAULT_CSS = """
    Question {
        align: center middle; background: $background 60%;
        & > #box {
            width: auto; max-width: 100%; height: auto; padding: 0 2;
            background: $surface; border: round $primary;
        }
        & Static { width: auto; max-width: 100%; }
        & #keys { color: $meta; margin: 1 0 0 0; }
    }
    """


class Confirm(Question[bool]):
    """Enter or y: yes. Escape or n: no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer(True)", "Yes", show=False, id="confirm.enter"),
        Binding("y", "answer(True)", "Yes", show=False, id="confirm.yes"),
        Binding("n", "answer(False)", "No", show=False, id="confirm.no"),
        Binding("escape,ctrl+c", "answer(False)", "No", show=False, id="confirm.leave"),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self._question = display(question)
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(self._question, markup=False)
            row = f"{{confirm.enter|confirm.yes}} {self._yes}  {{confirm.leave|confirm.no}} leave it"
            yield Static(hints(row, keys_at(self)), id="keys", markup=False)

    def action_answer(self, answer: bool) -> None:
        """End with the answer."""
        if is_on_top(self):
            self.dismiss(answer)


class AskLine(ModalScreen[str | None]):
    """One line of text; None when the person leaves it."""

    DEFAULT_CSS = """
    AskLine {
        align: center middle; background: $background 60%;
        & > #box {
            width: 60; max-width: 100%; height: auto; padding: 0 1;
            background: $surface; border: round $primary; border-title-color: $foreground;
        }
        & Input { border: none; height: 1; padding: 0 1; background: $surface; }
        & Input:focus { border: none; }
        & #keys { color: $meta; padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "Leave it", show=False, id="ask.leave"),
    ]

    def __init__(self, title: str, value: str, placeholder: str = "a title") -> None:
        super().__init__()
        self._title = display_line(title)
        self._placeholder = placeholder
        self._value = clean_line(value)

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title
            line = LineInput(self._placeholder, id="line")
            line.value = self._value
            yield line
            yield Static(hints("⏎ take it  {ask.leave} leave it", keys_at(self)), id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self._end(event.value.strip() or None)

    async def on_key(self, event: events.Key) -> None:
        """Escape in the order in which it was typed."""
        await run_bound(self, event)

    def action_leave(self) -> None:
        """End without an answer."""
        self._end(None)

    def _end(self, answer: str | None) -> None:
        if is_on_top(self):
            self.dismiss(answer)

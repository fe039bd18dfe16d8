"""A summary, to be read and changed before it takes the place of messages. Owns its text while it is shown.

The screen ends with the text, or None; `text` is then what was left. Must not take anything over: whoever shows it
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from kvchat.clean import clean
from kvchat.ui.display import display
from kvchat.ui.fit_question import SHORT, TINY
from kvchat.ui.inline_keys import is_on_top, run_bound
from kvchat.ui.settings_row import Hint

LATER = "The messages stay in the chat, and what was computed of them on disk. /undo has them read again."


class SummaryEditor(TextArea):
    """The text; its keys in the order in which they are typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "end(True)", "Take the summary", show=False, id="summary.take"),
        Binding("escape,ctrl+c", "end(False)", "Not now", show=False, id="summary.leave"),
    ]

    class Ended(Message):
        """The person is done with it."""

        def __init__(self, taken: bool) -> None:
            self.taken = taken
            super().__init__()

    async def _on_key(self, event: events.Key) -> None:
        if not await run_bound(self, event):
            await super()._on_key(event)

    def on_mount(self) -> None:
        """A blink would be a frame twice a second for nothing."""
        self.cursor_blink = False

    def action_end(self, taken: bool) -> None:
        """Tell the screen."""
        self.post_message(self.Ended(taken))


class SummaryScreen(ModalScreen[str | None]):
    """What it stands for, its text, and what is wrong with it."""

    DEFAULT_CSS = """
    SummaryScreen {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 96; height: auto; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & .said { height: auto; padding: 0 1; }
        & #later { color: $meta; }
        & #problem { color: $warning; }
        & SummaryEditor { height: auto; min-height: 3; max-height: 16; margin: 1 0; border: none; }
        & SummaryEditor:focus { border: none; }
        & #hints { height: 1; padding: 0 1; }
        &.-short SummaryEditor, &.-tiny SummaryEditor { max-height: 6; margin: 0; }
        &.-tiny #later { display: none; }
        &.-tiny #box { border: none; padding: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-short"), (SHORT, "-tall")]  # noqa: RUF012 (Textual declares it for instances)

    def __init__(self, title: str, stands_for: str, text: str, problem: Callable[[str], str]) -> None:
        """`problem`: why a text cannot be taken, "" where it can."""
        super().__init__()
        self._title = title
        self._stands_for = stands_for
        self.text = clean(text)
        self._problem = problem
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title
            yield Static(Content(display(self._stands_for)), classes="said", markup=False)
            yield SummaryEditor(self.text, soft_wrap=True, id="text")
            yield Static("", id="problem", classes="said", markup=False)
            yield Static(Content(LATER), id="later", classes="said", markup=False)
            with Horizontal(id="hints"):
                yield Hint("{summary.take} take it", "take")
                yield Hint("{summary.leave} not now", "leave")

    def on_mount(self) -> None:
        """The problem takes no line while there is none."""
        self.query_one("#problem").display = False

    def on_summary_editor_ended(self, event: SummaryEditor.Ended) -> None:
        """Take it, if it can be taken."""
        event.stop()
        self._end(event.taken)

    def action_take(self) -> None:
        """The hint was clicked."""
        self._end(True)

    def action_leave(self) -> None:
        """The hint was clicked."""
        self._end(False)

    def _end(self, taken: bool) -> None:
        if self._over or not is_on_top(self):
            return
        self.text = self.query_one(SummaryEditor).text
        problem = self._problem(self.text) if taken else ""
        if problem:
            said = self.query_one("#problem", Static)
            said.update(Content(display(problem)))
            said.display = True
            return
        self._over = True
        self.dismiss(self.text if taken else None)

"""A model that is being fetched: how far it is, and the key that stops it. Owns the thread that fetches.

Must not wait for the network: the thread counts, the screen looks at the count a few times a second. What has come
stays when it is stopped, also by the end of the program.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.errors import KvchatError
from kvchat.library.pace import Pace, progress_words
from kvchat.library.pull import Pulled, Source, pull
from kvchat.library.transport import Stopped, Wire
from kvchat.ui.display import display, display_line
from kvchat.ui.inline_keys import is_on_top, is_there
from kvchat.ui.meters import bar
from kvchat.ui.settings_row import Hint
from kvchat.ui.wording import sentences

LOOKS = 5  # a second


class Ended(Message):
    """The thread is done: with the model, with what went wrong, or, where both are None, because it was stopped."""

    def __init__(self, pulled: Pulled | None, error: KvchatError | None) -> None:
        self.pulled = pulled
        self.error = error
        super().__init__()


class Pulling(ModalScreen[Pulled | None]):
    """Fetches `source` into `folder`; ends with the model, or with None."""

    DEFAULT_CSS = """
    Pulling {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 76; height: auto; padding: 0 2;
            background: $surface; border: round $primary; border-title-color: $foreground;
        }
        & #bar, & #words { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & #words { color: $meta; }
        & #trouble { height: auto; color: $error; display: none; }
        & #hints { height: 1; margin: 1 0 0 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "Try again", show=False, id="pull.again"),
        Binding("escape,ctrl+c", "stop", "Stop, and keep what has come", show=False, id="pull.stop"),
    ]

    def __init__(self, source: Source, folder: Path) -> None:
        super().__init__()
        self._source = source
        self._folder = folder
        self._wire = Wire()
        self._pace = Pace()
        self._there: tuple[int, int | None] = (0, source.size)
        self._error: KvchatError | None = None
        self._over = False
        self._result: Pulled | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = Content(display_line(f"Fetching {self._source.name}"))
            yield Static("", id="bar", markup=False)
            yield Static("connecting", id="words", markup=False)
            yield Static("", id="trouble", markup=False)
            with Horizontal(id="hints"):
                yield Hint("{pull.again} try again", "again", id="retry")
                yield Hint("{pull.stop} stop", "stop")

    def on_mount(self) -> None:
        """Begin."""
        self.set_interval(1 / LOOKS, self._show)
        self._begin()

    def on_unmount(self) -> None:
        """Nobody waits any more."""
        self._wire.stop()

    def on_resize(self) -> None:
        """Another width has another bar."""
        self.call_after_refresh(self._draw)

    def action_again(self) -> None:
        """After an error: go on where it was."""
        if self._error is not None:
            self._begin()

    def action_stop(self) -> None:
        """Leave; the thread ends by itself."""
        self._wire.stop()
        self._end(None)

    def on_ended(self, event: Ended) -> None:
        """Leave with the model, or say what went wrong and stay."""
        event.stop()
        if not is_there(self):
            return
        if event.error is None:
            self._end(event.pulled)
            return
        self._error = event.error
        trouble = self.query_one("#trouble", Static)
        trouble.update(Content(display(sentences(event.error.message, event.error.hint))))
        self._show_trouble()

    # ------------------------------------------------------------------ inside

    def _begin(self) -> None:
        self._error = None
        self._wire, self._pace = Wire(), Pace()
        self._show_trouble()
        threading.Thread(target=self._run, args=(self._wire,), name="pull", daemon=True).start()

    def _run(self, wire: Wire) -> None:
        try:
            self.post_message(Ended(pull(self._source, self._folder, self._tell, wire), None))
        except Stopped:
            return
        except KvchatError as error:
            self.post_message(Ended(None, error))
        except OSError as error:
            self.post_message(Ended(None, KvchatError(str(error), "look at the disk")))

    def _tell(self, done: int, total: int | None) -> None:
        self._there = done, total

    def _show(self) -> None:
        if self._error is None and self._there[0]:
            self._pace.note(self._there[0], time.monotonic())
            self._draw()

    def _draw(self) -> None:
        if not is_there(self):
            return
        done, total = self._there
        line = self.query_one("#bar", Static)
        if total:
            line.update(bar(done / total, line.size.width, "$primary"))
        if done:
            self.query_one("#words", Static).update(progress_words(done, total, self._pace))

    def _show_trouble(self) -> None:
        wrong = self._error is not None
        self.query_one("#trouble").display = wrong
        self.query_one("#retry").display = wrong

    def _end(self, pulled: Pulled | None) -> None:
        """Once; while something lies over it, when that is gone."""
        if not self._over:
            self._over, self._result = True, pulled
            self._leave()

    def on_screen_resume(self) -> None:
        """What lay over it is gone."""
        self._leave()

    def _leave(self) -> None:
        if self._over and is_on_top(self):
            self.dismiss(self._result)

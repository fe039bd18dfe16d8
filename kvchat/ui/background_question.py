"""The question what becomes of answers that are being written when something else has to wait for them. Owns nothing
but the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_on_top
from kvchat.ui.key_hints import hints, keys_at

Way = Literal["finish", "stop"]
MOST_NAMES = 6
TINY = 12  # lines of a screen without room for what is not needed
AROUND = 8  # lines that are not the list's: four of text, two of them in two lines each where it is narrow, the border


@dataclass(frozen=True, slots=True)
class Purpose:
    """What waits for the answers. `finish`, `stop` and `leave` say what the three choices do, `waiting` stands before
    the answers that are waited for, and `left` says what leaving it does then. `leaves`: it is the end of the app."""

    finish: str
    stop: str
    leave: str
    waiting: str
    left: str
    leaves: bool = False


QUITTING = Purpose("finish them and quit", "stop them and quit", "stay", "quits after", "stays", leaves=True)
APPLYING = Purpose("finish them first", "stop them and apply", "leave it", "applied after", "leaves it")


class AnswersRunning(ModalScreen[Way | None]):
    """Enter or f: they are finished. s: they are stopped. Escape: nothing happens."""

    DEFAULT_CSS = """
    AnswersRunning {
        align: center middle; background: $background 60%;
        & > #box {
            width: auto; max-width: 100%; height: auto; max-height: 100%; padding: 0 2;
            background: $surface; border: round $warning;
        }
        & Static { width: auto; max-width: 100%; }
        & #names { text-wrap: nowrap; text-overflow: ellipsis; margin: 0 0 0 2; }
        & #kept, & #keys { color: $meta; }
        & #keys { margin: 1 0 0 0; }
        &.-tiny #kept { display: none; }
        &.-tiny #keys { margin: 0; }
        &.-tiny > #box { border: none; padding: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,f", "end('finish')", "Finish the answers first", show=False, id="answers.finish"),
        Binding("s", "end('stop')", "Stop the answers", show=False, id="answers.stop"),
        Binding("escape,n,ctrl+c", "end(None)", "Leave it", show=False, id="answers.leave"),
    ]

    def __init__(self, purpose: Purpose, names: Sequence[str]) -> None:
        """`names`: the chats that are being answered, with how far they are."""
        super().__init__()
        self.purpose = purpose
        self._names = names
        self._list = Static("", id="names", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static("Still being answered:", markup=False)
            yield self._list
            yield Static("What there is of a stopped answer is kept: /continue goes on.", id="kept", markup=False)
            choices = {"finish": self.purpose.finish, "stop": self.purpose.stop, "leave": self.purpose.leave}
            row = "  ".join(f"{{answers.{name}}} {words}" for name, words in choices.items())
            yield Static(hints(row, keys_at(self)), id="keys", markup=False)

    def on_resize(self) -> None:
        """Another height has room for more or fewer of them."""
        self.tell(self._names)

    def tell(self, names: Sequence[str]) -> None:
        """How far they are now."""
        self._names = names
        room = max(1, min(MOST_NAMES, self.app.size.height - AROUND))
        shown = list(names if len(names) <= room else names[: room - 1])
        if len(names) > room:
            shown.append(f"and {len(names) - len(shown)} more" if shown else f"{len(names)} chats")
        self._list.update("\n".join(map(display, shown)))

    def end(self, way: Way | None) -> None:
        """End with the answer, once."""
        if self.is_attached and is_on_top(self):
            self.dismiss(way)

    def action_end(self, way: Way | None) -> None:
        """The same by a key."""
        self.end(way)

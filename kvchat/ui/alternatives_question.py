"""The question what becomes of the other answers when one is kept while they are still being written. Owns nothing but
the answer.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from kvchat.ui.dialogs import Question
from kvchat.ui.inline_keys import is_on_top
from kvchat.ui.key_hints import hints, keys_at

Others = Literal["go on", "stop"]


class OthersRunning(Question[Others | None]):
    """Enter or g: they go on. s: they are stopped. Escape: nothing is kept yet."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,g", "end('go on')", "The others go on", show=False, id="others.go-on"),
        Binding("s", "end('stop')", "Stop the others", show=False, id="others.stop"),
        Binding("escape,n,ctrl+c", "end(None)", "Leave it", show=False, id="others.leave"),
    ]

    def __init__(self, count: int) -> None:
        """`count` others are being written."""
        super().__init__()
        self._count = count

    def compose(self) -> ComposeResult:
        one = self._count == 1
        with Vertical(id="box"):
            said = "The other answer is" if one else f"{self._count} other answers are"
            yield Static(f"{said} still being written.", markup=False)
            yield Static("Whatever becomes of them, they stay in the chat beside this one.", markup=False)
            it, goes = ("it", "it goes on") if one else ("them", "they go on")
            row = f"{{others.go-on}} {goes}  {{others.stop}} stop {it}  {{others.leave}} back"
            yield Static(hints(row, keys_at(self)), id="keys", markup=False)

    def action_end(self, way: Others | None) -> None:
        """End with the answer, once."""
        if self.is_attached and is_on_top(self):
            self.dismiss(way)

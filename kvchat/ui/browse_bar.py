"""The row that has the keyboard while messages are browsed. Owns its keys; must not know messages.

It stands in the place of the line below the prompt, so that nothing moves.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from kvchat.ui.inline_keys import run_bound

HINTS = (
    "j k block  J K message  y Y copy  ⏎ thoughts  e edit  r retry  c continue  [ ] versions  d delete  u undo  esc",
    "j k J K move  y Y copy  ⏎ thoughts  e edit  r retry  c go on  [ ] versions  d u  esc",
    "jk JK  y Y copy  ⏎ fold  e r c [] d u  esc back",
    "jk y e r c [] d u  esc back",
)
_KEYS = {
    "j,down": "next",
    "k,up": "previous",
    "J": "next_message",
    "K": "previous_message",
    "g,home": "first",
    "G,end": "last",
    "y": "copy",
    "Y": "copy_all",
    "enter,space": "fold",
    "ctrl+t": "fold_all",
    "e": "edit",
    "r": "retry",
    "c": "continue",
    "left_square_bracket": "older",
    "right_square_bracket": "newer",
    "d": "delete",
    "u": "undo",
    "i,escape,ctrl+o": "leave",
}


class BrowseBar(Static, can_focus=True):
    """Says which keys there are, and which was pressed."""

    DEFAULT_CSS = """
    BrowseBar { height: 1; padding: 0 3; color: $warning; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys, f"want('{what}')", what, show=False, id=f"browse.{what}") for keys, what in _KEYS.items()
    ]

    class Wanted(Message):
        """The person wants this to be done with the message that is marked."""

        def __init__(self, what: str) -> None:
            self.what = what
            super().__init__()

    class Lost(Message):
        """The keyboard went elsewhere."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)

    def action_want(self, what: str) -> None:
        """Hand it on."""
        self.post_message(self.Wanted(what))

    async def on_key(self, event: events.Key) -> None:
        """Keys in the order in which they were typed."""
        await run_bound(self, event)

    def on_resize(self) -> None:
        """The longest hints that fit."""
        width = self.content_size.width
        self.update(next((hints for hints in HINTS if len(hints) <= width), HINTS[-1][:width]))

    def on_blur(self) -> None:
        """Whoever marks the message wants to know."""
        self.post_message(self.Lost())

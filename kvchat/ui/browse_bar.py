"""The row that has the keyboard while messages are browsed. Owns its keys; must not know messages.

It stands in the place of the line below the prompt, so that nothing moves.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from kvchat.ui.inline_keys import run_bound
from kvchat.ui.key_hints import hints, keys_at

_MOVES = "{browse.next}{browse.previous}"
_LONG_MOVES = "{browse.next_message}{browse.previous_message}"
_COPY = "{browse.copy} {browse.copy_all} copy"
_VERSIONS = "{browse.older} {browse.newer} versions"
_BACK = "{browse.leave} back"
HINTS = (
    f"{{browse.next}} {{browse.previous}} block  {{browse.next_message}} {{browse.previous_message}} message  {_COPY}  "
    "{browse.fold} thoughts  {browse.edit} edit  {browse.retry} retry  {browse.continue} go on  "
    f"{{browse.pin}} pin  {_VERSIONS}  {{browse.delete}} delete  {{browse.undo}} undo  {{browse.leave}}",
    f"{_MOVES} {_LONG_MOVES} move  {_COPY}  {{browse.fold}} thoughts  {{browse.edit}} edit  {{browse.retry}} retry  "
    f"{{browse.continue}} go on  {_VERSIONS}  {{browse.delete}} {{browse.undo}}  {{browse.leave}}",
    f"{_MOVES} {_LONG_MOVES}  {_COPY}  {{browse.fold}} fold  {{browse.edit}} edit  {{browse.retry}} retry  "
    f"{{browse.continue}} go on  {{browse.older}} {{browse.newer}}  {{browse.delete}} {{browse.undo}}  {_BACK}",
    f"{_MOVES} {_LONG_MOVES}  {_COPY}  {{browse.edit}} edit  {{browse.retry}} retry  {_BACK}",
    f"{_MOVES}  {_COPY}  {{browse.edit}} edit  {{browse.retry}} retry  {_BACK}",
    f"{_MOVES}  {{browse.copy}} copy  {_BACK}",
    _BACK,
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
    "p": "pin",
    "left_square_bracket": "older",
    "right_square_bracket": "newer",
    "d": "delete",
    "u": "undo",
    "escape,i,ctrl+o": "leave",
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
        width, keys = self.content_size.width, keys_at(self)
        rows = [hints(template, keys) for template in HINTS]
        self.update(next((row for row in rows if cell_len(row) <= width), rows[-1][:width]))

    def on_blur(self) -> None:
        """Whoever marks the message wants to know."""
        self.post_message(self.Lost())

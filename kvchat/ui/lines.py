"""Single lines around the prompt: what waits to be sent, what a send would cost. Owns their text; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from kvchat.ui.display import display_line
from kvchat.ui.key_hints import hints, keys_at
from kvchat.ui.meters import shortened

LEAST_OF_CHIP = 24  # cells of a text that are wanted before what is told behind it
# The first that fits; nothing that one needs is only in the longer ones.
HINTS = (
    "{prompt.send} send  {prompt.new-line} new line  {chat.palette} commands  {chat.list|chat.palette} chats  "
    "{chat.browse|chat.palette} browse  {chat.settings|chat.palette} model  {chat.inspect|chat.palette} cache  "
    "{app.help|chat.palette} help",
    "{prompt.send} send  {chat.palette} commands  {chat.list|chat.palette} chats  {chat.browse|chat.palette} browse  "
    "{chat.settings|chat.palette} model  {app.help|chat.palette} help",
    "{prompt.send} send  {chat.palette} commands  {app.help} help",
    "{app.help|chat.palette} help",
)
BUSY_HINTS = (
    "{chat.stop|chat.interrupt} stop  {chat.page-up} scroll  {prompt.send} send after it",
    "{chat.stop|chat.interrupt} stop",
)


class HintLine(Static):
    """One dim line below the prompt: what is said, or which keys there are."""

    DEFAULT_CSS = "HintLine { height: 1; padding: 0 3; color: $meta; background: $background; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._text = ""
        self._keys: tuple[str, ...] = HINTS

    def work(self, busy: bool) -> None:
        """Other keys count while an answer is written."""
        keys = BUSY_HINTS if busy else HINTS
        if keys is not self._keys:
            self._keys = keys
            self._draw()

    def say(self, text: str) -> None:
        """Show this; "" for the keys."""
        text = display_line(text)
        if text != self._text:
            self._text = text
            self._draw()

    def on_resize(self) -> None:
        """Another width shows more or less of it."""
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        self.update(Content(shortened(self._text, width) if self._text else self._told(width)))

    def _told(self, width: int) -> str:
        rows = [hints(template, keys_at(self)) for template in self._keys]
        return next((row for row in rows if cell_len(row) <= width), "")


class ChipLine(Static):
    """One line above the prompt: a message that waits, or one that is being edited. Hidden when empty."""

    DEFAULT_CSS = """
    ChipLine { height: 1; padding: 0 3; color: $warning; background: $background; display: none; }
    ChipLine.-said { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._head = self._text = ""
        self._tails: Sequence[str] = ()

    def say(self, head: str, text: str, tails: Sequence[str]) -> None:
        """`head: text · tails`. Where there is no room, the text is shortened, and of the tails the last ones stay."""
        self._head, self._text, self._tails = head, display_line(text), tails
        self.add_class("-said")
        self._draw()

    def clear(self) -> None:
        """Nothing waits."""
        self.remove_class("-said")

    def on_resize(self) -> None:
        """Another width shows more or less of the text."""
        self._draw()

    def _draw(self) -> None:
        free = self.content_size.width - cell_len(self._head) - 2
        wanted = min(cell_len(self._text), LEAST_OF_CHIP)
        tails = (" · " + ", ".join(self._tails[first:]) for first in range(len(self._tails)))
        tail = next((tail for tail in tails if cell_len(tail) + wanted <= free), "")
        text = f"{self._head}: {shortened(self._text, max(1, free - cell_len(tail)))}"
        self.update(Content.assemble(text, Content.styled(tail, "$meta")))

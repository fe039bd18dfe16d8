"""Single lines around the prompt: what waits to be sent, what a send would cost. Owns their text; decides nothing."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widgets import Static

from kvchat.ui.display import display_line


class HintLine(Static):
    """One dim line below the prompt. It keeps its row when it has nothing to say, so that nothing moves."""

    DEFAULT_CSS = "HintLine { height: 1; padding: 0 3; color: $meta; background: $background; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._text = ""

    def say(self, text: str) -> None:
        """Show this; "" for nothing."""
        text = display_line(text)
        if text != self._text:
            self._text = text
            self._draw()

    def on_resize(self) -> None:
        """Another width shows more or less of it."""
        self._draw()

    def _draw(self) -> None:
        self.update(Content(shortened(self._text, self.content_size.width)))


class ChipLine(Static):
    """One line above the prompt: a message that waits, or one that is being edited. Hidden when empty."""

    DEFAULT_CSS = """
    ChipLine { height: 1; padding: 0 3; color: $warning; background: $background; display: none; }
    ChipLine.-said { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._head = self._text = self._tail = ""

    def say(self, head: str, text: str, tail: str) -> None:
        """`head: text · tail`, of which the text is shortened where there is no room."""
        self._head, self._text, self._tail = head, display_line(text), tail
        self.add_class("-said")
        self._draw()

    def clear(self) -> None:
        """Nothing waits."""
        self.remove_class("-said")

    def on_resize(self) -> None:
        """Another width shows more or less of the text."""
        self._draw()

    def _draw(self) -> None:
        room = self.content_size.width - cell_len(self._head) - cell_len(self._tail) - 5
        text = f"{self._head}: {shortened(self._text, max(8, room))}"
        self.update(Content.assemble(text, Content.styled(f" · {self._tail}", "$meta")))


def shortened(text: str, cells: int) -> str:
    """The text, or its beginning and three dots."""
    return text if cell_len(text) <= cells else set_cell_size(text, max(0, cells - 1)).rstrip() + "…"

"""The command palette: everything that can be done, by name. Owns what is found for which letters; must not do any of
it: it ends with the entry, whose `run` is called by whoever opened it.

Names come from chats and files: they are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content, Span

from kvchat.ui.display import display_line
from kvchat.ui.fuzzy import rank
from kvchat.ui.listing import MOST_ROWS, Listing
from kvchat.ui.meters import shortened


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to do. `kind` groups and precedes the name, `note` says more, `keys` are those that do the same. `put`
    is what Tab writes into the prompt instead. `look` shows it beforehand. `id` tells apart what has one name,
    `first` is listed before anything is typed."""

    kind: str
    name: str
    run: Callable[[], object] = field(compare=False)
    note: str = ""
    keys: str = ""
    put: str = ""
    look: Callable[[], object] | None = field(default=None, compare=False)
    id: str = ""
    first: bool = True

    @property
    def title(self) -> str:
        return display_line(f"{self.kind}: {self.name}" if self.kind else self.name)

    @property
    def text(self) -> str:
        """What is looked through."""
        return f"{self.title}  {display_line(self.note)}".rstrip()


class Palette(Listing[Entry]):
    """Ends with the entry to run. `unlook` takes back what an entry showed beforehand."""

    NAME = "Commands"
    PLACEHOLDER = "an action, a command, a chat, a model, a theme"
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("⏎ do it", "choose"),
        ("{palette.put} write it", "put"),
        ("{list.cancel} back", "cancel"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "put", "Write the command into the prompt", show=False, id="palette.put"),
    ]

    def __init__(
        self,
        entries: Sequence[Entry],
        unlook: Callable[[], object],
        put: Callable[[str], object],
        title: str = "",
    ) -> None:
        super().__init__()
        self.NAME = title or self.NAME
        self._entries = list(entries)
        self._unlook = unlook
        self._put = put
        self._marks: dict[Entry, tuple[int, ...]] = {}

    def add(self, entries: Sequence[Entry]) -> None:
        """More, which took a while to find."""
        if not self._over:
            self._entries += entries
            self.fill()

    def found(self, query: str) -> Sequence[Entry]:
        """The best matches."""
        self._marks = {}
        if not query:
            return [entry for entry in self._entries if entry.first]
        matches = rank(query, [entry.text for entry in self._entries], MOST_ROWS)
        self._marks = {self._entries[match.index]: match.marks for match in matches}
        return list(self._marks)

    def row(self, item: Entry, width: int) -> Content:
        """Name and note, the keys at the right edge."""
        title, text = item.title, item.text
        room = width - cell_len(item.keys) - (2 if item.keys else 0)
        shown = shortened(text, max(8, room))
        kept = len(shown) - shown.endswith("…")
        spans = [Span(len(title), len(shown), "$meta")] if len(shown) > len(title) else []
        spans += [Span(mark, mark + 1, "bold underline") for mark in self._marks.get(item, ()) if mark < kept]
        gap = " " * max(0, width - cell_len(shown) - cell_len(item.keys))
        keys = Content.styled(item.keys, "$accent") if item.keys else Content("")
        return Content.assemble(Content(shown, spans), gap if item.keys else "", keys)

    def looked_at(self, item: Entry | None) -> None:
        """Show it beforehand, where that makes sense."""
        if item is not None and item.look is not None:
            item.look()
        else:
            self._unlook()

    def action_put(self) -> None:
        """Write the command instead of carrying it out."""
        item = self.marked
        if item is not None and item.put:
            self.end(None)
            self._put(item.put)

    def end(self, item: Entry | None) -> None:
        """What was shown beforehand goes."""
        self._unlook()
        super().end(item)

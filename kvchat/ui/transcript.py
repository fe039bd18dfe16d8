"""The conversation as one line-API widget. Owns what is shown and where it is scrolled to; must not know chats.

Heights are estimated until an entry comes within a page of the view, so a chat of thousands of messages opens as fast
as a short one. `append` costs the new text and the last row. Follow is a sticky bottom: any upward scroll releases
it, coming back to the end takes it up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Offset, Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kvchat.ui.entry import NO_THOUGHT, Entry, Item, NoteKind, ThoughtCost
from kvchat.ui.painter import COMPONENTS, CSS, PILL, Painter
from kvchat.ui.positions import Positions
from kvchat.ui.selecting import highlight, selected_source


class Transcript(ScrollView, can_focus=False):
    """Shows entries. Text comes in by methods, nothing goes out but the selection."""

    DEFAULT_CSS = (
        "Transcript { height: 1fr; overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1;" + CSS + "}"
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS

    def __init__(self, welcome: Sequence[str] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follow = True
        self.hold: str | None = None  # the entry at whose beginning following ends
        self.welcome = welcome  # stands where nothing is shown yet
        self._items: list[Item] = []
        self._by_id: dict[str, int] = {}
        self._positions = Positions()
        self._painter = Painter(self._component_style)
        self._height = 0
        self._unseen = False
        self._notes = 0
        self._unfolded = False  # whether reasoning is shown that was not folded by hand
        self._marked: str | None = None
        self._marked_block = 0

    # ------------------------------------------------------------------ what is shown

    def show(self, entries: Iterable[Entry]) -> None:
        """Show these entries instead of what was shown, from their end."""
        self._items = [Item(entry, unfolded=self._unfolded) for entry in entries]
        self._by_id = {item.id: index for index, item in enumerate(self._items)}
        self.follow, self.hold = True, None
        self.screen.clear_selection()
        self._place()

    def add(self, entry: Entry) -> None:
        """One more entry at the end."""
        item = Item(entry, unfolded=self._unfolded)
        self._by_id[item.id] = len(self._items)
        self._items.append(item)
        if self._painter.width:
            self._positions.add(item.measure(self._painter.text_width))
            self._mark_unseen()
            self._place_view()

    def append(self, entry_id: str, text: str, thought: ThoughtCost = NO_THOUGHT) -> None:
        """More text at the end of an entry, in which there is so much reasoning by then."""
        index = self._by_id[entry_id]
        self._grown(index, self._items[index].append(text, thought))

    def finish(self, entry_id: str, footer: str, thought: ThoughtCost = NO_THOUGHT) -> None:
        """No more text comes to this entry; `footer` says how it went."""
        index = self._by_id[entry_id]
        self._items[index].finish(footer, thought)
        self._grown(index, 0)

    def rename(self, entry_id: str, heading: str | None, footer: str | None = None) -> None:
        """Another heading or footer of an entry; None: as it is."""
        index = self._by_id[entry_id]
        self._items[index].rename(heading, footer)
        self._grown(index, 0)

    def note(self, text: str, kind: NoteKind = "info") -> None:
        """A sentence of the program's own, at the end. It is not part of the chat."""
        self._notes += 1
        self.add(Entry(f"note-{self._notes}", kind, text))

    def to_end(self) -> None:
        """Scroll to the end and follow what comes."""
        self.follow, self.hold = True, None
        self._place_view()

    def mark(self, entry_id: str | None, block: int = 0) -> None:
        """Mark one block of an entry, and no other, and bring it into view. -1 is the last one."""
        item = self._measured(entry_id or "")
        self._marked = entry_id
        self._marked_block = 0 if item is None else min(block % len(item.blocks), len(item.blocks) - 1)
        self.refresh()
        if item is not None:
            self._reveal(self._by_id[item.id], *item.block_lines(self._marked_block))

    @property
    def marked(self) -> tuple[Item, int] | None:
        """The entry and the block of it that are marked. An entry that grew may have other blocks than it had."""
        item = self._measured(self._marked or "")
        return None if item is None else (item, min(self._marked_block, len(item.blocks) - 1))

    def fold(self, entry_id: str, unfolded: bool) -> None:
        """Show all of an entry's reasoning, or one line of it."""
        index = self._by_id[entry_id]
        self._items[index].fold(unfolded)
        self._grown(index, 0)

    def fold_all(self) -> None:
        """Show the reasoning of all entries, or fold it again."""
        self._unfolded = not self._unfolded
        for item in self._items:
            item.fold(self._unfolded)
        self._place()

    def reveal(self, entry_id: str) -> None:
        """Bring an entry into view: its end, or its beginning where it is too long."""
        if (item := self._measured(entry_id)) is not None:
            self._reveal(self._by_id[entry_id], 0, item.height - 1)

    def _measured(self, entry_id: str) -> Item | None:
        """An entry whose height is exact; None: there is none."""
        index = self._by_id.get(entry_id)
        if index is None or not self._painter.width:
            return None
        self._measure(index)
        self.virtual_size = Size(self._painter.width, self._positions.total)
        return self._items[index]

    def _reveal(self, index: int, first: int, last: int) -> None:
        """Bring these lines of an entry into view."""
        top, bottom = self._positions.top(index) + first, self._positions.top(index) + last + 1
        line = self.scroll_offset.y
        if bottom - top > self._height or top < line:
            self.scroll_to(y=top, animate=False, immediate=True)
        elif bottom > line + self._height:
            self.scroll_to(y=bottom - self._height, animate=False, immediate=True)

    # ------------------------------------------------------------------ where it is

    def _grown(self, index: int, first_line: int) -> None:
        """Entry `index` changed from its line `first_line` on."""
        width = self._painter.width
        if not width:
            return
        total = self._positions.total
        if self._positions.exact(index):
            self._positions.set(index, self._items[index].measure(self._painter.text_width))
        self._mark_unseen()
        if self._positions.total != total:
            self._place_view()
            return
        top = self._positions.top(index) + first_line - self.scroll_offset.y
        changed = Region(0, top, width, self._positions.top(index + 1) - self._positions.top(index) - first_line)
        if visible := changed.intersection(Region(0, 0, width, self._height)):
            self.refresh(visible)

    def _mark_unseen(self) -> None:
        """Something came below the view: show the pill."""
        if not self.follow and not self._unseen:
            self._unseen = True
            self.refresh()

    def _place(self) -> None:
        """Lay everything out anew: other entries or another width. Keeps the entry at the top of the view there."""
        if not self._painter.width:
            return
        anchor = self._anchor()
        self._positions.reset([item.estimate(self._painter.text_width) for item in self._items])
        if anchor is not None and not self.follow:
            index, part = anchor
            height = self._measure(index) or self._items[index].height
            self.virtual_size = Size(self._painter.width, self._positions.total)
            self._jump(self._positions.top(index) + int(part * height))
        self._place_view()

    def _place_view(self) -> None:
        """Measure what is in view, then put the view where it belongs."""
        if self.follow:
            self._measure_end()
        self.virtual_size = Size(self._painter.width, self._positions.total)
        if self.follow:
            self._unseen = False
            self._jump(self._followed())
        else:
            self._measure_view()
        self.refresh()

    def _followed(self) -> int:
        """The line at the top of the view that follows: such that the end is seen, or the beginning of what is held."""
        index, end = self._by_id.get(self.hold or ""), int(self.max_scroll_y)
        if index is None or self._positions.top(index) >= end:
            return end
        self.follow, self.hold = False, None
        return self._positions.top(index)

    def _anchor(self) -> tuple[int, float] | None:
        """The entry at the top of the view, and how much of it is above."""
        if not len(self._positions) or len(self._positions) > len(self._items):
            return None
        line = self.scroll_offset.y
        index = self._positions.at(line)
        top, bottom = self._positions.top(index), self._positions.top(index + 1)
        return index, (line - top) / max(1, bottom - top)

    def _measure(self, index: int) -> int:
        """Make the height of one entry exact. Returns by how much the entries after it moved."""
        if self._positions.exact(index):
            return 0
        return self._positions.set(index, self._items[index].measure(self._painter.text_width))

    def _measure_end(self) -> None:
        index = len(self._items) - 1
        lines = 2 * self._height
        while index >= 0 and lines > 0:
            self._measure(index)
            lines -= self._items[index].height
            index -= 1

    def _measure_view(self) -> None:
        """Make heights within a page of the view exact without moving what is in it."""
        if not self._items or not self._painter.width:
            return
        line, moved, changed = self.scroll_offset.y, 0, False
        last = self._positions.at(line + 2 * self._height)
        first = self._positions.at(max(0, line - self._height))
        for index in range(last, first - 1, -1):
            if self._positions.exact(index):
                continue
            above = self._positions.top(index) < line
            delta = self._measure(index)
            changed = True
            moved += delta if above else 0
        if changed:
            self.virtual_size = Size(self._painter.width, self._positions.total)
            if moved:
                self._jump(line + moved)
            self.refresh()

    def _jump(self, line: int) -> None:
        """Set the scroll position without the watcher, which would take it for the person's scrolling."""
        line = max(0, min(line, self.max_scroll_y))
        self.set_reactive(Transcript.scroll_y, line)
        self.set_reactive(Transcript.scroll_target_y, line)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = line

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._measure_view()
        self.follow = self.is_vertical_scroll_end
        if self.follow:
            self._unseen = False

    def on_resize(self) -> None:
        """Wrap again when the width changed; keep the end in view while following."""
        self._height = self.size.height
        if self.size.width != self._painter.width:
            self._repaint(self.size.width)
            self._place()
        else:
            self._place_view()

    def on_click(self, event: events.Click) -> None:
        """The pill is a button."""
        if self._unseen and event.y == self._height - 1 and event.x >= self._painter.width - len(PILL) - 1:
            self.to_end()

    # ------------------------------------------------------------------ drawing

    def notify_style_update(self) -> None:
        """Another theme: strips hold colours, so they are drawn again."""
        super().notify_style_update()
        if self._painter.width:
            self._repaint(self._painter.width)

    def _repaint(self, width: int) -> None:
        self._painter.reset(width, self.app.get_line_filters(), self.background_colors[1])

    def _component_style(self, name: str) -> Style:
        return self.get_component_rich_style(name)

    def _strip(self, line: int) -> Strip:
        """Line `line` of the whole transcript."""
        if not self._items:
            text = self.welcome[line] if line < len(self.welcome) else ""
            return self._painter.plain(text, "meta")
        if not 0 <= line < self._positions.total:
            return self._painter.plain("", "text")
        index = self._positions.at(line)
        self._measure(index)
        item = self._items[index]
        number = line - self._positions.top(index)
        return self._painter.strip(item.kind, item.line(number), self._is_marked(item, number))

    def _is_marked(self, item: Item, number: int) -> bool:
        if item.id != self._marked:
            return False
        first, last = item.block_lines(min(self._marked_block, len(item.blocks) - 1))
        return first <= number <= last

    def render_lines(self, crop: Region) -> list[Strip]:
        """Strips for a part of the view, straight from the cache: no layout, no boxes."""
        top = self.scroll_offset.y
        selection = self.text_selection
        style = self.screen.get_component_rich_style("screen--selection") if selection else Style.null()
        strips: list[Strip] = []
        for y in crop.line_range:
            strip = self._strip(top + y)
            if selection and (span := selection.get_span(top + y)) is not None:
                strip = highlight(strip, span, self._painter.indent, style)
            if self._unseen and y == self._height - 1:
                strip = self._painter.with_pill(strip)
            strips.append(strip.crop(*crop.column_span))
        return strips

    def render_line(self, y: int) -> Strip:
        """Line `y` of the view. The compositor asks on every mouse event for the text offsets in it."""
        line = self.scroll_offset.y + y
        return self._strip(line).apply_offsets(0, line)

    def render(self) -> Text:
        """Never drawn: `render_lines` is. The base class wants an answer that depends on nothing."""
        return Text()

    # ------------------------------------------------------------------ selection

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002
        """Draw the other selection."""
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The source that is selected, as it was written: without bars, headings and the breaks of wrapping."""
        if not self._items:
            return None
        start = selection.start or Offset(0, 0)
        end = selection.end or Offset(0, self._positions.total)
        text = selected_source(self._items, self._positions, start, end, self._painter.indent)
        return (text, "\n") if text.strip() else None

"""The list of chats and its filter. Owns what is listed and highlighted; must not read the store or change a chat.

The keyboard comes to the filter: whatever is typed is looked for. Down from the empty filter, or Tab, leads into the
list, where letters act. So no letter that acts can be the beginning of what somebody looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.chats.types import Chat
from kvchat.ui.grouping import grouped
from kvchat.ui.inline_keys import LineInput
from kvchat.ui.key_hints import hints, key_text, keys_at
from kvchat.ui.options import Options
from kvchat.ui.sidebar_rows import ChatState, head, row

_USUAL = 30  # cells, as long as the real width is not known
_BESIDE = 2  # cells on the right of a row: one stays free, one is for the scroll bar
NO_STATES: Mapping[str, ChatState] = MappingProxyType({})
HINTS_OF_FILTER = ("type to find  ⏎ opens", "↓ {filter.list} list  {filter.forget} back")
HINTS_OF_LIST = (
    "{chats.rename} rename  {chats.pin} pin  {chats.export} export",
    "{chats.duplicate} copy  {chats.delete} delete  {chats.undo} undo",
    "{chats.stop} stop  {chats.filter} find  {chats.leave} back",
)


@dataclass(frozen=True, slots=True)
class Found:
    """What was looked for, and where: the piece of text by the chat in which it stands."""

    query: str
    snippets: Mapping[str, str] = field(default_factory=dict)


class ChatList(Options):
    """Titles with their age, under the heads of their groups, which the cursor passes over. Letters act."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back to the prompt", show=False, id="chats.leave"),
        Binding("slash,shift+tab", "filter", "Find", show=False, id="chats.filter"),
        Binding("j", "cursor_down", "Next", show=False, id="chats.down"),
        Binding("k", "cursor_up", "Previous", show=False, id="chats.up"),
        Binding("r", "want('rename')", "Rename", show=False, id="chats.rename"),
        Binding("p", "want('pin')", "Pin, unpin", show=False, id="chats.pin"),
        Binding("x", "want('export')", "Export", show=False, id="chats.export"),
        Binding("d,delete", "want('trash')", "Delete", show=False, id="chats.delete"),
        Binding("u", "want('undo')", "Undo", show=False, id="chats.undo"),
        Binding("f", "want('duplicate')", "Duplicate", show=False, id="chats.duplicate"),
        Binding("s", "want('stop')", "Stop the answer", show=False, id="chats.stop"),
    ]

    class Filtering(Message):
        """The person wants to look for something."""

    def action_leave(self) -> None:
        """Give the keyboard back."""
        self.post_message(Sidebar.Left())

    def action_filter(self) -> None:
        """Go to the filter."""
        self.post_message(self.Filtering())

    def action_want(self, what: str) -> None:
        """Ask for something to be done with the highlighted chat."""
        option = self.highlighted_option
        if what == "undo" or (option is not None and option.id is not None):
            self.post_message(Sidebar.Wanted(what, option.id if option and option.id else ""))

    def scroll_to_highlight(self, top: bool = False) -> None:
        """Together with the head above it."""
        super().scroll_to_highlight(top)
        if self.highlighted == 1 and self.options[0].disabled:
            self.scroll_to(y=0, animate=False, immediate=True)


class Filter(LineInput):
    """What to look for in titles and messages; Enter opens what is highlighted, Escape forgets it, then leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "forget", "Forget the filter", show=False, id="filter.forget"),
        Binding("tab", "list", "To the list", show=False, id="filter.list"),
    ]

    class Listing(Message):
        """The person wants to do something with a chat of the list."""

    def action_forget(self) -> None:
        """Empty, or back to the prompt."""
        if self.value:
            self.value = ""
        else:
            self.post_message(Sidebar.Left())

    def action_list(self) -> None:
        """To the list."""
        self.post_message(self.Listing())

    async def _on_key(self, event: events.Key) -> None:
        if event.character == "/" and not self.value:  # it asks for what is here already
            event.stop()
            event.prevent_default()


class Sidebar(Vertical):
    """Chats by their age; a bar marks the one that is open, a glyph what goes on in one or has ended unseen."""

    DEFAULT_CSS = """
    Sidebar {
        width: 100%; height: 1fr; background: $surface;
        & > Filter {
            height: 1; border: none; padding: 0 2; background: $surface; margin: 0 0 1 0;
            &:focus { border: none; background: $panel; }
            & > .input--placeholder { color: $meta; }
        }
        & > #keys { height: auto; padding: 0 2; color: $meta; display: none; }
        &.-keyboard > #keys { display: block; }
        & > ChatList {
            height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1;
            text-wrap: nowrap; text-overflow: clip;
            &:focus { border: none; background-tint: $foreground 0%; }
            & > .option-list--option { padding: 0 1 0 0; color: $foreground; }
            & > .option-list--option-disabled { background: $surface; color: $meta; }
            & > .option-list--option-highlighted { background: $surface; color: $foreground; }
            &:focus > .option-list--option-highlighted { background: $panel; color: $foreground; }
        }
        &.-keyboard > ChatList > .option-list--option-highlighted { background: $panel; }
    }
    """

    class Chosen(Message):
        """The person wants to open this chat."""

        def __init__(self, chat_id: str) -> None:
            self.chat_id = chat_id
            super().__init__()

    class Left(Message):
        """The person wants to go on writing."""

    class Searched(Message):
        """The person looks for `query`; "" for nothing any more."""

        def __init__(self, query: str) -> None:
            self.query = query
            super().__init__()

    class Wanted(Message):
        """The person wants "rename", "pin", "export", "trash", "duplicate", "stop" for this chat, or "undo"."""

        def __init__(self, what: str, chat_id: str) -> None:
            self.what = what
            self.chat_id = chat_id
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listing = ChatList(id="chats", markup=False)
        self._filter = Filter(placeholder="find…", id="filter")
        self._keys = Static("", id="keys", markup=False)
        self._chats: Sequence[Chat] = ()
        self._open: str | None = None
        self._query = ""
        self._hurried = False  # Enter was pressed before what was looked for had been found
        self._states = NO_STATES
        self._pale = False
        self._row: Callable[[Chat], Content] = lambda _: Content("")
        self._again: Callable[[], None] = lambda: None  # lists the same for another width

    def compose(self) -> ComposeResult:
        self._filter.placeholder = f"{key_text('chats.filter', keys_at(self))} find…".lstrip()
        yield self._filter
        yield self._listing
        yield self._keys

    def show(
        self,
        chats: Sequence[Chat],
        open_chat: str | None,
        now: float,
        states: Mapping[str, ChatState] = NO_STATES,
        *,
        found: Found | None = None,
    ) -> None:
        """List these chats, in groups if they were not looked for. `states`: what goes on in them, by their ids. What
        is highlighted stays so, if it is still there."""
        found = found or Found("")
        self._states = states
        self._row = partial(self._row_of, open_chat, now, found)
        self._again = lambda: self.show(chats, open_chat, now, self._states, found=found)
        before, kept = self._listing.highlighted, self._highlighted() or open_chat
        groups = [("", list(chats))] if found.query else grouped(chats, now)
        options: list[Option] = []
        for name, members in groups:
            options += [Option(head(name, first=not options), disabled=True)] if name else []
            options += [Option(self._row(chat), id=chat.id) for chat in members]
        self._chats, self._open = chats, open_chat
        self._listing.set_options(options)
        if found.query != self._query and found.query:
            self._listing.action_first()
        elif not self._highlight(kept) and before is not None:
            self._highlight_near(before)
        elif self.has_keyboard and self._listing.highlighted is None:
            self._listing.action_first()
        self._query = found.query
        if self._hurried and not self._is_looking:
            self._hurried = False
            self._listing.action_select()

    @property
    def _is_looking(self) -> bool:
        """Whether the list is not yet that of what stands in the filter."""
        return self._filter.value.strip() != self._query

    def _row_of(self, open_chat: str | None, now: float, found: Found, chat: Chat) -> Content:
        return row(
            chat,
            now,
            (self.size.width or _USUAL) - _BESIDE,
            is_open=chat.id == open_chat,
            state=self._states.get(chat.id),
            pale=self._pale,
            query=found.query,
            snippet=found.snippets.get(chat.id, ""),
        )

    def mark(self, states: Mapping[str, ChatState]) -> None:
        """Bring up to date what goes on in the chats that are listed."""
        self._pale = not self._pale
        before, self._states = self._states, states
        for chat in self._chats:
            state = states.get(chat.id)
            if state != before.get(chat.id) or (state is not None and state.is_moving):
                self._listing.replace_option_prompt(chat.id, self._row(chat))

    def on_resize(self) -> None:
        """Rows are as wide as there is room."""
        self._again()

    def take_keyboard(self) -> None:
        """What is typed is looked for; the open chat is highlighted, else what was, else the first one."""
        if not self._highlight(self._open) and self._listing.highlighted is None:
            self._listing.action_first()
        if self._filter.is_mounted:
            self.screen.set_focus(self._filter)  # now: Widget.focus lets the next key be faster
        else:  # the key came before the list was there
            self.call_after_refresh(self.take_keyboard)

    def _highlighted(self) -> str | None:
        option = self._listing.highlighted_option
        return None if option is None else option.id

    def _highlight(self, chat: str | None) -> bool:
        place = next((place for place, option in enumerate(self._listing.options) if option.id == chat), None)
        if chat is None or place is None:
            return False
        self._listing.highlighted = place
        return True

    def _highlight_near(self, place: int) -> None:
        """What took the place of a chat that went, else the one before."""
        places = [place for place, option in enumerate(self._listing.options) if not option.disabled]
        after = next((each for each in places if each >= place), None)
        self._listing.highlighted = after if after is not None else next(reversed(places), None)

    def clear_filter(self) -> None:
        """Nothing is looked for any more."""
        self._filter.value = ""

    @property
    def has_keyboard(self) -> bool:
        """Whether the list or its filter has the focus."""
        return self._listing.has_focus or self._filter.has_focus

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The keys are told while they count."""
        self._tell(HINTS_OF_LIST if event.widget is self._listing else HINTS_OF_FILTER)
        self.add_class("-keyboard")

    def _tell(self, lines: Sequence[str]) -> None:
        keys = keys_at(self)
        self._keys.update("\n".join(filter(None, (hints(line, keys) for line in lines))))

    def on_descendant_blur(self) -> None:
        """They do not count any more."""
        self.remove_class("-keyboard")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Chosen(event.option_id))

    def on_chat_list_filtering(self, event: ChatList.Filtering) -> None:
        """Typing goes on in the filter."""
        event.stop()
        self._filter.focus()

    def on_filter_listing(self, event: Filter.Listing) -> None:
        """Letters act from now on."""
        event.stop()
        self._listing.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as one types."""
        event.stop()
        self._hurried = False
        self.post_message(self.Searched(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter opens what is highlighted, once it is what was looked for."""
        event.stop()
        self._hurried = self._is_looking
        if not self._hurried:
            self._listing.action_select()

    def on_line_input_stepped(self, event: LineInput.Stepped) -> None:
        """Up and Down in the filter move in the list; where nothing is looked for, the keyboard goes there."""
        event.stop()
        if not self._filter.value:
            self._listing.focus()
        step = self._listing.action_cursor_down if event.step > 0 else self._listing.action_cursor_up
        before = self._listing.highlighted
        for _ in range(abs(event.step)):
            step()
            if self._wrapped(before, event.step):
                self._listing.highlighted = before
                break
            before = self._listing.highlighted

    def _wrapped(self, before: int | None, step: int) -> bool:
        """Whether a step led from one end of the list to the other."""
        now = self._listing.highlighted
        return before is not None and now is not None and (now - before) * step < 0

"""The list of chats and its filter. Owns what is listed and highlighted; must not read the store or change a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvchat.chats.types import Chat
from kvchat.ui.display import display_line
from kvchat.ui.inline_keys import LineInput
from kvchat.ui.lines import shortened
from kvchat.ui.wording import age

WIDTH = 30
TITLE_CELLS = WIDTH - 8
SNIPPET_CELLS = WIDTH - 4
UNTITLED = "(no title)"
HINTS = "/ find  r rename  f copy\nd delete  u undo  esc"


class ChatList(OptionList):
    """Titles with their age. A letter that is no key begins to filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back to the prompt", show=False, id="chats.leave"),
        Binding("slash", "filter('')", "Find", show=False, id="chats.filter"),
        Binding("j", "cursor_down", "Next", show=False, id="chats.down"),
        Binding("k", "cursor_up", "Previous", show=False, id="chats.up"),
        Binding("r", "want('rename')", "Rename", show=False, id="chats.rename"),
        Binding("d,delete", "want('trash')", "Delete", show=False, id="chats.delete"),
        Binding("u", "want('undo')", "Undo", show=False, id="chats.undo"),
        Binding("f", "want('duplicate')", "Duplicate", show=False, id="chats.duplicate"),
    ]

    class Filtered(Message):
        """The person began to type what to look for."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def action_leave(self) -> None:
        """Give the keyboard back."""
        self.post_message(Sidebar.Left())

    def action_filter(self, text: str) -> None:
        """Go to the filter."""
        self.post_message(self.Filtered(text))

    def action_want(self, what: str) -> None:
        """Ask for something to be done with the highlighted chat."""
        option = self.highlighted_option
        if what == "undo" or (option is not None and option.id is not None):
            self.post_message(Sidebar.Wanted(what, option.id if option and option.id else ""))

    async def on_key(self, event: events.Key) -> None:
        """Letters are looked for."""
        if event.is_printable and event.character and event.key not in self._bindings.key_to_bindings:
            event.stop()
            event.prevent_default()
            self.action_filter(event.character)


class Filter(LineInput):
    """What to look for in titles and messages; Enter opens what is highlighted, Escape forgets it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "forget", "Forget the filter", show=False, id="filter.forget"),
    ]

    def action_forget(self) -> None:
        """Empty, and back to the list."""
        self.value = ""
        self.post_message(Sidebar.Unfiltered())


class Sidebar(Vertical):
    """Chats, the newest first; a bar marks the one that is open, a dot one in which an answer is being written."""

    DEFAULT_CSS = """
    Sidebar {
        width: 100%; height: 1fr; background: $surface;
        & > Filter {
            height: 1; border: none; padding: 0 2; background: $surface; margin: 0 0 1 0;
            &:focus { border: none; background: $panel; }
            & > .input--placeholder { color: $meta; }
        }
        & > #keys { height: 2; padding: 0 2; color: $meta; display: none; }
        &.-keyboard > #keys { display: block; }
        & > ChatList {
            height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; text-wrap: nowrap;
            &:focus { border: none; }
            & > .option-list--option { padding: 0 1 0 0; color: $foreground; }
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

    class Unfiltered(Message):
        """The filter was left."""

    class Wanted(Message):
        """The person wants "rename", "trash", "duplicate" for this chat, or "undo"."""

        def __init__(self, what: str, chat_id: str) -> None:
            self.what = what
            self.chat_id = chat_id
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listing = ChatList(id="chats", markup=False)
        self._filter = Filter(placeholder="/ find…", id="filter")
        self._chats: Sequence[Chat] = ()
        self._open: str | None = None

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._listing
        yield Static(HINTS, id="keys", markup=False)

    def show(
        self,
        chats: Sequence[Chat],
        open_chat: str | None,
        now: float,
        *,
        active: str | None = None,
        snippets: Mapping[str, str] | None = None,
    ) -> None:
        """List these chats. `active` is the one in which an answer is being written, `snippets` say why a chat was
        found. What is highlighted stays so, if it is still there."""
        listing = self._listing
        before = listing.highlighted
        kept = self._chats[before].id if before is not None and before < len(self._chats) else open_chat
        same_place = before is not None and before < len(chats)
        self._chats, self._open = chats, open_chat
        rows = (_row(chat, chat.id == open_chat, chat.id == active, now, snippets or {}) for chat in chats)
        listing.set_options([Option(row, id=chat.id) for row, chat in zip(rows, chats, strict=True)])
        places = {chat.id: index for index, chat in enumerate(chats)}
        if snippets is not None:
            listing.highlighted = 0 if chats else None
        elif kept in places:
            listing.highlighted = places[kept]
        elif same_place:
            listing.highlighted = before

    def focus_list(self) -> None:
        """Give the keyboard to the list, at the open chat."""
        listing = self._listing
        places = {chat.id: index for index, chat in enumerate(self._chats)}
        if self._open in places:
            listing.highlighted = places[self._open]
        listing.focus()

    def clear_filter(self) -> None:
        """Nothing is looked for any more."""
        self._filter.value = ""

    @property
    def has_keyboard(self) -> bool:
        """Whether the list or its filter has the focus."""
        return self._listing.has_focus or self._filter.has_focus

    def title_of(self, chat_id: str) -> str:
        """The title of a listed chat."""
        return next((chat.title for chat in self._chats if chat.id == chat_id), "")

    def on_descendant_focus(self) -> None:
        """The keys are told while they count."""
        self.add_class("-keyboard")

    def on_descendant_blur(self) -> None:
        """They do not count any more."""
        self.remove_class("-keyboard")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Chosen(event.option_id))

    def on_chat_list_filtered(self, event: ChatList.Filtered) -> None:
        """Typing goes on in the filter."""
        event.stop()
        self._filter.focus()
        self._filter.insert_text_at_cursor(event.text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as one types."""
        event.stop()
        self.post_message(self.Searched(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter opens what is highlighted."""
        event.stop()
        self._listing.action_select()

    def on_line_input_stepped(self, event: LineInput.Stepped) -> None:
        """Up and Down in the filter move in the list."""
        event.stop()
        count, highlighted = self._listing.option_count, self._listing.highlighted
        if count:
            self._listing.highlighted = min(max(0, (highlighted or 0) + event.step), count - 1)

    def on_sidebar_unfiltered(self, event: Unfiltered) -> None:
        """Back to the list."""
        event.stop()
        self._listing.focus()


def _row(chat: Chat, is_open: bool, is_active: bool, now: float, snippets: Mapping[str, str]) -> Content:
    title = set_cell_size(shortened(display_line(chat.title) or UNTITLED, TITLE_CELLS), TITLE_CELLS)
    mark = Content.styled("▌", "$accent") if is_open else Content(" ")
    dot = Content.styled("●", "$success") if is_active else Content(" ")
    row = [mark, dot, Content(title), Content.styled(f" {age(now - chat.updated):>3}", "$meta")]
    if snippet := display_line(snippets.get(chat.id, "")):
        row.append(Content.styled(f"\n  {shortened(snippet, SNIPPET_CELLS)}", "$meta"))
    return Content.assemble(*row)

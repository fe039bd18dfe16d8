"""The list of chats. Owns what is listed and highlighted; must not read the store or open anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kvchat.chats.types import Chat
from kvchat.clean import clean_line
from kvchat.ui.wording import age

WIDTH = 30
TITLE_CELLS = WIDTH - 8
UNTITLED = "(no title)"


class ChatList(OptionList):
    """Titles with their age; Enter opens, Escape goes back to the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back to the prompt", show=False, id="chats.leave"),
    ]

    def action_leave(self) -> None:
        """Give the keyboard back."""
        self.post_message(Sidebar.Left())


class Sidebar(Vertical):
    """Chats, the newest first; a mark stands before the one that is open."""

    DEFAULT_CSS = """
    Sidebar {
        width: 30; background: $surface; padding: 1 0 0 0;
        & > #brand { height: 2; padding: 0 2; color: $primary; text-style: bold; }
        & > ChatList {
            height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; text-wrap: nowrap;
            &:focus { border: none; }
            & > .option-list--option { padding: 0 1 0 0; color: $foreground; }
            & > .option-list--option-highlighted { background: $surface; color: $foreground; }
            &:focus > .option-list--option-highlighted { background: $panel; color: $foreground; }
        }
    }
    """

    class Chosen(Message):
        """The person wants to open this chat."""

        def __init__(self, chat_id: str) -> None:
            self.chat_id = chat_id
            super().__init__()

    class Left(Message):
        """The person wants to go on writing."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._listing = ChatList(id="chats", markup=False)
        self._chats: Sequence[Chat] = ()
        self._open: str | None = None

    def compose(self) -> ComposeResult:
        yield Static("kvchat", id="brand", markup=False)
        yield self._listing

    def show(self, chats: Sequence[Chat], open_chat: str | None, now: float) -> None:
        """List these chats. What is highlighted stays so, if it is still there."""
        listing = self._listing
        before = listing.highlighted
        kept = self._chats[before].id if before is not None and before < len(self._chats) else open_chat
        self._chats, self._open = chats, open_chat
        listing.set_options([Option(_row(chat, chat.id == open_chat, now), id=chat.id) for chat in chats])
        places = {chat.id: index for index, chat in enumerate(chats)}
        if kept in places:
            listing.highlighted = places[kept]

    def focus_list(self) -> None:
        """Give the keyboard to the list, at the open chat."""
        listing = self._listing
        places = {chat.id: index for index, chat in enumerate(self._chats)}
        if self._open in places:
            listing.highlighted = places[self._open]
        listing.focus()

    @property
    def has_keyboard(self) -> bool:
        """Whether the list has the focus."""
        return self._listing.has_focus

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Chosen(event.option_id))


def _row(chat: Chat, is_open: bool, now: float) -> Content:
    title = clean_line(chat.title) or UNTITLED
    if cell_len(title) > TITLE_CELLS:
        title = set_cell_size(title, TITLE_CELLS - 1).rstrip() + "…"
    title = set_cell_size(title, TITLE_CELLS)
    mark = Content.styled("▌ ", "$accent") if is_open else Content("  ")
    return Content.assemble(mark, Content(title), Content.styled(f" {age(now - chat.updated):>3}", "$meta"))

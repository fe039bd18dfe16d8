"""Messages one by one: copy, edit, retry, continue, versions, delete. Owns which message is marked.

Must not know keys; the bar says what is wanted.
"""

from __future__ import annotations

from kvchat.chats.types import Message
from kvchat.ui.browse_bar import BrowseBar
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending

UNDO_SECONDS = 10.0


class Browsing:
    """A mark that moves over the messages of the branch."""

    def __init__(self, room: Room, sending: Sending) -> None:
        self._room = room
        self._sending = sending
        self._marked: str | None = None
        self._on = False
        self._bar = BrowseBar(id="browse")

    def enter(self) -> None:
        """Mark the last message, and give the bar the keyboard."""
        if not self._room.conversation.messages:
            self._room.toast("There are no messages to browse yet.")
            return
        self._on = True
        if not self._bar.is_attached:
            self._room.screen.query_one("#main").mount(self._bar)
        self._room.screen.add_class("-browsing")
        self._bar.focus()
        self._mark(len(self._room.conversation.messages) - 1)

    def leave(self) -> None:
        """Back to the prompt."""
        self.lost()
        self._room.prompt.focus()

    def lost(self) -> None:
        """The keyboard went elsewhere: no mark any more."""
        if not self._on:
            return
        self._on = False
        self._marked = None
        self._room.screen.remove_class("-browsing")
        self._room.transcript.mark(None)

    def want(self, what: str) -> None:
        """What the bar asks for."""
        messages, at = self._room.conversation.messages, self._place()
        if at is None:
            self.leave()
            return
        match what:
            case "next" | "previous":
                self._mark(at + (1 if what == "next" else -1))
            case "first" | "last":
                self._mark(0 if what == "first" else len(messages) - 1)
            case "copy":
                self._copy(messages[at])
            case "edit":
                self._edit(messages[at])
            case "retry":
                self._retry(messages, at)
            case "continue":
                self.leave()
                self._sending.resume()
            case "older" | "newer":
                self._switch(messages[at], at, 1 if what == "newer" else -1)
            case "delete":
                self._delete(messages[at], at)
            case "undo":
                self._undo()
            case _:
                self.leave()

    # ------------------------------------------------------------------ the mark

    def _place(self) -> int | None:
        """Where the marked message stands in the branch; the last one when it is not there any more."""
        messages = self._room.conversation.messages
        places = {message.id: index for index, message in enumerate(messages)}
        return places.get(self._marked or "", len(messages) - 1) if messages else None

    def _mark(self, place: int) -> None:
        messages = self._room.conversation.messages
        if not messages:
            self.leave()
            return
        self._marked = messages[min(max(0, place), len(messages) - 1)].id
        self._room.transcript.mark(self._marked)

    # ------------------------------------------------------------------ what can be done

    def _copy(self, message: Message) -> None:
        if not message.text:
            self._room.toast("There is nothing in it to copy.")
            return
        self._room.screen.app.copy_to_clipboard(message.text)
        self._room.toast(f"{len(message.text):,} characters copied.", seconds=2)

    def _edit(self, message: Message) -> None:
        if message.role != "user":
            self._room.toast("Only your own messages can be edited; r writes another answer.")
            return
        self.leave()
        self._sending.edit(message)

    def _retry(self, messages: tuple[Message, ...], at: int) -> None:
        """Another answer in place of the marked one, or to the marked message."""
        answer = messages[at] if messages[at].role == "assistant" else next(iter(messages[at + 1 :]), None)
        self.leave()
        self._sending.regenerate(answer.id if answer is not None else None)

    def _switch(self, message: Message, at: int, step: int) -> None:
        room = self._room
        if len(room.conversation.siblings(message.id)) < 2:
            room.toast("There is only one version of this message; r or e makes another.")
            return

        room.try_to(lambda: room.conversation.show_sibling(message.id, step), lambda _: self._changed(at), "not shown")

    def _delete(self, message: Message, at: int) -> None:
        room, conversation = self._room, self._room.conversation

        def back() -> None:
            room.try_to(conversation.undo_delete, lambda _: self._changed(at), "not brought back")

        def gone(_: None) -> None:
            room.undo.offer(back, UNDO_SECONDS)
            room.toast("Deleted, with what follows it. u or /undo brings it back.", seconds=UNDO_SECONDS)
            self._changed(at - 1)

        room.try_to(lambda: conversation.delete(message.id), gone, "not deleted")

    def _changed(self, at: int) -> None:
        """The branch is another one; the mark goes to a place in it."""
        self._room.told = ""
        self._room.sync()
        if self._on:
            self._mark(at)

    def _undo(self) -> None:
        if not self._room.undo.take():
            self._room.toast("There is nothing to undo.")

"""Messages block by block: copy, fold, edit, retry, continue, pin, versions, delete. Owns which message is marked.

Must not know keys; the bar says what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.chats.types import Message
from kvchat.ui.browse_bar import BrowseBar
from kvchat.ui.key_hints import hints, keys_at
from kvchat.ui.pinning import toggle
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending
from kvchat.ui.undo import way_back

UNDO_SECONDS = 10.0


class Browsing:
    """A mark that moves over the messages of the branch and their blocks."""

    def __init__(self, room: Room, sending: Sending, take_back: Callable[[], object]) -> None:
        """`take_back` is for what was done last."""
        self._room = room
        self._take_back = take_back
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
        self._mark(len(self._room.conversation.messages) - 1, -1)

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
        if self._move(what, messages, at):
            return
        match what:
            case "copy" | "copy_all":
                self._copy(messages[at], block_only=what == "copy")
            case "fold" | "fold_all":
                self._fold() if what == "fold" else self._fold_all()
            case "edit":
                self._edit(messages[at])
            case "retry":
                self._retry(messages, at)
            case "continue":
                self.leave()
                self._sending.resume()
            case "pin":
                toggle(self._room, messages[at])
            case "older" | "newer":
                self._switch(messages[at], at, 1 if what == "newer" else -1)
            case "delete":
                self._delete(messages[at], at)
            case "undo":
                self._take_back()
            case _:
                self.leave()

    # ------------------------------------------------------------------ the mark

    def _place(self) -> int | None:
        """Where the marked message stands in the branch; the last one when it is not there any more."""
        messages = self._room.conversation.messages
        places = {message.id: index for index, message in enumerate(messages)}
        return places.get(self._marked or "", len(messages) - 1) if messages else None

    def _move(self, what: str, messages: tuple[Message, ...], at: int) -> bool:
        """Move the mark; False when it is not what is wanted."""
        match what:
            case "next" | "previous":
                self._step(at, 1 if what == "next" else -1)
            case "next_message" | "previous_message":
                self._mark(at + (1 if what == "next_message" else -1))
            case "first":
                self._mark(0)
            case "last":
                self._mark(len(messages) - 1, -1)
            case _:
                return False
        return True

    def _step(self, at: int, step: int) -> None:
        """To the next block in this direction, in this message or beyond it."""
        marked = self._room.transcript.marked
        if marked is None:
            self._mark(at)
            return
        item, block = marked
        if 0 <= block + step < len(item.blocks):
            self._mark(at, block + step)
        elif 0 <= at + step < len(self._room.conversation.messages):
            self._mark(at + step, 0 if step > 0 else -1)

    def _mark(self, place: int, block: int = 0) -> None:
        messages = self._room.conversation.messages
        if not messages:
            self.leave()
            return
        self._marked = messages[min(max(0, place), len(messages) - 1)].id
        self._room.transcript.mark(self._marked, block)

    # ------------------------------------------------------------------ what can be done

    def _copy(self, message: Message, *, block_only: bool) -> None:
        """The marked block, of code without its fence, or the whole message without its reasoning."""
        marked = self._room.transcript.marked
        if marked is None:
            text = message.text
        else:
            item, block = marked
            text = item.block_text(block) if block_only else item.answer
        if not text:
            self._room.toast("There is nothing in it to copy.")
            return
        self._room.screen.app.copy_to_clipboard(text)
        self._room.toast(f"{len(text):,} characters copied.", seconds=2)

    def _fold(self) -> None:
        """Show all of the marked message's reasoning, or one line of it."""
        marked = self._room.transcript.marked
        if marked is None or not marked[0].can_fold:
            self._room.toast("There is no reasoning in this message.")
            return
        item, _ = marked
        self._room.transcript.fold(item.id, not item.unfolded)
        self._room.transcript.mark(item.id)

    def _fold_all(self) -> None:
        """The same for all messages."""
        self._room.transcript.fold_all()
        if marked := self._room.transcript.marked:
            item, block = marked
            self._room.transcript.mark(item.id, block)

    def _edit(self, message: Message) -> None:
        if message.role != "user":
            self._tell("Only your own messages can be edited.", "{browse.retry} writes another answer.")
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
            makes = "retry" if message.role == "assistant" else "edit"
            self._tell("There is only one version of this message.", f"{{browse.{makes}}} makes another.")
            return

        room.try_to(lambda: room.conversation.show_sibling(message.id, step), lambda _: self._changed(at), "not shown")

    def _delete(self, message: Message, at: int) -> None:
        room, conversation = self._room, self._room.conversation

        def back() -> None:
            room.try_to(conversation.undo_delete, lambda _: self._changed(at), "not brought back")

        def gone(_: None) -> None:
            room.undo.offer(back, UNDO_SECONDS)
            self._changed(at - 1)
            way = way_back("browse.undo" if self._on else "", keys_at(room.screen))
            room.toast(f"Deleted, with what follows it. {way}", seconds=UNDO_SECONDS)

        room.try_to(lambda: conversation.delete(message.id), gone, "not deleted")

    def _tell(self, said: str, hint: str) -> None:
        """A sentence, and one about a key where there is that key."""
        self._room.toast(f"{said} {hints(hint, keys_at(self._room.screen))}".rstrip())

    def _changed(self, at: int) -> None:
        """The branch is another one; the mark goes to a place in it."""
        self._room.told = ""
        self._room.sync()
        self._room.sights.look()
        if self._on:
            self._mark(at)

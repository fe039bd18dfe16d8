"""Which chat is open, and what is done with chats as a whole. Owns the list as last read, and what is looked for.

Must not know keys; the sidebar says what is wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from textual.timer import Timer

from kvchat.backend.protocol import Titled
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, ChatSummary, SearchHit
from kvchat.conversation import Conversation
from kvchat.ui.dialogs import AskLine
from kvchat.ui.exporting import export, read_words
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending
from kvchat.ui.sidebar import Found

if TYPE_CHECKING:
    from kvchat.ui.inbox import News

REST = 0.15  # seconds without a key before messages are searched


class Chats:
    """Opens, lists, finds, renames, pins, copies and deletes chats."""

    def __init__(self, room: Room, sending: Sending, entered: Callable[[], object]) -> None:
        """`entered` is called when another chat is shown."""
        self._room = room
        self._sending = sending
        self._entered = entered
        self._all: tuple[Chat, ...] = ()
        self._query = ""
        self._found: Found | None = None  # None until an answer to the query came
        self._hits: dict[str, str] = {}  # chat -> the message in it that was found
        self._timer: Timer | None = None
        self._searching: Future[tuple[SearchHit, ...]] | None = None

    # ------------------------------------------------------------------ opening

    def new(self, system: str = "") -> None:
        """Begin a chat."""
        self._leave_turn(lambda: self._enter(self._room.desk.new_conversation(system)))

    def choose(self, chat_id: str) -> None:
        """Open a chat that was chosen in the list, where what was looked for stands in it."""
        room, found = self._room, self._hits.get(chat_id)
        if chat_id != room.conversation.chat.id:
            self.open(chat_id)
            return
        room.sidebar.clear_filter()
        self._entered()
        if found is not None:
            self._reveal(room.conversation, found)

    def open(self, chat_id: str) -> None:
        """Open a chat once the turn that is going on has ended."""
        room, found = self._room, self._hits.get(chat_id)

        def entered(conversation: Conversation) -> None:
            self._enter(conversation)
            if found is not None:
                self._reveal(conversation, found)

        def read() -> None:
            future = room.desk.open_conversation(chat_id)
            room.wait(future, entered, lambda error: room.say(error, "not opened"))

        self._leave_turn(read)

    def _reveal(self, conversation: Conversation, message: str) -> None:
        """Bring a message into view, in its own branch."""
        room = self._room

        def shown(_: None) -> None:
            room.sync()
            room.transcript.reveal(message)

        if any(known.id == message for known in conversation.messages):
            room.screen.call_after_refresh(room.transcript.reveal, message)
        else:
            room.try_to(lambda: conversation.show_message(message), shown, "not shown")

    def _leave_turn(self, then: Callable[[], object]) -> None:
        if self._room.is_busy:
            self._room.toast("The answer was stopped. What there is of it is kept: /continue there goes on.")
        self._sending.after_turn(then)

    def _enter(self, conversation: Conversation) -> None:
        """Show another conversation."""
        room = self._room
        self._sending.leave()
        room.conversation = conversation
        room.told = ""
        if room.progress.failed is not None:
            conversation.apply(room.progress.failed)
        room.prompt.remember([message.text for message in conversation.messages if message.role == "user"])
        room.sync()
        self._room.sidebar.clear_filter()
        self.refresh()
        self._entered()

    # ------------------------------------------------------------------ listing and finding

    def refresh(self) -> None:
        """Read the list again."""
        room = self._room
        room.wait(room.desk.store.run(ChatStore.chats), self._listed, lambda error: room.say(error, "no chats"))

    def turned(self) -> None:
        """A turn began or ended: the list is another, and a new chat may get a title."""
        self.refresh()
        if self._room.desk.settings.auto_title:
            self._room.conversation.ask_title()

    def apply(self, news: News) -> None:
        """The model gave the open chat a title; the conversation has it already."""
        if isinstance(news, Titled):
            self.refresh()

    def show(self) -> None:
        """List what was read last: another chat is open, or busy."""
        room = self._room
        chat = room.conversation.chat.id
        known = {each.id: each for each in self._all}
        listed = self._all if self._found is None else [known[id] for id in self._found.snippets if id in known]
        room.sidebar.show(listed, chat, time.time(), active=chat if room.is_busy else None, found=self._found)

    def find(self, query: str) -> None:
        """Look for words in titles and messages, when no key came for a moment."""
        self._query = query
        self._hits = {}
        if self._timer is not None:
            self._timer.stop()
        if self._searching is not None:
            self._searching.cancel()  # if it has not begun, nobody waits for it
        if query:
            self._timer = self._room.screen.set_timer(REST, self._search)
        else:
            self._found = None
            self.show()

    def _search(self) -> None:
        room, query = self._room, self._query

        def found(hits: tuple[SearchHit, ...]) -> None:
            if query == self._query:
                self._show_hits(query, hits)

        self._searching = room.desk.store.run(ChatStore.search, query, per_chat=True)
        room.wait(self._searching, found, lambda error: room.say(error, "not searched"))

    def _listed(self, summaries: tuple[ChatSummary, ...]) -> None:
        self._all = tuple(summary.chat for summary in summaries)
        self.show()

    def _show_hits(self, query: str, hits: tuple[SearchHit, ...]) -> None:
        """One row per chat, in the order of the hits, with the piece of text that was found in it."""
        snippets: dict[str, str] = {}
        for hit in hits:
            if not snippets.get(hit.chat):
                snippets[hit.chat] = hit.snippet
                if hit.snippet:  # where only the title was found, the chat opens at its end
                    self._hits[hit.chat] = hit.message
        self._found = Found(query, snippets)
        self.show()

    # ------------------------------------------------------------------ changing

    def want(self, what: str, chat_id: str) -> None:
        """What the sidebar asks for."""
        match what:
            case "rename":
                self.ask_title(chat_id)
            case "pin":
                self.pin(chat_id)
            case "export":
                self.export(chat_id)
            case "trash":
                self.trash(chat_id)
            case "duplicate":
                self.duplicate(chat_id)
            case _:
                self.undo()

    def undo(self) -> None:
        """Take back the last deletion."""
        if not self._room.undo.take():
            self._room.toast("There is nothing to undo.")

    def ask_title(self, chat_id: str) -> None:
        """Ask for another title."""
        title = next((chat.title for chat in self._all if chat.id == chat_id), "")
        self._room.screen.app.push_screen(
            AskLine("Title of the chat", title), lambda text: self.rename(chat_id, text) if text else None
        )

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat another title."""
        room = self._room
        if chat_id == room.conversation.chat.id:
            room.try_to(lambda: room.conversation.rename(title), lambda _: self.refresh(), "not renamed")
        else:
            self._change(lambda store: store.rename(chat_id, title), "not renamed")

    def pin(self, chat_id: str) -> None:
        """Keep a chat at the top of the list, or let it go from there."""
        pinned = any(chat.id == chat_id and chat.pinned_at is not None for chat in self._all)
        change = ChatStore.unpin if pinned else ChatStore.pin
        self._change(lambda store: change(store, chat_id), "not changed")

    def export(self, chat_id: str, words: str = "") -> None:
        """Write a chat into a file; `words` are those of the command."""
        export(self._room, chat_id, *read_words(words))

    def trash(self, chat_id: str) -> None:
        """Put a chat into the trash."""
        room = self._room
        was_open = chat_id == room.conversation.chat.id

        def back() -> None:
            self._change(lambda store: store.restore(chat_id), "not restored")
            if was_open:
                self.open(chat_id)

        def gone() -> None:
            room.undo.offer(back)
            room.toast("The chat is in the trash. u or /undo brings it back.")
            if was_open:
                self._enter(room.desk.new_conversation())

        def trash() -> None:
            self._change(lambda store: store.trash(chat_id), "not deleted", gone)

        if was_open:
            self._sending.after_turn(trash)
        else:
            trash()

    def duplicate(self, chat_id: str) -> None:
        """Copy a chat, and open the copy."""
        room = self._room
        future = room.desk.store.run(ChatStore.duplicate, chat_id)
        room.wait(future, lambda copy: self.open(copy.id), lambda error: room.say(error, "not copied"))

    def _change(self, job: Callable[[ChatStore], object], what: str, then: Callable[[], object] = lambda: None) -> None:
        room = self._room

        def changed(_: object) -> None:
            self.refresh()
            then()

        room.wait(room.desk.store.run(job), changed, lambda error: room.say(error, what))

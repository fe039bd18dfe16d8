"""Which chat is open, and what is done with chats as a whole. Owns the list as last read, and what is looked for.

Must not know keys; the sidebar says what is wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer

from kvchat.backend.protocol import Titled, TurnFinished
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, ChatSummary, SearchHit
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError
from kvchat.ui.background import Background, Kept
from kvchat.ui.background_ending import Ending
from kvchat.ui.chips import Written
from kvchat.ui.dialogs import AskLine
from kvchat.ui.exporting import export, read_words
from kvchat.ui.incognito import leave
from kvchat.ui.key_hints import keys_at
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending
from kvchat.ui.sidebar import Found
from kvchat.ui.undo import way_back

if TYPE_CHECKING:
    from kvchat.ui.inbox import News

REST = 0.15  # seconds without a key before messages are searched


class Chats:
    """Opens, lists, finds, renames, pins, copies and deletes chats."""

    def __init__(
        self,
        room: Room,
        sending: Sending,
        background: Background,
        ending: Ending,
        entered: Callable[[Written | None], object],
        looked: Callable[[TurnFinished], object],
    ) -> None:
        """`entered` is called when another chat is shown, with what is written there; None: that is on disk. `looked`:
        in the one that is shown this turn has ended while nobody looked."""
        self._room = room
        self._sending = sending
        self._background = background
        self._ending = ending
        self._entered = entered
        self._looked = looked
        self._wishes = 0  # how often a chat was to be opened
        self._all: tuple[Chat, ...] = ()
        self._query = ""
        self._found: Found | None = None  # None until an answer to the query came
        self._hits: dict[str, str] = {}  # chat -> the message in it that was found
        self._timer: Timer | None = None
        self._searching: Future[tuple[SearchHit, ...]] | None = None

    # ------------------------------------------------------------------ opening

    def new(self, system: str = "", *, incognito: bool = False) -> None:
        """Begin a chat."""
        self._wishes += 1
        leave(self._room, lambda: self._enter(self._room.desk.new_conversation(system, incognito=incognito)))

    def show_new(self, conversation: Conversation) -> None:
        """A chat that was just begun, and is open from now on."""
        self._wishes += 1
        self._enter(conversation)

    def choose(self, chat_id: str) -> None:
        """Open a chat that was chosen in the list, where what was looked for stands in it."""
        room, found = self._room, self._hits.get(chat_id)
        if chat_id != room.conversation.chat.id:
            self.open(chat_id)
            return
        room.sidebar.clear_filter()
        self._entered(None)
        if found is not None:
            self._reveal(room.conversation, found)

    def open(self, chat_id: str) -> None:
        """Open a chat; the answer that is being written in the one before goes on."""
        room, found = self._room, self._hits.get(chat_id)
        self._wishes += 1
        wish = self._wishes

        def enter(conversation: Conversation, kept: Kept | None = None) -> None:
            if room.conversation.chat.id != chat_id:
                self._enter(conversation, kept)
            if found is not None:
                self._reveal(room.conversation, found)

        def came(conversation: Conversation) -> None:
            if wish == self._wishes:
                enter(conversation)

        def not_there(error: KvchatError) -> None:
            self._background.forget(chat_id)
            room.say(error, "not opened")

        def read() -> None:
            kept = self._background.take(chat_id)
            if kept is not None:
                enter(kept.conversation, kept)
            elif room.conversation.chat.id != chat_id:
                room.wait(room.desk.open_conversation(chat_id), came, not_there)

        leave(room, read)

    def jump(self) -> None:
        """To the chat that has answered last and was not looked at, else to one that is being answered."""
        chat_id = self._background.next_chat()
        if chat_id is None:
            self._room.toast("No other chat has answered, and none is being answered.")
        else:
            self.open(chat_id)

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

    def _enter(self, conversation: Conversation, kept: Kept | None = None) -> None:
        """Show another conversation, as it was `kept` if it was; the one before goes on where it is answered."""
        room = self._room
        queued, draft = self._sending.leave(), room.prompt.written
        self._background.keep(room.conversation, queued, draft)
        room.conversation = conversation
        room.told = ""
        if room.progress.failed is not None and kept is None:
            conversation.apply(room.progress.failed)
        room.prompt.remember([message.text for message in conversation.messages if message.role == "user"])
        room.sync()
        unseen = self._background.seen(conversation.chat.id)
        for text, kind in unseen.notes if unseen is not None else ():
            room.transcript.note(text, kind)
        room.sidebar.clear_filter()
        self.refresh()
        self._entered(kept.draft if kept is not None else None)
        self._sending.enter(kept.queued if kept is not None else "")
        self._sending.settle()
        if unseen is not None and unseen.end is not None:
            self._looked(unseen.end)

    # ------------------------------------------------------------------ listing and finding

    def refresh(self) -> None:
        """Read the list again."""
        room = self._room
        room.wait(room.desk.store.run(ChatStore.chats), self._listed, lambda error: room.say(error, "no chats"))

    def apply(self, news: News) -> None:
        """The model gave a chat a title; the conversation has it already."""
        if isinstance(news, Titled):
            self.refresh()

    def show(self) -> None:
        """List what was read last: another chat is open, or busy."""
        room = self._room
        chat = room.conversation.chat.id
        known = {each.id: each for each in self._all}
        listed = self._all if self._found is None else [known[id] for id in self._found.snippets if id in known]
        room.sidebar.show(listed, chat, time.time(), self._background.states(), found=self._found)

    def beat(self) -> None:
        """Bring up to date what the list says of answers that are being written."""
        if self._room.sidebar.is_on_screen:
            self._room.sidebar.mark(self._background.states())

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
            case "stop":
                self.stop(chat_id)
            case _:
                self.undo()

    def undo(self) -> None:
        """Take back the last deletion."""
        if not self._room.undo.take():
            self._room.toast("There is nothing to undo.")

    def stop(self, chat_id: str) -> None:
        """Stop the answer that is being written in a chat, open or not."""
        is_open = chat_id == self._room.conversation.chat.id
        if self._sending.stop() if is_open else self._background.stop(chat_id):
            self._room.toast("Stopped. What there is of the answer is kept: /continue there goes on.")
            self.beat()
        else:
            self._room.toast("No answer is being written in that chat.")

    def ask_title(self, chat_id: str) -> None:
        """Ask for another title."""
        title = next((chat.title for chat in self._all if chat.id == chat_id), "")
        self._room.screen.app.push_screen(
            AskLine("Title of the chat", title), lambda text: self.rename(chat_id, text) if text else None
        )

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat another title."""
        room, conversation = self._room, self._background.find(chat_id)
        if conversation is not None:
            room.try_to(lambda: conversation.rename(title), lambda _: self.refresh(), "not renamed")
        else:
            self._change(lambda store: store.rename(chat_id, title), "not renamed")

    def pin(self, chat_id: str) -> None:
        """Keep a chat at the top of the list, or let it go from there."""
        pinned = any(chat.id == chat_id and chat.pinned_at is not None for chat in self._all)
        change = ChatStore.unpin if pinned else ChatStore.pin
        self._change(lambda store: change(store, chat_id), "not changed")

    def export(self, chat_id: str, words: str = "") -> None:
        """Write a chat into a file; `words` are those of the command."""
        self._tell_unfinished(chat_id, "the file has")
        export(self._room, chat_id, *read_words(words))

    def trash(self, chat_id: str) -> None:
        """Put a chat into the trash."""
        room, conversation = self._room, self._background.find(chat_id)
        was_open = conversation is room.conversation

        def back() -> None:
            shown = partial(self.open, chat_id) if was_open else lambda: None
            self._change(lambda store: store.restore(chat_id), "not restored", shown)

        def gone() -> None:
            room.undo.offer(back)
            way = way_back("chats.undo" if room.sidebar.has_keyboard else "", keys_at(room.screen))
            room.toast(f"The chat is in the trash. {way}")
            if chat_id == room.conversation.chat.id:
                self._enter(room.desk.new_conversation())
            self._background.forget(chat_id)

        def trash() -> None:
            self._change(lambda store: store.trash(chat_id), "not deleted", gone)

        self._background.forget(chat_id)
        self._ending.after([conversation] if conversation is not None else [], trash)

    def duplicate(self, chat_id: str) -> None:
        """Copy a chat, and open the copy."""
        room = self._room
        self._tell_unfinished(chat_id, "the copy has")
        future = room.desk.store.run(ChatStore.duplicate, chat_id)
        room.wait(future, lambda copy: self.open(copy.id), lambda error: room.say(error, "not copied"))

    def _tell_unfinished(self, chat_id: str, what: str) -> None:
        conversation = self._background.find(chat_id)
        if conversation is not None and conversation.is_working:
            self._room.toast(f"The answer is still being written: {what} what there is of it.")

    def _change(self, job: Callable[[ChatStore], object], what: str, then: Callable[[], object] = lambda: None) -> None:
        room = self._room

        def changed(_: object) -> None:
            self.refresh()
            then()

        room.wait(room.desk.store.run(job), changed, lambda error: room.say(error, what))

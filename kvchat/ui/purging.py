"""What /purge does: chats removed for good. Owns the question and the order of what follows it: the answer ends, the
chat is left, the engine forgets what it has in memory, and only then the disk is purged, so that nothing is written
again.

Must not know what has to go: kvchat.chats.purge knows it of the database, kvchat.kv.purge of the page store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kvchat.backend.protocol import Forget, Forgotten
from kvchat.chats.ids import new_ulid
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, ChatSummary
from kvchat.clean import clean_line
from kvchat.ui.background import Background
from kvchat.ui.background_ending import Ending
from kvchat.ui.chats import Chats
from kvchat.ui.dialogs import Confirm
from kvchat.ui.meters import size_text
from kvchat.ui.room import Room

if TYPE_CHECKING:
    from kvchat.kv.purge import Purged
    from kvchat.ui.inbox import News

TRASH = "trash"
PATIENCE = 6.0  # seconds that the engine may take to write what it had begun
FINAL = "It cannot be taken back; files that were exported stay."


class Purging:
    """Removes the open chat, or those in the trash."""

    def __init__(self, room: Room, chats: Chats, background: Background, ending: Ending) -> None:
        self._room = room
        self._chats = chats
        self._background = background
        self._ending = ending
        self._asked: dict[str, Callable[[], object]] = {}  # questions to the engine, and what follows their answers

    def command(self, words: str) -> None:
        """`/purge`, `/purge trash`."""
        if words == TRASH:
            room = self._room
            trashed = room.desk.store.run(ChatStore.trashed)
            room.wait(trashed, self._ask_trash, lambda error: room.say(error, "not removed"))
        elif words:
            self._room.toast("/purge removes this chat for good, /purge trash what is in the trash.")
        elif not self._room.desk.keeps(self._room.conversation):
            self._chats.new()
        elif self._room.conversation.messages:
            self._ask_open(self._room.conversation.chat)
        else:
            self._room.toast("This chat is empty.")

    def apply(self, news: News) -> None:
        """The engine has nothing of it in memory any more."""
        if isinstance(news, Forgotten):
            self._forgotten(news.turn)

    def finish(self) -> None:
        """The app ends: the engine is not waited for any more, and the store ends with what it has been asked for."""
        for asked in tuple(self._asked):
            self._forgotten(asked)

    # ------------------------------------------------------------------ the question

    def _ask_open(self, chat: Chat) -> None:
        conversation = self._room.conversation

        def leave() -> None:
            if self._room.conversation is conversation:
                self._chats.new()
            self._forget([chat])

        self._ask(
            f'Remove "{clean_line(chat.title)}" for good, with the KV that only it has had? {FINAL}',
            lambda: self._ending.after([conversation], leave),
        )

    def _ask_trash(self, trashed: Sequence[ChatSummary]) -> None:
        if not trashed:
            self._room.toast("The trash is empty.")
            return
        chats = [summary.chat for summary in trashed]
        many = f'"{clean_line(chats[0].title)}"' if len(chats) == 1 else f"the {len(chats)} chats"
        self._ask(f"Remove {many} in the trash for good, with their KV? {FINAL}", lambda: self._forget(chats))

    def _ask(self, question: str, then: Callable[[], object]) -> None:
        def answered(sure: bool | None) -> None:
            if sure:
                then()

        self._room.screen.app.push_screen(Confirm(question, "remove it for good"), answered)

    # ------------------------------------------------------------------ what follows

    def _forget(self, chats: Sequence[Chat]) -> None:
        for chat in chats:
            self._background.forget(chat.id)
            self._background.take(chat.id)  # nobody waits for a title any more
        asked = new_ulid()
        self._asked[asked] = lambda: self._purge(chats)
        if self._room.desk.engine.forget(Forget(asked)):
            self._room.screen.set_timer(PATIENCE, lambda: self._forgotten(asked))
        else:
            self._forgotten(asked)

    def _forgotten(self, asked: str) -> None:
        if (purge := self._asked.pop(asked, None)) is not None:
            purge()

    def _purge(self, chats: Sequence[Chat]) -> None:
        from kvchat.kv.purge import purge  # takes a while to load

        room, forget = self._room, partial(purge, self._room.desk.kv_folder)

        def done(purged: Purged) -> None:
            self._chats.refresh()
            room.toast(f"Removed for good, with {size_text(purged.bytes)} of KV.")

        names = [chat.id for chat in chats]
        removed = room.desk.store.run(lambda store: store.purging.purge(names, forget))
        room.wait(removed, done, lambda error: room.say(error, "not removed"))

"""The title that the model gives a chat. Owns the question that is open; a title that a person gave is never replaced.

Belongs to a Conversation, and to its thread.
"""

from __future__ import annotations

from dataclasses import replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import Title, Titled
from kvchat.backend.values import PromptMessage
from kvchat.chats.ids import new_ulid
from kvchat.chats.resolve import proper_title
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation.open_chat import OpenChat
from kvchat.errors import KvchatError

_DONE = frozenset({"stop", "length"})


class Titling:
    """Asks once a chat has an answer, and again after another turn when a question was not answered."""

    def __init__(self, store: StoreThread, backend: Backend, opened: OpenChat) -> None:
        self._store = store
        self._backend = backend
        self._open = opened
        self._asked: str | None = None
        self._none = False  # the model has no title for this chat

    @property
    def is_wanted(self) -> bool:
        """Whether the chat has an answer but no title except its first message, and the model was not asked in vain."""
        begun = self._open.messages[:2]
        answered = len(begun) == 2 and bool(begun[1].text.strip()) and begun[1].finish in _DONE
        return answered and not self._none and self._open.chat.title_by == "message"

    def ask(self) -> str | None:
        """Have a title written, if one is wanted. The turn of the `Titled` that answers; None: nobody was asked."""
        if not self.is_wanted or self._backend.ready is None:
            return None
        self._asked = new_ulid()
        messages = tuple(PromptMessage(message.role, message.text) for message in self._open.messages[:2])
        self._backend.title(Title(self._asked, messages, self._open.chat.clock))
        return self._asked

    def take(self, event: Titled) -> bool:
        """Takes over an answer. False: it is about another chat, came too late, or is no title."""
        if event.turn != self._asked:
            return False
        self._asked = None
        try:
            title = proper_title(event.text)
        except KvchatError:
            self._none = True
            return False
        if self._open.chat.title_by == "person":
            return False
        self._open.chat = replace(self._open.chat, title=title, title_by="model")
        self._store.run(ChatStore.name_by_model, self._open.chat.id, title)
        return True

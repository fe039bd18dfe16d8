"""Plays turns of a Conversation on a FakeBackend, and reads what is on disk afterwards."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from fake_backend import FakeBackend, turn_events

from kvchat.backend.protocol import Event, Generate
from kvchat.backend.values import FinishReason, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, KnownIds, Message
from kvchat.conversation import Conversation

WAIT = 30.0
GREEDY = Sampling(temperature=0.0)


def apply(chat: Conversation, events: list[Event]) -> None:
    for event in events:
        assert chat.apply(event), event


def request_of(backend: FakeBackend, asked: Future[None]) -> Generate:
    asked.result(WAIT)
    return backend.requests[-1]


def answer(
    chat: Conversation, backend: FakeBackend, asked: Future[None], *pieces: str, reason: FinishReason = "stop"
) -> Generate:
    """Plays a whole turn; its request."""
    request = request_of(backend, asked)
    apply(chat, turn_events(request, pieces, reason))
    return request


def on_disk(store: StoreThread, chat: Conversation) -> tuple[Chat, tuple[Message, ...]]:
    def read(chats: ChatStore) -> tuple[Chat, tuple[Message, ...]]:
        found = chats.get(chat.chat.id)
        return found, chats.path(found.head)

    return store.run(read).result(WAIT)


def known(store: StoreThread, chat: Conversation, key: str) -> dict[str, KnownIds]:
    return store.run(ChatStore.known_ids, chat.messages[-1].id, key).result(WAIT)


def reopened(store: StoreThread, backend: FakeBackend, chat: Conversation, **options: Any) -> Conversation:
    return Conversation.open(store, backend, chat.chat.id, sampling=GREEDY, **options).result(WAIT)


def texts(messages: tuple[Message, ...]) -> list[tuple[str, str, str | None]]:
    return [(m.role, m.text, m.finish) for m in messages]

"""Which chats are asked about for a title, and when that is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conversing import GREEDY, answer
from fake_backend import FakeBackend, make_ready

from kvchat.backend.protocol import Titled
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.ui.background_titles import Titles


@pytest.fixture
def store(home: Path) -> Iterator[StoreThread]:
    opened = StoreThread(home / "chats.db", lambda error: None)
    yield opened
    opened.close()


def chats(store: StoreThread, backend: FakeBackend, count: int) -> list[Conversation]:
    """With an answer each."""
    made = [Conversation.start(store, backend, sampling=GREEDY) for _ in range(count)]
    for chat in made:
        answer(chat, backend, chat.submit("Hi"), "Hello", " there.")
    return made


def titled(backend: FakeBackend, present: list[Conversation], titles: Titles, number: int) -> None:
    """The engine answers the question of that number; all hear of it, as in the app."""
    event = Titled(backend.titles[number].turn, f"Title {number}")
    for chat in present:
        chat.apply(event)
    titles.apply(event)


def test_two_questions_about_one_chat_come_to_an_end(store: StoreThread) -> None:
    """The end of an answer is told before it is known that the message was saved, which is told then: both ask."""
    backend = FakeBackend(make_ready())
    present = chats(store, backend, 1)
    titles = Titles(lambda: present, True)
    titles.turned(present[0])
    titles.turned(present[0])
    assert len(backend.titles) == 2
    titled(backend, present, titles, 0)
    assert len(backend.titles) == 2
    titled(backend, present, titles, 1)
    assert len(backend.titles) == 2
    assert present[0].chat.title == "Title 1"


def test_one_after_the_other(store: StoreThread) -> None:
    backend = FakeBackend(make_ready())
    present = chats(store, backend, 2)
    titles = Titles(lambda: present, True)
    titles.turned(present[0])
    titled(backend, present, titles, 0)
    titles.turned(present[1])
    titled(backend, present, titles, 1)
    assert [chat.chat.title for chat in present] == ["Title 0", "Title 1"]
    assert len(backend.titles) == 2

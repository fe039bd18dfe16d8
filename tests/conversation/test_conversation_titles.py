"""The model names a chat once, and never one that a person has named."""

from __future__ import annotations

import pytest
from conversing import GREEDY, WAIT, answer, on_disk
from fake_backend import FakeBackend

from kvchat.backend.protocol import Titled
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation


def asked(chat: Conversation, backend: FakeBackend) -> str:
    chat.ask_title()
    return backend.titles[-1].turn


def test_it_asks_when_there_is_an_answer(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.ask_title()
    assert backend.titles == []
    answer(chat, backend, chat.submit("What is the capital of France?"), "Hello", " there.")
    turn = asked(chat, backend)
    (command,) = backend.titles
    assert [message.text for message in command.messages] == ["What is the capital of France?", "Hello there."]
    assert chat.apply(Titled(turn, "Capital of France"))
    assert (chat.chat.title, chat.chat.title_by) == ("Capital of France", "model")
    assert on_disk(store, chat)[0].title == "Capital of France"


def test_once_is_enough(backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello", " there.")
    chat.apply(Titled(asked(chat, backend), "Greetings"))
    chat.ask_title()
    assert len(backend.titles) == 1


def test_an_unanswered_question_is_asked_again(backend: FakeBackend, chat: Conversation) -> None:
    """A turn came first: the engine does not answer then."""
    answer(chat, backend, chat.submit("Hi"), "Hello", " there.")
    first = asked(chat, backend)
    answer(chat, backend, chat.submit("And?"), "Yes.")
    second = asked(chat, backend)
    assert not chat.apply(Titled(first, "Too late"))
    assert chat.apply(Titled(second, "Greetings"))


@pytest.mark.parametrize("text", ["", "\u200b \t", "x" * 500])
def test_what_is_no_title_is_not_asked_for_again(backend: FakeBackend, chat: Conversation, text: str) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello", " there.")
    assert not chat.apply(Titled(asked(chat, backend), text))
    assert chat.chat.title == "Hi"
    chat.ask_title()
    assert len(backend.titles) == 1


def test_a_title_that_a_person_gave_stays(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello", " there.")
    turn = asked(chat, backend)
    chat.rename("Mine").result(WAIT)
    assert not chat.apply(Titled(turn, "Greetings"))
    chat.ask_title()
    assert len(backend.titles) == 1
    assert on_disk(store, chat)[0].title == "Mine"


def test_without_a_model_nobody_is_asked(store: StoreThread) -> None:
    backend = FakeBackend(None)
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.ask_title()
    assert backend.titles == []

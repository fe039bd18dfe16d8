"""Conversation: the way a chat's history is kept is its own."""

from __future__ import annotations

import json

import pytest
from conversing import GREEDY, WAIT, answer, reopened, request_of
from fake_backend import FakeBackend

from kvchat.backend.protocol import Forecasted
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation


def test_a_chat_keeps_its_own_way_whatever_is_told_later(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, history="exact")
    assert chat.history == "exact"
    assert answer(chat, backend, chat.submit("Hi"), "Hello").history == "exact"
    assert json.loads(chat.chat.settings) == {}  # what was told is not its own
    chat.set_history("append").result(WAIT)
    assert request_of(backend, chat.submit("again")).history == "append"
    again = reopened(store, backend, chat, history="exact")
    assert again.history == "append"
    assert json.loads(again.chat.settings) == {"history": "append"}


def test_it_can_be_chosen_before_the_first_message(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.set_history("exact").result(WAIT)
    answer(chat, backend, chat.submit("Hi"), "Hello")
    assert reopened(store, backend, chat).history == "exact"


@pytest.mark.parametrize("stored", ['"other"', "7", "null", "[]", '{"append": 1}'])
def test_what_cannot_be_understood_is_as_told(store: StoreThread, backend: FakeBackend, stored: str) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY)
    answer(chat, backend, chat.submit("Hi"), "Hello")
    store.run(ChatStore.set_settings, chat.chat.id, f'{{"history": {stored}, "x": 1}}').result(WAIT)
    again = reopened(store, backend, chat, history="exact")
    assert again.history == "exact"
    again.set_history("append").result(WAIT)
    assert json.loads(again.chat.settings) == {"history": "append", "x": 1}


def test_a_forecast_of_the_other_way_does_not_hold(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.forecast("draft")
    store.run(lambda _: None).result(WAIT)
    chat.apply(Forecasted(backend.forecasts[-1].turn, 9, 0, 0, 9, None, None))
    assert chat.forecasted is not None
    chat.set_history("exact").result(WAIT)
    assert chat.forecasted is None
    chat.forecast("draft")
    store.run(lambda _: None).result(WAIT)
    assert backend.forecasts[-1].history == "exact"

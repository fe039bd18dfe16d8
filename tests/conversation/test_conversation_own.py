"""Conversation: what is a chat's own in place of the defaults, and how it is given back."""

from __future__ import annotations

import json
from dataclasses import replace

from conversing import GREEDY, WAIT, answer, on_disk, reopened, request_of
from fake_backend import FakeBackend

from kvchat.backend.values import Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation, Defaults, Own

OWN = Own({"temperature": 0.3, "stop": ("END",), "seed": None}, "exact")


def test_what_is_its_own_is_all_that_was_set(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    assert (chat.own, chat.defaults) == (Own(), Defaults(GREEDY, "append"))
    chat.set_own(OWN).result(WAIT)
    answer(chat, backend, chat.submit("Hi"))
    for each in (chat, reopened(store, backend, chat)):
        assert each.own == OWN
        assert each.sampling == replace(GREEDY, temperature=0.3, stop=("END",), seed=None)
        assert each.history == "exact"


def test_given_back(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    chat.set_own(OWN).result(WAIT)
    chat.set_own(Own({"seed": 7})).result(WAIT)
    assert json.loads(on_disk(store, chat)[0].settings) == {"sampling": {"seed": 7}}
    chat.set_own(Own()).result(WAIT)
    again = reopened(store, backend, chat)
    assert (again.own, again.sampling, again.history) == (Own(), GREEDY, "append")


def test_other_ways_of_setting_are_seen(chat: Conversation) -> None:
    chat.set_sampling(replace(GREEDY, top_k=3)).result(WAIT)
    chat.set_history("exact").result(WAIT)
    assert chat.own == Own({"top_k": 3}, "exact")


def test_other_defaults_hold_where_nothing_is_its_own(backend: FakeBackend, chat: Conversation) -> None:
    chat.set_own(Own({"top_k": 3})).result(WAIT)
    chat.defaults = Defaults(Sampling(temperature=0.1, top_k=50), "exact")
    request = request_of(backend, chat.submit("Hi"))
    assert (request.sampling, request.history) == (Sampling(temperature=0.1, top_k=3), "exact")


def test_what_cannot_be_understood_stays(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    stored = {"colour": "blue", "history": "later", "sampling": {"temperature": 0.5, "future": 1, "top_p": "much"}}
    store.run(ChatStore.set_settings, chat.chat.id, json.dumps(stored)).result(WAIT)
    again = reopened(store, backend, chat)
    assert again.own == Own({"temperature": 0.5})
    again.set_own(Own({"top_k": 3})).result(WAIT)
    settings = json.loads(on_disk(store, chat)[0].settings)
    assert settings == {"colour": "blue", "history": "later", "sampling": {"future": 1, "top_p": "much", "top_k": 3}}
    again.set_own(Own()).result(WAIT)
    settings = json.loads(on_disk(store, chat)[0].settings)
    assert settings["sampling"] == {"future": 1, "top_p": "much"}


def test_a_damaged_list_of_values_stays_until_there_is_one(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    answer(chat, backend, chat.submit("Hi"))
    store.run(ChatStore.set_settings, chat.chat.id, '{"sampling": [1]}').result(WAIT)
    again = reopened(store, backend, chat)
    again.set_own(Own(history="exact")).result(WAIT)
    assert json.loads(on_disk(store, chat)[0].settings) == {"sampling": [1], "history": "exact"}
    again.set_own(Own({"top_k": 3})).result(WAIT)
    assert json.loads(on_disk(store, chat)[0].settings) == {"sampling": {"top_k": 3}}

"""Conversation: warm, forecast and preview. What is asked, and which answers count."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from conversing import GREEDY, WAIT, answer, apply, reopened, request_of
from fake_backend import REPLY_TURN, USER_TURN, FakeBackend, delta, make_ready, prompt_events, text_ids, turn_events

from kvchat.backend.protocol import (
    ConfigureFailed,
    Forecast,
    Forecasted,
    LoadFailed,
    Loading,
    Previewed,
    Tuned,
    Warm,
    Warmed,
)
from kvchat.backend.values import EngineConfig, Failure, PromptMessage
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError

ONE = (USER_TURN, *text_ids("one"), REPLY_TURN)
TWO = (USER_TURN, *text_ids("two"), REPLY_TURN)
CONFIG = EngineConfig("fake-1b.gguf", type_k="q8_0", type_v="q8_0", flash_attention="on")


@pytest.fixture
def failures() -> Iterator[list[KvchatError]]:
    heard: list[KvchatError] = []
    yield heard
    assert heard == []


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    chat = Conversation.start(store, backend, sampling=GREEDY)
    answer(chat, backend, chat.submit("one"), "uno")
    answer(chat, backend, chat.submit("two"), "dos")
    return chat


def settle(store: StoreThread) -> None:
    """Wait until the store thread has done what was asked so far."""
    store.run(ChatStore.latest).result(WAIT)


def forget_ids(store: StoreThread, message: str) -> None:
    def forget(chats: ChatStore) -> None:
        chats._connection.execute("DELETE FROM message_ids WHERE message = ?", (message,))

    store.run(forget).result(WAIT)


def forecasted(turn: str, computed: int = 5) -> Forecasted:
    return Forecasted(turn, 100, 60, 35, computed, 0.5, None)


# ------------------------------------------------------------------ warm


def test_warm_sends_all_ids_of_the_branch(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.warm()
    settle(store)
    assert [warm.ids for warm in backend.warms] == [(*ONE, *text_ids("uno"), *TWO, *text_ids("dos"))]
    assert chat.warmed is None
    told = Warmed(backend.warms[0].turn, 14, 14, 14, 0.01, None)
    assert chat.apply(told)
    assert chat.warmed == told


def test_warm_stops_at_the_first_unknown_message(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    forget_ids(store, chat.messages[2].id)
    chat.warm()
    settle(store)
    assert backend.warms[0].ids == (*ONE, *text_ids("uno"))  # not the ids of "dos", which stood behind others


def test_warm_without_ids_asks_nothing(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    forget_ids(store, chat.messages[0].id)
    chat.warm()
    other = FakeBackend(make_ready("othervocab"))  # the ids are those of another vocabulary
    reopened(store, other, chat).warm()
    new = Conversation.start(store, backend, sampling=GREEDY)
    new.warm()
    asleep = FakeBackend(None)
    reopened(store, asleep, chat).warm()
    settle(store)
    assert backend.warms == other.warms == asleep.warms == []


def test_warm_under_another_system_prompt_asks_nothing(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    chat.set_system("be brief").result(WAIT)
    chat.warm()
    settle(store)
    assert backend.warms == []
    chat.set_system("").result(WAIT)
    chat.warm()
    settle(store)
    assert len(backend.warms) == 1


def test_no_warm_during_a_turn_nor_without_kv(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    baseline = reopened(store, backend, chat, keep_kv=False)
    baseline.warm()
    baseline.forecast("hello")
    request = request_of(backend, chat.submit("three"))
    chat.warm()
    chat.forecast("hello")
    settle(store)
    assert backend.warms == [] and backend.forecasts == []
    apply(chat, turn_events(request, ["tres"]))
    chat.warm()
    settle(store)
    assert backend.warms[0].ids[-4:] == text_ids("tres")


def test_a_turn_makes_what_waits_to_be_asked_void(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    chat.warm()
    chat.forecast("three")
    chat.preview(CONFIG)
    chat.submit("three")
    gate.set()
    settle(store)
    assert not (backend.warms or backend.forecasts or backend.previews)
    assert len(backend.requests) == 3


# ------------------------------------------------------------------ forecast


def test_forecast_is_what_a_submit_would_send(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="S", history="exact", clock=77.0)
    answer(chat, backend, chat.submit("one"), "uno")
    chat.forecast("two")
    settle(store)
    asked = backend.forecasts[0]
    assert asked.messages == (
        PromptMessage("system", "S", ()),
        PromptMessage("user", "one", (*text_ids("S"), *ONE)),
        PromptMessage("assistant", "uno", text_ids("uno")),
        PromptMessage("user", "two", None),
    )
    request = request_of(backend, chat.submit("two"))
    assert asked == Forecast(asked.turn, request.messages, request.history, request.clock, request.past_cut)
    assert (asked.history, asked.clock, asked.past_cut) == ("exact", 77.0, None)


def test_forecast_of_an_edit_is_what_the_edit_would_send(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    """The draft stands in the place of the message, and what came behind that is no part of it; also where the last
    message waits for an answer, so that nothing could be sent behind it."""
    two = chat.messages[2].id
    chat.forecast("zwei", two)
    settle(store)
    assert [message.text for message in backend.forecasts[0].messages] == ["one", "uno", "zwei"]
    chat.delete(chat.messages[3].id).result(WAIT)
    chat.forecast("zwei", two)
    settle(store)
    assert [message.text for message in backend.forecasts[1].messages] == ["one", "uno", "zwei"]
    chat.forecast("eins", chat.messages[0].id)
    settle(store)
    asked = backend.forecasts[2]
    assert [message.text for message in asked.messages] == ["eins"]
    request = request_of(backend, chat.edit(chat.messages[0].id, "eins"))
    assert asked.messages == request.messages


def test_forecast_of_a_new_chat_and_of_another_model(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    new = Conversation.start(store, backend, sampling=GREEDY)
    new.forecast("")
    settle(store)
    assert backend.forecasts[0].messages == (PromptMessage("user", "", None),)
    assert new.messages == () and new.chat.head is None
    other = FakeBackend(make_ready("othervocab"))
    reopened(store, other, chat).forecast("three")
    settle(store)
    assert other.forecasts[0].past_cut == "model"
    assert [m.ids for m in other.forecasts[0].messages] == [None] * 5


def test_the_newest_forecast_wins(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    for draft in ("t", "th", "thr"):
        chat.forecast(draft)
    gate.set()
    settle(store)
    assert [asked.messages[-1].text for asked in backend.forecasts] == ["thr"]  # the others never left
    chat.forecast("three")
    settle(store)
    old, new = backend.forecasts
    assert not chat.apply(forecasted(old.turn))  # too late
    assert chat.forecasted is None
    assert chat.apply(forecasted(new.turn))
    assert chat.forecasted == forecasted(new.turn)
    chat.forecast("three!")
    assert chat.forecasted is None  # it was for another draft
    assert not chat.apply(forecasted(new.turn))


def test_a_forecast_does_not_outlive_what_it_was_about(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    def ask() -> None:
        chat.forecast("three")
        settle(store)
        assert chat.apply(forecasted(backend.forecasts[-1].turn))
        assert chat.forecasted is not None

    ask()
    assert chat.apply(make_ready(context=8192))  # the context was built anew
    assert chat.forecasted is None
    ask()
    chat.set_system("be brief").result(WAIT)
    assert chat.forecasted is None
    ask()
    chat.delete(chat.messages[2].id).result(WAIT)
    assert chat.forecasted is None
    ask()
    answer(chat, backend, chat.submit("three"))
    assert chat.forecasted is None
    ask()
    backend.ready = None
    chat.forecast("four")
    assert chat.forecasted is None


def test_no_forecast_where_nothing_could_be_sent(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.delete(chat.messages[-1].id).result(WAIT)
    chat.forecast("three")
    settle(store)
    assert backend.forecasts == []


# ------------------------------------------------------------------ preview and other events


def test_preview(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.preview(CONFIG)
    other = replace(CONFIG, type_k="f16")
    chat.preview(other)
    settle(store)
    asked = backend.previews[-1]
    assert asked.ids == (*ONE, *text_ids("uno"), *TWO, *text_ids("dos")) and asked.config == other
    assert not chat.apply(Previewed("another", 14, 14, 0.0))
    told = Previewed(asked.turn, 14, 10, 0.2)
    assert chat.apply(told)
    assert chat.previewed == told
    chat.preview(CONFIG)
    assert chat.previewed is None


def test_preview_during_a_turn_and_of_an_empty_chat(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    request = request_of(backend, chat.submit("three"))
    apply(chat, [*prompt_events(request), delta(request, "tr")])
    settle(store)
    chat.preview(CONFIG)
    settle(store)
    assert backend.previews[0].ids[-2:] == text_ids("tr")
    assert chat.live is not None
    new = Conversation.start(store, backend, sampling=GREEDY)
    new.preview(CONFIG)
    settle(store)
    assert backend.previews[1].ids == ()


def test_events_about_the_engine_change_nothing_here(backend: FakeBackend, chat: Conversation) -> None:
    for event in (ConfigureFailed(Failure("too large")), Tuned(False, 1, ()), Warmed("x", 1, 1, 1, 0.0, None)):
        assert not chat.apply(event)


def test_ids_are_read_under_the_key_of_today(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    """A chat that went to another model and back finds the ids of each."""
    other = FakeBackend(make_ready("othervocab"))
    there = reopened(store, other, chat)
    answer(there, other, there.submit("three"), "tres")
    back = reopened(store, backend, chat)
    back.warm()
    there.warm()
    settle(store)
    assert backend.warms[0].ids == (*ONE, *text_ids("uno"), *TWO, *text_ids("dos"))
    ids = (*backend.warms[0].ids, USER_TURN, *text_ids("three"), REPLY_TURN, *text_ids("tres"))
    assert other.warms == [Warm(other.warms[0].turn, ids, "", there.chat.clock)]
    assert store.run(ChatStore.known_ids, there.messages[-1].id, ids_key("othervocab", "")).result(WAIT)


def test_the_model_that_is_chosen_after_a_failure(backend: FakeBackend, chat: Conversation) -> None:
    backend.ready = None
    chat.apply(LoadFailed(Failure("not a GGUF")))
    with pytest.raises(KvchatError, match="not a GGUF"):
        chat.submit("three")
    chat.apply(Loading(0.1))  # another one is being loaded: it may wait for it
    chat.submit("three").result(WAIT)
    assert chat.live is not None

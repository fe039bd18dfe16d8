"""Conversation: what drafts in a chat, what is handed from turn to turn about it, and how it is followed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from conversing import GREEDY, WAIT, answer, apply, on_disk, reopened, request_of
from fake_backend import FakeBackend, delta, finished, prompt_events

from kvchat.backend.protocol import Drafted, Event, Generate, TurnFinished
from kvchat.backend.values import Usage
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message
from kvchat.conversation import Conversation, Defaults, Own, Said, read_usage


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    return Conversation.start(store, backend, sampling=GREEDY, draft="ngram")


def told(request: Generate, **usage: object) -> list[Event]:
    """The end of a turn, with a report on its drafts."""
    end = finished(request)
    return [TurnFinished(request.turn, end.reason, replace(end.usage, **usage))]  # type: ignore[arg-type]


def turn(chat: Conversation, backend: FakeBackend, text: str, **usage: object) -> Generate:
    request = request_of(backend, chat.submit(text))
    apply(chat, [*prompt_events(request), delta(request, "Hello."), *told(request, **usage)])
    return request


# ------------------------------------------------------------------ which


def test_the_default_holds_where_the_chat_has_nothing(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    assert (chat.draft, chat.own.draft) == ("ngram", None)
    assert answer(chat, backend, chat.submit("Hi")).draft == "ngram"
    assert reopened(store, backend, chat).draft == "auto"
    chat.defaults = Defaults(GREEDY, "append", "off")
    assert answer(chat, backend, chat.submit("more")).draft == "off"


def test_its_own_is_kept_and_given_back(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.set_draft("off").result(WAIT)
    assert answer(chat, backend, chat.submit("Hi")).draft == "off"
    again = reopened(store, backend, chat)
    assert (again.draft, again.own) == ("off", Own(draft="off"))
    again.set_own(Own({"top_k": 3}, draft="model")).result(WAIT)
    assert reopened(store, backend, chat).own == Own({"top_k": 3}, draft="model")
    again.set_own(Own()).result(WAIT)
    assert (again.draft, json.loads(on_disk(store, chat)[0].settings)) == ("auto", {"sampling": {}})


def test_a_flag_goes_before_what_the_chat_has_until_something_is_set(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    chat.set_draft("off").result(WAIT)
    answer(chat, backend, chat.submit("Hi"))
    again = reopened(store, backend, chat, draft="ngram", new=Said("ngram"))
    assert (again.draft, again.own.draft) == ("ngram", "off")
    again.set_own(Own({"top_k": 3}, draft="off")).result(WAIT)  # only the sampling is another
    assert again.draft == "ngram"
    again.set_draft("model").result(WAIT)
    assert again.draft == "model"
    assert json.loads(on_disk(store, chat)[0].settings)["draft"] == "model"


@pytest.mark.parametrize("stored", ["later", 1, None, ["off"], {"a": 1}])
def test_what_cannot_be_understood_is_passed_over_and_kept(
    store: StoreThread, backend: FakeBackend, chat: Conversation, stored: object
) -> None:
    answer(chat, backend, chat.submit("Hi"))
    store.run(ChatStore.set_settings, chat.chat.id, json.dumps({"draft": stored})).result(WAIT)
    again = reopened(store, backend, chat)
    assert (again.draft, again.own.draft) == ("auto", None)
    again.set_own(Own(history="exact")).result(WAIT)
    assert json.loads(on_disk(store, chat)[0].settings) == {"draft": stored, "history": "exact"}


# ------------------------------------------------------------------ what the next turn is told


def test_the_outcome_is_handed_on(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    """From the last reply of the branch that has it, also after the chat was closed."""
    assert turn(chat, backend, "one", draft_memory="m1").draft_memory is None
    assert turn(chat, backend, "two").draft_memory == "m1"  # that turn told nothing
    assert turn(chat, backend, "three", draft_memory="m3").draft_memory == "m1"
    again = reopened(store, backend, chat)
    assert request_of(backend, again.submit("four")).draft_memory == "m3"


def test_another_branch_has_another_past(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    turn(chat, backend, "one", draft_memory="m1")
    turn(chat, backend, "two", draft_memory="m2")
    assert request_of(backend, chat.regenerate()).draft_memory == "m1"
    apply(chat, told(backend.requests[-1]))
    assert request_of(backend, chat.edit(chat.messages[0].id, "first")).draft_memory is None


def test_a_reply_that_goes_on_remembers_itself(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("one"))
    end = finished(request, "length")
    usage = replace(end.usage, draft_memory="half")
    apply(chat, [*prompt_events(request), delta(request, "Hel"), TurnFinished(request.turn, "length", usage)])
    request = request_of(backend, chat.resume())
    assert (request.continue_reply, request.draft_memory) == (True, "half")


def test_what_no_engine_wrote_is_not_handed_on(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    turn(chat, backend, "one", draft_memory="[" * 100_000)
    assert request_of(backend, chat.submit("two")).draft_memory is None


# ------------------------------------------------------------------ what is told


def test_drafts_are_followed(backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("one"))
    apply(chat, [*prompt_events(request), delta(request, "Hel")])
    assert chat.live is not None and chat.live.drafted is None
    event = Drafted(request.turn, "ngram", 8, 6, 1.2)
    assert chat.apply(event)
    assert chat.live.drafted == event
    assert not chat.apply(replace(event, turn="another"))
    apply(chat, told(request))
    assert not chat.apply(event)


def test_the_report_comes_back_from_the_disk(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    usage = {
        "draft_kind": "both",
        "draft_proposed": 30,
        "draft_accepted": 20,
        "draft_steps": 9,
        "draft_seconds": 0.5,
        "draft_speedup": 1.25,
        "draft_note": "paused",
        "draft_memory": "m",
    }
    turn(chat, backend, "one", **usage)
    read = read_usage(reopened(store, backend, chat).messages[-1])
    assert read is not None
    assert {name: getattr(read, name) for name in usage} == usage


def test_a_damaged_report_says_nothing() -> None:
    stored = {**asdict(Usage()), "draft_kind": 3, "draft_proposed": -4, "draft_accepted": "x", "draft_note": 7}
    stored |= {"draft_speedup": float("nan"), "draft_memory": {"a": 1}, "draft_steps": True}
    message = Message("m", "c", None, "assistant", "", 0.0, "stop", usage=json.dumps(stored))
    assert read_usage(message) == Usage()

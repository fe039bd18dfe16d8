"""Conversation: what is a chat's own. System prompt, sampling, engine, title."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from conversing import GREEDY, WAIT, answer, on_disk, reopened, request_of
from fake_backend import FakeBackend, turn_events

from kvchat.backend.values import Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation, EngineChoice
from kvchat.errors import KvchatError

OWN = Sampling(0.3, 5, 0.5, 0.1, 1.1, 32, 7, 99, ("END", "\n\n"))
CHOICE = EngineChoice("/models/fake.gguf", "q8_0", "q4_0", 4096, "on", "/models/small.gguf")


def change_all(chat: Conversation) -> None:
    for done in (
        chat.set_system("be brief"),
        chat.set_sampling(OWN),
        chat.set_engine(CHOICE),
        chat.set_draft("ngram"),
    ):
        done.result(WAIT)


def state(chat: Conversation) -> tuple[str, Sampling, EngineChoice | None]:
    return chat.chat.system, chat.sampling, chat.engine_settings


def settings_on_disk(store: StoreThread, chat: Conversation, text: str) -> None:
    store.run(ChatStore.set_settings, chat.chat.id, text).result(WAIT)


def test_nothing_is_its_own_at_first(chat: Conversation) -> None:
    assert state(chat) == ("", GREEDY, None)


@pytest.mark.parametrize("before", [False, True])
def test_round_trip(store: StoreThread, backend: FakeBackend, chat: Conversation, before: bool) -> None:
    """Changed before the first message, or after."""
    if before:
        change_all(chat)
        assert store.run(ChatStore.latest).result(WAIT) is None  # no row for what has no message
    answer(chat, backend, chat.submit("Hi"))
    if not before:
        change_all(chat)
    assert state(chat) == ("be brief", OWN, CHOICE)
    assert state(reopened(store, backend, chat)) == ("be brief", OWN, CHOICE)
    assert on_disk(store, chat)[0] == chat.chat
    assert json.loads(chat.chat.settings) == {
        "sampling": {
            "temperature": 0.3,
            "top_k": 5,
            "top_p": 0.5,
            "min_p": 0.1,
            "repeat_penalty": 1.1,
            "repeat_last_n": 32,
            "seed": 7,
            "max_tokens": 99,
            "stop": ["END", "\n\n"],
        },
        "model": "/models/fake.gguf",
        "type_k": "q8_0",
        "type_v": "q4_0",
        "context": 4096,
        "flash_attention": "on",
        "draft_model": "/models/small.gguf",
        "draft": "ngram",
    }
    request = request_of(backend, chat.submit("again"))
    assert (request.sampling, request.draft) == (OWN, "ngram")
    assert request.messages[0].text == "be brief"


def test_only_what_differs_is_its_own(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    chat.set_sampling(replace(GREEDY, top_k=3)).result(WAIT)
    again = Conversation.open(store, backend, chat.chat.id, sampling=Sampling(max_tokens=20)).result(WAIT)
    assert again.sampling == Sampling(max_tokens=20, top_k=3)  # a limit that is asked for today still holds
    again.set_sampling(Sampling(max_tokens=20, top_k=40)).result(WAIT)  # back to the default by choice: stays chosen
    assert json.loads(again.chat.settings) == {"sampling": {"top_k": 40}}


def test_a_change_during_a_turn_holds_from_the_next_one(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    request = request_of(backend, chat.submit("Hi"))
    change_all(chat)
    for event in turn_events(request, ["Hello"]):
        chat.apply(event)
    assert (request.sampling, request.messages[0].text) == (GREEDY, "Hi")
    assert state(reopened(store, backend, chat)) == ("be brief", OWN, CHOICE)
    assert on_disk(store, chat) == (chat.chat, chat.messages)
    second = request_of(backend, chat.submit("again"))
    assert (second.sampling, second.past_cut) == (OWN, "system")


def test_a_first_message_that_cannot_be_saved_keeps_what_was_chosen(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    def limit(chats: ChatStore, pages: int) -> None:
        chats._connection.execute(f"PRAGMA max_page_count = {pages}")

    pages = store.run(lambda chats: chats._connection.execute("PRAGMA page_count").fetchone()[0]).result(WAIT)
    store.run(limit, pages).result(WAIT)
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    asked = chat.submit("x" * 500_000)
    kept = chat.set_sampling(OWN)
    gate.set()
    with pytest.raises(KvchatError, match="disk is full"):
        asked.result(WAIT)
    with pytest.raises(KvchatError):
        kept.result(WAIT)
    assert chat.messages == () and chat.sampling == OWN and chat.chat.title == ""
    store.run(limit, 1_000_000).result(WAIT)
    answer(chat, backend, chat.submit("Hi"))
    assert reopened(store, backend, chat).sampling == OWN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "null",
        '{"sampling": 3, "model": 4}',
        '{"sampling": {"temperature": "hot", "top_k": true, "seed": 1.5, "stop": [1], "top_p": NaN, "future": 1}}',
        '{"model": "m.gguf", "type_k": "q9_9", "type_v": "f16", "context": 1, "flash_attention": "auto"}',
        '{"model": "m.gguf", "type_k": ["f16"], "type_v": "f16", "context": 1, "flash_attention": "auto"}',
        '{"model": "m.gguf", "type_k": "f16", "type_v": "f16", "context": -5, "flash_attention": "auto"}',
        '{"model": "m.gguf", "type_k": "f16", "type_v": "f16", "context": 1, "flash_attention": "perhaps"}',
    ],
)
def test_what_cannot_be_understood_is_passed_over(
    store: StoreThread, backend: FakeBackend, chat: Conversation, text: str
) -> None:
    answer(chat, backend, chat.submit("Hi"))
    settings_on_disk(store, chat, text)
    again = reopened(store, backend, chat)
    assert state(again) == ("", GREEDY, None)
    change_all(again)
    assert state(reopened(store, backend, chat)) == ("be brief", OWN, CHOICE)


def test_what_a_newer_version_wrote_is_kept(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    settings_on_disk(store, chat, '{"colour": "blue", "sampling": {"temperature": 0.5}}')
    again = reopened(store, backend, chat)
    assert again.sampling == replace(GREEDY, temperature=0.5)
    again.set_engine(EngineChoice("m", "f16", "f16", 0, "auto")).result(WAIT)
    settings = json.loads(on_disk(store, chat)[0].settings)
    assert (settings["colour"], settings["sampling"], settings["model"]) == ("blue", {"temperature": 0.5}, "m")


def test_a_system_prompt_without_utf8_form(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    chat.set_system("caf\udce9").result(WAIT)
    assert on_disk(store, chat)[0].system == "caf\ufffd"


def test_rename(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    with pytest.raises(KvchatError, match="no message yet"):
        chat.rename("Too early")
    answer(chat, backend, chat.submit("Hi"))
    chat.rename("  A\x1b better\n title ").result(WAIT)
    assert chat.chat.title == on_disk(store, chat)[0].title == "A␛ better title"
    answer(chat, backend, chat.submit("more"))
    assert on_disk(store, chat)[0] == chat.chat
    with pytest.raises(KvchatError, match="show something"):
        chat.rename("\u200b ")


def test_a_message_takes_a_chat_out_of_the_trash(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Half", reason="length")
    for go_on in ("submit", "resume"):
        store.run(ChatStore.trash, chat.chat.id).result(WAIT)
        again = reopened(store, backend, chat)
        assert again.chat.deleted_at is not None
        answer(again, backend, again.resume() if go_on == "resume" else again.submit("more"), reason="length")
        assert again.chat.deleted_at is None
        assert on_disk(store, chat)[0].deleted_at is None

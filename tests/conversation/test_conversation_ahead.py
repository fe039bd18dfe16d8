"""Drafts that are read while they are written: what is asked of the backend, and how long an answer holds."""

from __future__ import annotations

import threading

import pytest
from conversing import GREEDY, WAIT, answer, apply, reopened, request_of
from fake_backend import FakeBackend, make_ready, turn_events

from kvchat.backend.protocol import ReadAhead, ReadingAhead
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    chat = Conversation.start(store, backend, sampling=GREEDY, overflow="shift", clock=77.0)
    answer(chat, backend, chat.submit("one"), "uno")
    return chat


def settle(store: StoreThread) -> None:
    store.run(lambda _: None).result(WAIT)


def reading(command: ReadAhead, there: int = 5) -> ReadingAhead:
    return ReadingAhead(command.turn, 10, there, read=there)


def test_a_draft_is_read_as_a_submit_would_send_it(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    chat.read_ahead("two", done=True)
    settle(store)
    (asked,) = backend.read_aheads
    sent = request_of(backend, chat.submit("two"))
    how = sent.history, sent.clock, sent.keep_kv, sent.evictions, sent.overflow, sent.incognito
    assert asked == ReadAhead(asked.turn, sent.messages, *how, True)
    assert (asked.overflow, asked.clock, asked.keep_kv) == ("shift", 77.0, True)


def test_an_edit_is_read_in_its_place(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.read_ahead("eins", chat.messages[0].id)
    settle(store)
    assert [message.text for message in backend.read_aheads[0].messages] == ["eins"]
    assert not backend.read_aheads[0].done


def test_without_kv_a_draft_is_read_all_the_same(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    reopened(store, backend, chat, keep_kv=False).read_ahead("two")
    settle(store)
    assert [asked.keep_kv for asked in backend.read_aheads] == [False]


def test_what_could_not_be_sent_is_not_read(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("two"))
    chat.read_ahead("three")
    settle(store)
    assert backend.read_aheads == []
    apply(chat, turn_events(request, ["dos"]))
    chat.delete(chat.messages[-1].id).result(WAIT)
    chat.read_ahead("three")  # the last message waits for its answer
    backend.ready = None
    chat.read_ahead("three", chat.messages[0].id)
    settle(store)
    assert backend.read_aheads == []


def test_only_the_newest_draft_counts(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    for draft in ("t", "tw", "two"):
        chat.read_ahead(draft)
    gate.set()
    settle(store)
    (first,) = backend.read_aheads
    assert first.messages[-1].text == "two"
    assert chat.apply(reading(first))
    chat.read_ahead("two and")
    assert chat.reading_ahead == reading(first)  # until there is another answer
    settle(store)
    assert not chat.apply(reading(first, 10))
    assert chat.apply(reading(backend.read_aheads[-1], 7))
    assert chat.reading_ahead == reading(backend.read_aheads[-1], 7)


def test_an_answer_does_not_outlive_what_it_was_about(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    def ask() -> None:
        chat.read_ahead("two")
        settle(store)
        assert chat.apply(reading(backend.read_aheads[-1]))

    ask()
    assert chat.apply(make_ready(context=8192))
    assert chat.reading_ahead is None
    ask()
    chat.set_system("be brief").result(WAIT)
    assert chat.reading_ahead is None
    ask()
    request_of(backend, chat.submit("two"))
    assert chat.reading_ahead is None

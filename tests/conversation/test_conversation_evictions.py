"""Conversation: what left the context is kept with the reply in whose turn it left, and told to the engine again."""

from __future__ import annotations

import pytest
from conversing import GREEDY, WAIT, apply, reopened, request_of
from fake_backend import FakeBackend, delta, finished, make_ready, prompt_events

from kvchat.backend.protocol import Evicted, Generate
from kvchat.backend.values import FinishReason
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.turns import ids_key
from kvchat.formats.past import READ, Eviction

ONE = Eviction(300, ((4, 100),))
TWO = Eviction(500, ((100, 200), (310, 350)), READ)
THREE = Eviction(700, ((200, 210),))
FOUR = Eviction(800, ((210, 220),))


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    """Three turns; in the first one two blocks left, in the last one another."""
    chat = Conversation.start(store, backend, sampling=GREEDY)
    play(chat, request_of(backend, chat.submit("one")), ONE, TWO)
    play(chat, request_of(backend, chat.submit("two")))
    play(chat, request_of(backend, chat.submit("three")), THREE)
    return chat


def play(
    chat: Conversation,
    request: Generate,
    *evictions: Eviction,
    stopped: bool = False,
    reason: FinishReason = "stop",
) -> None:
    """A whole turn in which these leave: the first one before any text. `stopped`: before any text, too."""
    told = [Evicted(request.turn, each, "sinks", 0.01) for each in evictions]
    texts = [] if stopped else [delta(request, "Hello"), delta(request, " there.")]
    end = finished(request, "cancelled" if stopped else reason)
    apply(chat, [*prompt_events(request), *told[:1], *texts[:1], *told[1:], *texts[1:], end])


def sent(backend: FakeBackend, asked: object) -> tuple[Eviction, ...]:
    return request_of(backend, asked).evictions  # type: ignore[arg-type]


def test_they_are_told_in_order_in_the_next_turn(chat: Conversation, backend: FakeBackend) -> None:
    assert [request.evictions for request in backend.requests] == [(), (ONE, TWO), (ONE, TWO)]
    assert sent(backend, chat.submit("four")) == (ONE, TWO, THREE)


def test_they_outlive_the_program(store: StoreThread, chat: Conversation, backend: FakeBackend) -> None:
    again = reopened(store, backend, chat)
    assert sent(backend, again.submit("four")) == (ONE, TWO, THREE)


def test_a_reply_that_is_made_anew_is_free_of_its_own(chat: Conversation, backend: FakeBackend) -> None:
    request = request_of(backend, chat.regenerate())
    assert request.evictions == (ONE, TWO)
    play(chat, request)
    assert sent(backend, chat.submit("four")) == (ONE, TWO)


def test_a_reply_that_goes_on_adds_to_them(store: StoreThread, chat: Conversation, backend: FakeBackend) -> None:
    request = request_of(backend, chat.regenerate())
    play(chat, request, THREE, reason="length")
    request = request_of(backend, chat.resume())
    assert request.evictions == (ONE, TWO, THREE)
    play(chat, request, FOUR)
    again = reopened(store, backend, chat)
    assert sent(backend, again.submit("four")) == (ONE, TWO, THREE, FOUR)


def test_an_edit_is_free_of_what_came_after(chat: Conversation, backend: FakeBackend) -> None:
    users = [message for message in chat.messages if message.role == "user"]
    assert sent(backend, chat.edit(users[2].id, "3")) == (ONE, TWO)


def test_an_edit_of_the_first_message_is_free_of_all(chat: Conversation, backend: FakeBackend) -> None:
    assert sent(backend, chat.edit(chat.messages[0].id, "1")) == ()


def test_a_turn_that_was_stopped_before_its_first_word_keeps_them(
    store: StoreThread, chat: Conversation, backend: FakeBackend
) -> None:
    play(chat, request_of(backend, chat.submit("four")), FOUR, stopped=True)
    again = reopened(store, backend, chat)
    assert sent(backend, again.submit("five")) == (ONE, TWO, THREE, FOUR)


def test_another_vocabulary_has_none(store: StoreThread, chat: Conversation) -> None:
    """Its ids are others, so positions mean nothing there; and back with the first one they are there again."""
    other = FakeBackend(make_ready("othervocab"))
    again = reopened(store, other, chat)
    request = request_of(other, again.submit("four"))
    assert request.evictions == ()
    play(again, request)
    first = FakeBackend(make_ready())
    assert sent(first, reopened(store, first, chat).submit("five"))[:3] == (ONE, TWO, THREE)


def test_a_copy_of_the_chat_has_them(store: StoreThread, chat: Conversation, backend: FakeBackend) -> None:
    copied = store.run(ChatStore.duplicate, chat.chat.id).result(WAIT)
    known = store.run(ChatStore.known_ids, copied.head, ids_key("fakevocab", "")).result(WAIT)
    assert [each.evictions for each in known.values()] == [(), (ONE, TWO), (), (), (), (THREE,)]
    other = Conversation.open(store, backend, copied.id, sampling=GREEDY).result(WAIT)
    assert sent(backend, other.submit("x")) == (ONE, TWO, THREE)


BROKEN = [
    "",
    "7",
    "[1]",
    "{}",
    "[[1, 2]]",
    '[[300, [["a", 1]], ""]]',
    "[[300, [[4]], 7]]",
    '[[300, [[9, 4]], ""]]',  # ends before it begins
    '[[300, [[4, 9], [8, 20]], ""]]',  # the same token twice
    '[[300, [[4, 300]], ""]]',  # the last one, too
    '[[300, [[-4, 9]], ""]]',
    '[[300, [[4, 9]], "zz"]]',  # no key
]


@pytest.mark.parametrize("log", BROKEN)
def test_a_log_that_cannot_be_understood_is_none(
    store: StoreThread, chat: Conversation, backend: FakeBackend, log: str
) -> None:
    def damage(chats: ChatStore) -> None:
        with chats._connection as connection:
            connection.execute("UPDATE message_evictions SET log = ?", (log,))

    store.run(damage).result(WAIT)
    assert sent(backend, reopened(store, backend, chat).submit("four")) == ()

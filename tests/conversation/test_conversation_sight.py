"""Conversation: how much of each message is still in the context, and the last eviction taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conversing import GREEDY, WAIT, answer, apply, request_of
from fake_backend import FakeBackend, delta, finished, prompt_events, text_ids

from kvchat.backend.protocol import Evicted, Generate, TurnFinished, Way
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation, Seen
from kvchat.conversation.overflow_words import forecast, mark
from kvchat.conversation.sight import Last
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    return Conversation.start(store, backend, sampling=GREEDY, overflow="sinks")


def turn(chat: Conversation, backend: FakeBackend, text: str, reply: str, *left: Evicted, **usage: object) -> Generate:
    """A turn in which something leaves before the text of the reply."""
    request = request_of(backend, chat.submit(text))
    end = finished(request)
    end = replace(end, usage=replace(end.usage, **usage))
    told = [replace(each, turn=request.turn) for each in left]
    apply(chat, [*prompt_events(request), *told, delta(request, reply), end])
    return request


def evicted(at: int, *ranges: tuple[int, int], why: str = "sinks") -> Evicted:
    return Evicted("", Eviction(at, ranges), why, 0.0)


def test_tokens_that_are_left(chat: Conversation, backend: FakeBackend) -> None:
    """Ids by fake_backend: a user message has its bytes and two, a reply its bytes. "abcd" lies at 0 to 6, "Hello." at
    6 to 12, "efgh" at 12 to 18. Of the first 4 to 9 leave, then 11."""
    answer(chat, backend, chat.submit("abcd"), "Hello.")
    turn(chat, backend, "efgh", "Yes.", evicted(18, (4, 9)), evicted(20, (11, 12)), evictions=2, evicted=6)
    sight = chat.sight().result(WAIT)
    seen = [sight.messages[message.id] for message in chat.messages]
    assert seen == [Seen(0, 6, 4), Seen(6, 6, 2), Seen(12, 6, 6), Seen(18, 4, 4)]
    assert [mark(each) for each in seen] == ["67 % still seen", "33 % still seen", "", ""]
    assert sight.last == Last(1, 2)  # one token at 20 of 22
    assert sight.live == 16


def test_evictions_are_taken_back_one_by_one(chat: Conversation, backend: FakeBackend) -> None:
    answer(chat, backend, chat.submit("abcd"), "Hello.")
    turn(chat, backend, "efgh", "Yes.", evicted(18, (4, 9)), evicted(20, (11, 12)), evictions=2, evicted=6)
    assert chat.undo_eviction().result(WAIT).last == Last(1, 2)
    assert chat.undo_eviction().result(WAIT).last == Last(5, 4)
    assert chat.sight().result(WAIT).last is None
    with pytest.raises(KvchatError, match="nothing has left"):
        chat.undo_eviction().result(WAIT)
    assert request_of(backend, chat.submit("next")).evictions == ()


def test_reasoning_is_not_taken_back(chat: Conversation, backend: FakeBackend) -> None:
    """It would leave again. It is told apart from what a policy let go."""
    answer(chat, backend, chat.submit("abcd"), "Hello.")
    thought = evicted(12, (6, 9), why="reasoning")
    turn(chat, backend, "efgh", "Yes.", thought, reasoning_evicted=3)
    sight = chat.sight().result(WAIT)
    assert sight.last is None
    assert mark(sight.messages[chat.messages[1].id]) == "its reasoning is not seen any more"
    turn(chat, backend, "ijkl", "No.", evicted(28, (4, 6), (9, 12)), evictions=1, evicted=5)
    sight = chat.sight().result(WAIT)
    assert mark(sight.messages[chat.messages[1].id]) == "not seen any more"
    chat.undo_eviction().result(WAIT)
    assert request_of(backend, chat.submit("next")).evictions == (thought.eviction,)


def test_the_system_prompt_before_a_message_is_not_the_message(store: StoreThread, backend: FakeBackend) -> None:
    """ "Be kind." stands before the first message, and stays."""
    chat = Conversation.start(store, backend, sampling=GREEDY, system="Be kind.", overflow="shift")
    own = len(text_ids("Be kind."))
    answer(chat, backend, chat.submit("abcd"), "Hello.")
    turn(chat, backend, "efgh", "Yes.", evicted(own + 18, (own, own + 12)), evictions=1, evicted=12, system_tokens=own)
    marks = [mark(chat.sight().result(WAIT).messages[message.id]) for message in chat.messages]
    assert marks == ["not seen any more", "not seen any more", "", ""]


def test_nothing_is_known_without_a_model(store: StoreThread) -> None:
    chat = Conversation.start(store, FakeBackend(None), sampling=GREEDY)
    assert chat.sight().result(WAIT).messages == {}
    with pytest.raises(KvchatError, match="no model is ready"):
        chat.undo_eviction()


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Way("shift", 12, ((0, 12),)), "12 tokens: the oldest turn"),
        (Way("shift", 22, ((0, 22),)), "22 tokens: the oldest 2 turns"),
        (Way("sinks", 8, ((4, 12),)), "8 tokens: the oldest after the first ones, in 2 messages"),
        (Way("sinks", 1, ((4, 5),)), "1 token: the oldest after the first ones, in 1 message"),
        (Way("prune", 9), "9 tokens: here and there in the middle, what attracts the least attention"),
    ],
)
def test_forecast(chat: Conversation, backend: FakeBackend, way: Way, words: str) -> None:
    answer(chat, backend, chat.submit("abcd"), "Hello.")
    answer(chat, backend, chat.submit("efgh"), "Yes.")
    assert forecast(way, chat.sight().result(WAIT), chat.messages) == words


@pytest.mark.parametrize(
    ("live", "words"),
    [(1000, ""), (999, "99 % still seen"), (370, "37 % still seen"), (1, "1 % still seen"), (0, "not seen any more")],
)
def test_marks(live: int, words: str) -> None:
    assert mark(Seen(0, 1000, live)) == words


def test_live_turn_counts_since_the_restore(chat: Conversation, backend: FakeBackend) -> None:
    """What left is no part of what was restored when that is told once more; reasoning never was."""
    request = request_of(backend, chat.submit("abcd"))
    events = prompt_events(request)
    thought = replace(evicted(4, (1, 2), why="reasoning"), turn=request.turn)
    left = replace(evicted(5, (0, 3)), turn=request.turn)
    apply(chat, [events[0], thought, *events[1:], left])
    assert chat.live is not None
    assert (chat.live.evicted, chat.live.away) == (3, 3)
    apply(chat, [events[1]])
    assert chat.live is not None
    assert (chat.live.evicted, chat.live.away) == (3, 0)
    apply(chat, [TurnFinished(request.turn, "stop", finished(request).usage)])

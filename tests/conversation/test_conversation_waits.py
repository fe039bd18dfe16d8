"""A turn that cannot begin beside others says why until it does. Turns of other chats are none of its business."""

from __future__ import annotations

from conversing import GREEDY, WAIT, answer, apply, known, on_disk, request_of, texts
from fake_backend import FakeBackend, delta, finished, make_ready, prompt_events, turn_events

from kvchat.backend.protocol import Waits
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.turns import ids_key


def test_why_it_waits_is_known_until_it_begins(backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [Waits(request.turn, "no room"), Waits(request.turn, "two answers are being written")])
    assert chat.live is not None
    assert (chat.live.phase, chat.live.waiting) == ("queued", "two answers are being written")
    apply(chat, prompt_events(request)[:1])
    assert (chat.live.phase, chat.live.waiting) == ("prompt", "")


def test_why_it_waits_in_the_middle_is_known_until_it_goes_on(backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), delta(request, "one"), Waits(request.turn, "nothing is heard")])
    assert chat.live is not None
    assert (chat.live.phase, chat.live.waiting) == ("decode", "nothing is heard")
    apply(chat, [delta(request, " two")])
    assert (chat.live.phase, chat.live.waiting) == ("decode", "")


def test_one_that_waits_can_be_stopped(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [Waits(request.turn, "no room")])
    chat.stop().result(WAIT)
    assert backend.cancelled == [request.turn]
    apply(chat, [finished(request, "cancelled")])
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "", "cancelled")]


def test_two_chats_that_are_answered_in_turns(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    """Each takes its own events, and only these."""
    other = Conversation.start(store, backend, sampling=GREEDY)
    first, second = (request_of(backend, each.submit(text)) for each, text in ((chat, "one"), (other, "two")))
    assert not other.apply(Waits(first.turn, "no room"))
    mixed = zip(turn_events(first, ["a", "b"]), turn_events(second, ["x", "y"]), strict=True)
    for mine, its in mixed:
        assert [chat.apply(mine), other.apply(mine)] == [True, False]
        assert [chat.apply(its), other.apply(its)] == [False, True]
    assert not chat.apply(delta(first, "too late"))
    assert [texts(on_disk(store, each)[1])[1] for each in (chat, other)] == [
        ("assistant", "ab", "stop"),
        ("assistant", "xy", "stop"),
    ]


def test_one_that_was_meant_for_a_model_that_went_is_sent_to_the_next(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    """Ids of one vocabulary are nonsense in another: the turn waits for the new model, and is written as its."""
    answer(chat, backend, chat.submit("Hi"), "Hello")
    first, last = make_ready(), make_ready("othervocab", "other-2b")
    backend.ready = None  # the engine loads
    chat.submit("More").result(WAIT)
    assert chat.apply(first)  # it came before another model was chosen, and is heard of after that
    store.run(lambda _: None).result(WAIT)
    assert len(backend.requests) == 1
    backend.ready = last
    assert chat.apply(last)
    store.run(lambda _: None).result(WAIT)
    request = backend.requests[1]
    assert [message.ids for message in request.messages] == [None, None, None]
    apply(chat, turn_events(request))
    assert chat.messages[-1].model == "other-2b"
    assert known(store, chat, ids_key("othervocab", ""))[chat.messages[-1].id].ids is not None
    assert not chat.apply(make_ready())  # nothing waits any more

"""Several replies to one message: one commit, a turn each, what is shown, what ends how, what is on the disk."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from conversing import GREEDY, WAIT, answer, apply, known, on_disk, reopened, texts
from fake_backend import (
    REPLY_TURN,
    USER_TURN,
    FakeBackend,
    delta,
    finished,
    make_ready,
    prompt_events,
    text_ids,
    turn_events,
)

from kvchat.backend.protocol import Evicted, Generate, LoadFailed, TurnFinished
from kvchat.backend.values import Failure, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message
from kvchat.conversation import Conversation
from kvchat.conversation.samplings import differing
from kvchat.conversation.turns import read_sampling, read_usage
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction

SEEDED = Sampling(seed=7)
THREE = differing(SEEDED, 3)


def ask(chat: Conversation, backend: FakeBackend, text: str | None = "hello") -> list[Generate]:
    """Asks for three; their requests."""
    before = len(backend.requests)
    chat.ask_alternatives(THREE, text).result(WAIT)
    return backend.requests[before:]


def messages_of(store: StoreThread, chat: Conversation) -> list[Message]:
    """Every message of the chat on disk, the oldest first."""
    return store.run(_all, chat.chat.id).result(WAIT)


def _all(chats: ChatStore, chat: str) -> list[Message]:
    branch = chats.branch(chat, chats.get(chat).head)
    ids = [each for around in branch.siblings.values() for each in around]
    return [chats.path(each)[-1] for each in ids]


def replies(chat: Conversation) -> list[tuple[str, str | None, bool]]:
    return [(each.message.text, each.message.finish, each.shown) for each in chat.alternatives]


# ------------------------------------------------------------------ beginning


def test_one_prompt_and_the_others_share_it(chat: Conversation, backend: FakeBackend) -> None:
    first, second, third = ask(chat, backend)
    assert [request.alternative_of for request in (first, second, third)] == [None, first.turn, first.turn]
    assert [request.sampling for request in (first, second, third)] == list(THREE)
    assert first.messages == second.messages == third.messages
    assert [(m.role, m.text) for m in first.messages] == [("user", "hello")]
    assert len({first.turn, second.turn, third.turn}) == 3


def test_all_of_it_is_on_disk_before_the_first_is_computed(store: StoreThread, backend: FakeBackend) -> None:
    """What another process sees when the engine is asked for the first time."""
    chat = Conversation.start(store, backend, sampling=GREEDY)
    seen: list[int] = []
    submit, name = backend.submit, chat.chat.id

    def counting(request: Generate) -> None:
        other = ChatStore(store._path)  # type: ignore[arg-type]
        seen.append(len(_all(other, name)))
        other.close()
        submit(request)

    backend.submit = counting  # type: ignore[method-assign]
    chat.ask_alternatives(THREE, "hello").result(WAIT)
    assert seen == [4, 4, 4]
    saved, path = on_disk(store, chat)
    assert texts(path) == [("user", "hello", ""), ("assistant", "", None)]
    assert saved.head == chat.messages[-1].id
    assert saved.title == "hello"


def test_they_are_siblings_and_the_first_is_shown(chat: Conversation, backend: FakeBackend) -> None:
    ask(chat, backend)
    shown = chat.messages[-1].id
    assert chat.siblings(shown) == tuple(each.message.id for each in chat.alternatives)
    assert [each.shown for each in chat.alternatives] == [True, False, False]
    assert chat.alternatives[0].message.id == shown
    assert [each.sampling for each in chat.alternatives] == list(THREE)


def test_beside_an_answer_that_is_there(chat: Conversation, backend: FakeBackend) -> None:
    answer(chat, backend, chat.submit("hello"), "old")
    old = chat.messages[-1].id
    first, second, third = ask(chat, backend, None)
    assert [request.messages for request in (first, second, third)] == [backend.requests[1].messages] * 3
    assert [(m.role, m.text) for m in first.messages] == [("user", "hello")]
    around = chat.siblings(chat.messages[-1].id)
    assert around == (old, *(each.message.id for each in chat.alternatives))
    for request, text in zip((first, second, third), ("a", "b", "c"), strict=True):
        apply(chat, turn_events(request, [text]))
    chat.show_sibling(chat.messages[-1].id, -1).result(WAIT)
    assert texts(chat.messages) == [("user", "hello", ""), ("assistant", "old", "stop")]
    assert chat.alternatives == ()


@pytest.mark.parametrize("text", ["", "  \n"])
def test_nothing_is_asked_for_nothing(chat: Conversation, text: str) -> None:
    with pytest.raises(KvchatError, match="empty message"):
        chat.ask_alternatives(THREE, text)
    with pytest.raises(KvchatError, match="no answer to write again"):
        chat.ask_alternatives(THREE)
    with pytest.raises(KvchatError, match="no answer was asked for"):
        chat.ask_alternatives((), "hello")
    assert chat.messages == ()
    assert not chat.is_working


# ------------------------------------------------------------------ going on


def test_each_grows_by_its_own_events(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    first, second, third = ask(chat, backend)
    for request in (first, second, third):
        apply(chat, prompt_events(request))
    apply(chat, [delta(second, "two "), delta(first, "one "), delta(third, "three "), delta(second, "more")])
    assert replies(chat) == [("one ", None, True), ("two more", None, False), ("three ", None, False)]
    assert chat.messages[-1].text == "one "
    assert [each.tokens for each in chat.alternatives] == [len("one "), len("two more"), len("three ")]
    assert [each.live.phase for each in chat.alternatives if each.live] == ["decode"] * 3
    apply(chat, [finished(second)])
    assert [each.live is None for each in chat.alternatives] == [False, True, False]
    assert chat.live is not None
    assert chat.is_working
    apply(chat, [finished(first, "length"), finished(third)])
    assert replies(chat) == [("one ", "length", True), ("two more", "stop", False), ("three ", "stop", False)]
    assert not chat.is_working
    assert [(m.text, m.finish, m.model) for m in messages_of(store, chat)] == [
        ("hello", "", ""),
        ("one ", "length", "fake-1b"),
        ("two more", "stop", "fake-1b"),
        ("three ", "stop", "fake-1b"),
    ]


def test_temperature_and_seed_are_kept_with_each(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    for request in ask(chat, backend):
        apply(chat, turn_events(request))
    kept = messages_of(store, chat)[1:]
    assert [read_sampling(message) for message in kept] == [(0.8, 7), (0.8, 8), (0.8, 9)]
    assert all(read_usage(message) is not None for message in kept)
    answer(chat, backend, chat.submit("more"))
    assert read_sampling(chat.messages[-1]) is None


def test_the_ids_of_each_are_its_own(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    for request, text in zip(ask(chat, backend), ("one", "two", "three"), strict=True):
        apply(chat, turn_events(request, [text]))
    key = next(iter(known(store, chat, "")[chat.messages[0].id].other_keys))
    for each in chat.alternatives:
        stored = store.run(ChatStore.known_ids, each.message.id, key).result(WAIT)
        assert stored[each.message.id].ids == text_ids(each.message.text)
        assert stored[chat.messages[0].id].ids == (USER_TURN, *text_ids("hello"), REPLY_TURN)


def test_what_left_the_context_is_kept_with_the_reply_that_it_left(
    chat: Conversation, backend: FakeBackend, store: StoreThread
) -> None:
    """A policy acts in one of them; the prompt of the next turn is that of the picked one."""
    first, second, _ = ask(chat, backend)
    eviction = Eviction(8, ((0, 4),))
    for request in (first, second):
        apply(chat, prompt_events(request))
    apply(chat, [Evicted(second.turn, eviction, "shift", 0.0), delta(second, "two"), delta(first, "one")])
    assert [each.live.evicted for each in chat.alternatives if each.live] == [0, 4, 0]
    apply(chat, [finished(first), finished(second), finished(backend.requests[2], "cancelled")])
    answer(chat, backend, chat.submit("more"))
    assert backend.requests[-1].evictions == ()
    back = chat.messages[1].id
    chat.show_sibling(back, 1).result(WAIT)
    answer(chat, backend, chat.submit("more"))
    assert [m.text for m in backend.requests[-1].messages] == ["hello", "two", "more"]
    assert backend.requests[-1].evictions == (eviction,)


# ------------------------------------------------------------------ picking


def test_picking_one_when_all_are_done(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    for request, text in zip(ask(chat, backend), ("one", "two", "three"), strict=True):
        apply(chat, turn_events(request, [text]))
    chat.pick(chat.alternatives[1].message.id).result(WAIT)
    assert texts(chat.messages) == [("user", "hello", ""), ("assistant", "two", "stop")]
    assert [each.shown for each in chat.alternatives] == [False, True, False]
    assert texts(on_disk(store, chat)[1]) == texts(chat.messages)
    request = answer(chat, backend, chat.submit("more"), "four")
    assert [m.text for m in request.messages] == ["hello", "two", "more"]
    assert request.messages[1].ids == text_ids("two")
    assert chat.alternatives == ()
    again = reopened(store, backend, chat)
    assert [m.text for m in again.messages] == ["hello", "two", "more", "four"]
    assert len(again.siblings(again.messages[1].id)) == 3


def test_picking_while_the_others_go_on(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    """The picked one is answered meanwhile; the one that was shown first and the other end where they are."""
    first, second, third = ask(chat, backend)
    for request in (first, second, third):
        apply(chat, [*prompt_events(request), delta(request, "a")])
    chat.pick(chat.alternatives[2].message.id).result(WAIT)
    assert chat.live is not None
    assert chat.live.turn == third.turn
    apply(chat, [delta(third, "c"), finished(third)])
    assert texts(chat.messages)[-1] == ("assistant", "ac", "stop")
    assert chat.live is None
    assert chat.is_working
    fourth = backend.requests[-1:] and answer(chat, backend, chat.submit("more"), "four")
    assert [m.text for m in fourth.messages] == ["hello", "ac", "more"]
    assert replies(chat) == [("a", None, False), ("a", None, False)]
    apply(chat, [delta(first, "b"), finished(first), finished(second, "length")])
    assert not chat.is_working
    assert [m.text for m in chat.messages] == ["hello", "ac", "more", "four"]
    kept = {m.text: m.finish for m in messages_of(store, chat) if m.role == "assistant"}
    assert kept == {"ab": "stop", "a": "length", "ac": "stop", "four": "stop"}


def test_picking_back_and_forth_while_they_are_written(chat: Conversation, backend: FakeBackend) -> None:
    first, second, _ = ask(chat, backend)
    ids = [each.message.id for each in chat.alternatives]
    apply(chat, [*prompt_events(first), *prompt_events(second), delta(first, "1"), delta(second, "2")])
    for place, text in ((1, "2"), (0, "1"), (2, ""), (1, "2")):
        chat.pick(ids[place])
        assert (chat.messages[-1].id, chat.messages[-1].text) == (ids[place], text)
        assert chat.siblings(ids[place]) == tuple(ids)
    apply(chat, [delta(first, "1"), delta(second, "2")])
    assert replies(chat) == [("11", None, False), ("22", None, True), ("", None, False)]


def test_the_versions_of_a_message_lead_to_one_that_is_written(chat: Conversation, backend: FakeBackend) -> None:
    first, second, third = ask(chat, backend)
    apply(chat, [*prompt_events(first), *prompt_events(second), delta(second, "two")])
    chat.show_sibling(chat.messages[-1].id, 1)
    assert (chat.messages[-1].text, chat.messages[-1].finish) == ("two", None)
    assert chat.live is not None
    assert chat.live.turn == second.turn
    apply(chat, [finished(second)])
    answer(chat, backend, chat.submit("more"), "four")
    chat.show_sibling(chat.messages[1].id, -1).result(WAIT)  # by the disk: something follows the one that was shown
    apply(chat, [delta(first, "one")])
    assert (chat.messages[-1].text, chat.messages[-1].finish) == ("one", None)
    assert chat.live is not None
    assert chat.live.turn == first.turn
    apply(chat, [finished(first), finished(third)])
    assert texts(chat.messages) == [("user", "hello", ""), ("assistant", "one", "stop")]


def test_what_was_changed_meanwhile_stays_with_a_pick(chat: Conversation, backend: FakeBackend) -> None:
    requests = ask(chat, backend)
    chat.rename("Another title").result(WAIT)
    for request in requests:
        apply(chat, turn_events(request))
    chat.pin(chat.messages[0].id, True).result(WAIT)
    chat.pick(chat.alternatives[2].message.id).result(WAIT)
    assert chat.chat.title == "Another title"
    assert chat.messages[0].pinned


def test_only_one_of_them_can_be_picked(chat: Conversation, backend: FakeBackend) -> None:
    answer(chat, backend, chat.submit("hello"))
    with pytest.raises(KvchatError, match="none of the answers"):
        chat.pick(chat.messages[-1].id)


def test_not_in_place_of_an_answer_that_is_written_elsewhere(chat: Conversation, backend: FakeBackend) -> None:
    first, second, third = ask(chat, backend)
    apply(chat, turn_events(first, ["one"]))
    ids = [each.message.id for each in chat.alternatives]
    chat.submit("more").result(WAIT)
    more = backend.requests[-1]
    with pytest.raises(KvchatError, match="an answer is being written"):
        chat.pick(ids[1])
    apply(chat, turn_events(more, ["four"]))
    chat.pick(ids[1]).result(WAIT)
    apply(chat, [*turn_events(second, ["two"]), *turn_events(third, ["three"])])
    assert texts(chat.messages) == [("user", "hello", ""), ("assistant", "two", "stop")]


def test_not_twice_at_once(chat: Conversation, backend: FakeBackend) -> None:
    first, *_ = ask(chat, backend)
    with pytest.raises(KvchatError, match="being written"):
        chat.ask_alternatives(THREE)
    apply(chat, turn_events(first))
    with pytest.raises(KvchatError, match="other answers are still being written"):
        chat.ask_alternatives(THREE)


# ------------------------------------------------------------------ ending


def test_stop_stops_all(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    requests = ask(chat, backend)
    for request in requests:
        apply(chat, [*prompt_events(request), delta(request, "so far")])
    chat.stop()
    assert sorted(backend.cancelled) == sorted(request.turn for request in requests)
    apply(chat, [finished(request, "cancelled") for request in requests])
    assert replies(chat) == [("so far", "cancelled", shown) for shown in (True, False, False)]
    assert {m.finish for m in messages_of(store, chat)} == {"", "cancelled"}
    with pytest.raises(KvchatError, match="no answer is being written"):
        chat.stop()


def test_stop_one_of_them(chat: Conversation, backend: FakeBackend) -> None:
    first, second, third = ask(chat, backend)
    chat.stop(chat.alternatives[1].message.id)
    assert backend.cancelled == [second.turn]
    apply(chat, [finished(second, "cancelled")])
    assert chat.is_working
    with pytest.raises(KvchatError, match="no answer is being written"):
        chat.stop(chat.alternatives[1].message.id)
    chat.stop(chat.alternatives[0].message.id)
    assert backend.cancelled == [second.turn, first.turn]
    apply(chat, [finished(first, "cancelled"), *turn_events(third, ["three"])])
    assert replies(chat) == [("", "cancelled", True), ("", "cancelled", False), ("three", "stop", False)]


def test_each_tells_its_own_failure(chat: Conversation, backend: FakeBackend) -> None:
    first, second, third = ask(chat, backend)
    apply(chat, turn_events(first))
    apply(chat, [TurnFinished(second.turn, "died", finished(second).usage, Failure("it died"))])
    apply(chat, [TurnFinished(third.turn, "error", finished(third).usage, Failure("no room", "a larger context"))])
    assert [each.failure and each.failure.message for each in chat.alternatives] == [None, "it died", "no room"]
    assert [each.message.finish for each in chat.alternatives] == ["stop", "died", "error"]


def test_a_process_that_is_gone_leaves_all_unfinished(chat: Conversation, backend: FakeBackend) -> None:
    """Found as a reply that was not finished, each of them, and gone on with."""
    store = chat.store
    for request in ask(chat, backend):
        apply(chat, [*prompt_events(request), delta(request, "so far")])
    store.run(lambda _: None).result(WAIT)
    again = reopened(store, backend, chat)
    assert texts(again.messages) == [("user", "hello", ""), ("assistant", "so far", None)]
    again.show_sibling(again.messages[-1].id, 1).result(WAIT)
    assert texts(again.messages) == [("user", "hello", ""), ("assistant", "so far", None)]
    again.resume().result(WAIT)
    assert backend.requests[-1].continue_reply
    assert backend.requests[-1].alternative_of is None


# ------------------------------------------------------------------ without a model, without a disk


def test_they_wait_for_the_model_in_their_order(store: StoreThread) -> None:
    backend = FakeBackend()
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.ask_alternatives(THREE, "hello").result(WAIT)
    assert backend.requests == []
    chat.pick(chat.alternatives[2].message.id).result(WAIT)
    backend.ready = make_ready()
    chat.apply(backend.ready)
    backend.wait(3)
    assert [request.sampling for request in backend.requests] == list(THREE)


def test_no_model_ever_comes(store: StoreThread) -> None:
    backend = FakeBackend()
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.ask_alternatives(THREE, "hello").result(WAIT)
    chat.apply(LoadFailed(Failure("no such file")))
    assert [each.message.finish for each in chat.alternatives] == ["error"] * 3
    assert not chat.is_working


def test_stop_while_they_wait(store: StoreThread) -> None:
    backend = FakeBackend()
    chat = Conversation.start(store, backend, sampling=GREEDY)
    chat.ask_alternatives(THREE, "hello").result(WAIT)
    chat.stop()
    backend.ready = make_ready()
    chat.apply(backend.ready)
    store.run(lambda _: None).result(WAIT)
    assert backend.requests == []
    assert [each.message.finish for each in chat.alternatives] == ["cancelled"] * 3


def test_what_cannot_be_saved_is_not_asked(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    answer(chat, backend, chat.submit("hello"), "old")
    before, hold = chat.messages, threading.Event()
    chat._open.chat = replace(chat.chat, id="not\ud800there")  # nothing with this id can be written
    store.run(lambda _: hold.wait(WAIT))
    asked = chat.ask_alternatives(THREE)
    hold.set()
    with pytest.raises(Exception):  # noqa: B017 (whatever SQLite says)
        asked.result(WAIT)
    assert chat.alternatives == ()
    assert chat.live is None
    assert chat.messages == before
    assert len(backend.requests) == 1


def test_what_is_refused_ends_each(chat: Conversation, backend: FakeBackend) -> None:
    backend.refuse = KvchatError("the engine takes nothing")
    with pytest.raises(KvchatError, match="takes nothing"):
        chat.ask_alternatives(THREE, "hello").result(WAIT)
    assert [each.message.finish for each in chat.alternatives] == ["error"] * 3
    assert chat.live is None


def test_what_is_deleted_is_not_written_on(chat: Conversation, backend: FakeBackend) -> None:
    """The message goes with all its answers, those that are being written elsewhere among them."""
    first, second, third = ask(chat, backend)
    apply(chat, turn_events(first))
    chat.delete(chat.messages[0].id).result(WAIT)
    assert sorted(backend.cancelled) == sorted([second.turn, third.turn])
    assert chat.messages == ()


def test_what_is_deleted_cannot_be_picked_until_it_is_back(
    store: StoreThread, chat: Conversation, backend: FakeBackend
) -> None:
    """It would be shown where it is no more, and what is said below it would be lost with it."""
    first, second, _ = ask(chat, backend)
    shown, other, _ = (each.message.id for each in chat.alternatives)
    apply(chat, turn_events(first))
    chat.delete(chat.messages[0].id).result(WAIT)
    assert chat.alternatives == ()
    with pytest.raises(KvchatError, match="none of the answers"):
        chat.pick(other)
    assert chat.messages == ()
    with pytest.raises(KvchatError, match="not there any more"):
        store.run(ChatStore.show, chat.chat.id, other).result(WAIT)
    chat.undo_delete().result(WAIT)
    assert chat.messages[-1].id == shown
    chat.pick(other).result(WAIT)
    apply(chat, [finished(second, "cancelled")])
    assert [(each.id, each.finish) for each in on_disk(store, chat)[1][1:]] == [(other, "cancelled")]

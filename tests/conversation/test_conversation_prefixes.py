"""Prefixes between the database and the engine: chats on one, what counts as a use, what becomes of a pin."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pytest
from conversing import GREEDY, WAIT, answer, apply, on_disk, reopened, request_of
from fake_backend import FakeBackend, delta, finished, make_ready, prompt_events

from kvchat.backend.protocol import Pinned, Pinning
from kvchat.backend.values import Failure, FinishReason, Usage
from kvchat.chats.prefixes import Computation, Document, Prefix
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.prefixes import PinsInTheMaking, computed_for, new_prefix, not_computed
from kvchat.errors import KvchatError

SPACE = "5" * 16
COMPUTED = Computation("0" * 32, "f16", "f16", SPACE, "fake-1b", "fake-1b.gguf", 100, 2048, 4.0, 1.0, b"k" * 32)


@pytest.fixture
def prefix(store: StoreThread) -> Prefix:
    made = new_prefix("brief", "Be brief.", [Document("a", "```text a\nA\n```")])
    store.run(lambda chats: chats.prefixes.put(made)).result(WAIT)
    store.run(lambda chats: chats.prefixes.computed(made.id, COMPUTED)).result(WAIT)
    return kept(store, made.id)


def kept(store: StoreThread, prefix: str) -> Prefix:
    found = store.run(lambda chats: chats.prefixes.get(prefix)).result(WAIT)
    assert found is not None
    return found


def chat_on(prefix: Prefix, store: StoreThread, backend: FakeBackend) -> Conversation:
    return Conversation.start(store, backend, sampling=GREEDY, system=prefix.text, clock=prefix.clock, prefix=prefix.id)


def answer_with(chat: Conversation, backend: FakeBackend, reused: int, text: str = "Hi") -> None:
    request = request_of(backend, chat.submit(text))
    end = finished(request)
    usage = replace(end.usage, reused=reused, pages=reused)
    apply(chat, [*prompt_events(request), delta(request, "Hello."), replace(end, usage=usage)])


def test_a_chat_begins_with_the_text_and_has_the_clock(
    store: StoreThread, backend: FakeBackend, prefix: Prefix
) -> None:
    chat = chat_on(prefix, store, backend)
    request = answer(chat, backend, chat.submit("Hi"), "Hello.")
    assert (request.messages[0].role, request.messages[0].text) == ("system", "Be brief.\n\n```text a\nA\n```")
    assert request.clock == prefix.clock
    assert on_disk(store, chat)[0].prefix == prefix.id
    assert reopened(store, backend, chat).chat.prefix == prefix.id


def test_a_first_answer_that_had_it_counts(store: StoreThread, backend: FakeBackend, prefix: Prefix) -> None:
    """100 tokens took 4 seconds: 50 of them save two. What comes later in the chat is the chat's own."""
    chat = chat_on(prefix, store, backend)
    answer_with(chat, backend, 100)
    answer_with(chat, backend, 150, "And?")
    answer_with(chat_on(prefix, store, backend), backend, 50)
    answer_with(chat_on(prefix, store, backend), backend, 0)
    found = kept(store, prefix.id)
    assert (found.uses, found.seconds_saved, found.chats) == (2, pytest.approx(6.0), 3)


def test_an_answer_that_goes_on_counts_once_and_another_one_again(
    store: StoreThread, backend: FakeBackend, prefix: Prefix
) -> None:
    chat = chat_on(prefix, store, backend)
    turns: list[tuple[Callable[[], Future[None]], FinishReason]] = [
        (partial(chat.submit, "Hi"), "length"),
        (chat.resume, "stop"),
        (chat.regenerate, "stop"),
    ]
    for begin, reason in turns:
        request = request_of(backend, begin())
        end = finished(request, reason)
        apply(chat, [*prompt_events(request), delta(request, "Hello."), replace(end, usage=reused_all(end.usage))])
    assert kept(store, prefix.id).uses == 2


def reused_all(usage: Usage) -> Usage:
    return replace(usage, reused=100, pages=100)


def test_a_chat_without_a_prefix_counts_for_none(store: StoreThread, backend: FakeBackend, prefix: Prefix) -> None:
    answer_with(Conversation.start(store, backend, sampling=GREEDY, system=prefix.text), backend, 100)
    assert kept(store, prefix.id).uses == 0


def test_another_system_prompt_takes_a_chat_off_it(store: StoreThread, backend: FakeBackend, prefix: Prefix) -> None:
    chat = chat_on(prefix, store, backend)
    chat.set_system(prefix.text).result(WAIT)
    assert chat.chat.prefix == prefix.id
    answer_with(chat, backend, 100)
    chat.set_system("Be long.").result(WAIT)
    assert (chat.chat.prefix, on_disk(store, chat)[0].prefix) == (None, None)
    other = chat_on(prefix, store, backend)
    answer_with(other, backend, 100)
    assert reopened(store, backend, other, system="Be long.").chat.prefix is None
    assert reopened(store, backend, other, system=prefix.text).chat.prefix == prefix.id


def test_what_a_prefix_must_have() -> None:
    with pytest.raises(KvchatError, match="without text"):
        new_prefix("brief", " \n", [])
    with pytest.raises(KvchatError, match="cannot be called"):
        new_prefix("a/b", "Be brief.")
    made = new_prefix(" My  brief ", "Be\ud800 brief.\n")
    assert (made.name, made.text) == ("My brief", "Be\ufffd brief.")
    assert made.clock == made.created > 0


def test_for_which_model_it_is_computed(prefix: Prefix) -> None:
    ready = make_ready()
    there = replace(ready, cache=replace(ready.cache, namespace=SPACE))
    assert (computed_for(prefix, there), not_computed(prefix, there)) == (COMPUTED, "")
    for other, said in (
        (replace(there, model=replace(there.model, fingerprint="1" * 32)), "it is not computed for this model"),
        (replace(there, cache=replace(there.cache, type_v="q8_0")), "it is not computed for this cache type"),
        (ready, "it was computed in another configuration"),
        (replace(ready, cache=replace(ready.cache, namespace="")), "KV on disk is not used now"),
    ):
        assert (computed_for(prefix, other), not_computed(prefix, other)) == (None, said)
    assert not_computed(replace(prefix, computations=()), there) == "it is not computed yet"


def done(turn: str, prefix: Prefix) -> Pinned:
    return Pinned(
        turn, prefix.id, 120, 20, 4096, 5.0, SPACE, b"l" * 32, "fake-1b", "fake-1b.gguf", "0" * 32, "f16", "f16"
    )


def test_what_the_engine_computed_is_kept(store: StoreThread, backend: FakeBackend, prefix: Prefix) -> None:
    pins = PinsInTheMaking(store, backend)
    turn = pins.begin(prefix)
    (command,) = backend.pins
    assert (command.turn, command.prefix, command.system, command.clock) == (
        turn,
        prefix.id,
        prefix.text,
        prefix.clock,
    )
    assert pins.apply(Pinning("other", 1, 2)) is None
    told = Pinning(turn, 40, 120, 40)
    assert pins.apply(told) is not None
    assert [each.told for each in pins.making] == [told]
    taken = pins.apply(done(turn, prefix))
    assert taken is not None
    assert taken[1] is not None
    taken[1].result(WAIT)
    (found,) = kept(store, prefix.id).computations
    assert (found.tokens, found.size, found.seconds, found.last_key) == (120, 4096, 5.0, b"l" * 32)
    assert pins.making == ()


def test_a_pin_that_failed_or_was_cancelled_keeps_nothing(store: StoreThread, backend: FakeBackend) -> None:
    pins = PinsInTheMaking(store, backend)
    made = new_prefix("other", "Be long.")
    for failure in (None, Failure("the disk is full")):
        turn = pins.begin(made)
        pins.cancel(turn)
        taken = pins.apply(Pinned(turn, made.id, failure=failure), new=True)
        assert taken is not None
        assert taken[1] is None
    assert backend.cancelled == [command.turn for command in backend.pins]
    pins.cancel("nothing")
    assert len(backend.cancelled) == 2
    assert store.run(lambda chats: chats.prefixes.named("other")).result(WAIT) is None


def test_a_new_one_is_kept_with_its_computation_in_place_of_the_old_one(
    store: StoreThread, backend: FakeBackend, prefix: Prefix
) -> None:
    pins = PinsInTheMaking(store, backend)
    made = new_prefix("BRIEF", "Be long.")
    turn = pins.begin(made)
    assert kept(store, prefix.id).system == "Be brief."
    taken = pins.apply(done(turn, made), new=True)
    assert taken is not None
    assert taken[1] is not None
    taken[1].result(WAIT)
    (found,) = store.run(lambda chats: chats.prefixes.all()).result(WAIT)
    assert (found.id, found.system, len(found.computations)) == (made.id, "Be long.", 1)


def test_events_of_pins_change_no_conversation(chat: Conversation) -> None:
    assert not chat.apply(Pinning("x", 1, 2))
    assert not chat.apply(Pinned("x", "y"))

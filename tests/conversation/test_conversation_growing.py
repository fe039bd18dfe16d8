"""A reply that is being written: its text and ids at any time, and what of its usage adds up over turns."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conversing import answer, apply, known, on_disk, reopened, request_of
from fake_backend import FakeBackend, delta, finished, prompt_events, text_ids

from kvchat.backend.protocol import TextDelta
from kvchat.backend.values import Failure, Usage
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation, read_usage
from kvchat.conversation.growing import GrowingReply
from kvchat.conversation.turns import ids_key


@pytest.mark.parametrize("seed", range(10))
def test_what_was_taken_stays_as_it_was(seed: int) -> None:
    """Any order of growing, taking and reading; what was taken is made at the very end."""
    chance = random.Random(seed)
    reply, text, ids = GrowingReply("begun "), "begun ", [7, 8]
    reply.know_ids(ids)
    taken = []
    for number in range(200):
        match chance.randrange(3):
            case 0:
                piece = f"{number} 键🚀"
                reply.add(piece, (number, number + 1))
                text, ids = text + piece, [*ids, number, number + 1]
            case 1:
                taken.append((reply.so_far(), text, ids))
            case _:
                assert reply.text == text
    assert [(so_far()[0], list(so_far()[1] or ())) for so_far, _, _ in taken] == [(text, ids) for _, text, ids in taken]


def test_ids_are_not_known_before_the_prompt_is_tokenized() -> None:
    reply = GrowingReply()
    reply.add("a", (1,))
    assert reply.so_far()() == ("a", None)
    reply.know_ids(())
    reply.add("b", (2,))
    text, ids = reply.so_far()()
    assert (text, list(ids or ())) == ("ab", [2])


def test_the_message_is_what_has_come_whenever_it_is_looked_at(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, prompt_events(request))
    shown = ""
    for number in range(50):
        piece = f"word {number} "
        shown += piece
        apply(chat, [delta(request, piece)])
        if number % 3 == 0:
            assert (chat.messages[-1].text, chat.messages[-1].model) == (shown, "fake-1b")
    apply(chat, [finished(request)])
    assert chat.messages[-1].text == shown
    assert on_disk(store, chat)[1] == chat.messages
    assert known(store, chat, ids_key("fakevocab", ""))[chat.messages[-1].id].ids == text_ids(shown)


def test_how_much_of_a_reply_is_reasoning_is_told_while_it_is_written_and_kept(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    """The seconds of two turns that wrote one reply add up; the tokens are those of the whole reply."""
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), TextDelta(request.turn, "<think>a b", (1, 2, 3), 2)])
    assert chat.live is not None and chat.live.thought == 2
    ended = finished(request, "cancelled")
    apply(chat, [replace(ended, usage=replace(ended.usage, reasoning_tokens=2, reasoning_seconds=1.5))])
    request = request_of(backend, chat.resume())
    ended = finished(request)
    apply(chat, [*prompt_events(request), TextDelta(request.turn, " c</think>d", (4, 5, 6), 3)])
    apply(chat, [replace(ended, usage=replace(ended.usage, reasoning_tokens=3, reasoning_seconds=0.5))])
    usage = read_usage(reopened(store, backend, chat).messages[-1])
    assert usage is not None
    assert (usage.reasoning_tokens, usage.reasoning_seconds) == (3, 2.0)


def test_a_reply_that_cannot_go_on_keeps_what_it_cost(backend: FakeBackend, chat: Conversation) -> None:
    """The prompt with the reply so far did not fit: nothing about the reply has changed."""
    answer(chat, backend, chat.submit("Hi"), "Once upon", reason="context")
    before = chat.messages[-1]
    request = request_of(backend, chat.resume())
    failure, usage = Failure("too long"), Usage(prompt_tokens=99, excess=9)
    apply(chat, [replace(finished(request, "context", failure), usage=usage)])
    assert chat.messages[-1] == before


def test_a_message_that_did_not_fit_says_so_when_the_chat_is_opened_again(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    request = request_of(backend, chat.submit("far too long"))
    failure, usage = Failure("too long"), Usage(prompt_tokens=99, excess=9)
    apply(chat, [replace(finished(request, "context", failure), usage=usage)])
    question, reply = reopened(store, backend, chat).messages
    assert (question.text, reply.text, reply.finish) == ("far too long", "", "context")
    assert read_usage(reply) == usage

"""Conversation: a summary in place of the oldest messages, pinned messages, and what the model reads of both."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conversing import GREEDY, WAIT, answer, known, reopened, request_of
from fake_backend import REPLY_TURN, USER_TURN, FakeBackend, make_ready, text_ids, turn_events

from kvchat.backend.protocol import Summarized, Summarizing
from kvchat.backend.values import Failure
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message, Summary
from kvchat.conversation import Choice, Conversation, Seen, Sight
from kvchat.conversation.summarized import pinned_text, reading
from kvchat.conversation.summary_choice import QUESTION, choose, obstacle
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError
from kvchat.formats.transcript_json import read_json, write_json

CONTEXT = 1200
LONG = "word " * 30  # 150 bytes, so as many made-up tokens
HEAD = "Summary of the earlier conversation:\n"
SHORT = "Four turns about words."


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(make_ready(context=CONTEXT))


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    """Six turns of some 160 tokens each."""
    chat = Conversation.start(store, backend, sampling=GREEDY, system="Be brief.")
    for number in range(6):
        answer(chat, backend, chat.submit(f"{number} {LONG}"), f"answer {number}")
    return chat


def asked(chat: Conversation, backend: FakeBackend) -> Choice:
    return chat.summarize().result(WAIT)


def told(chat: Conversation, backend: FakeBackend, text: str = SHORT, tokens: int = 20) -> bool:
    return chat.apply(Summarized(backend.summaries[-1].turn, text, tokens))


def summarized(chat: Conversation, backend: FakeBackend, text: str = SHORT) -> Choice:
    choice = asked(chat, backend)
    assert told(chat, backend, text)
    chat.take_summary(text).result(WAIT)
    return choice


def prompt(backend: FakeBackend) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in backend.requests[-1].messages]


def test_the_oldest_turns_are_asked_for_with_their_ids(chat: Conversation, backend: FakeBackend) -> None:
    choice = asked(chat, backend)
    command = backend.summaries[-1]
    assert [message.role for message in command.messages] == ["system"] + ["user", "assistant"] * (choice.messages // 2)
    assert all(message.ids is not None for message in command.messages)
    assert command.most == choice.most
    assert choice.last == chat.messages[choice.messages - 1].id
    total = sum(len(each.ids or ()) for each in known(store_of(chat), chat, ids_key("fakevocab", "Be brief.")).values())
    assert choice.read + choice.stays == total
    assert choice.stays <= CONTEXT // 4 < choice.stays + 2 * len(LONG)  # a quarter of the context stays, not less


def store_of(chat: Conversation) -> StoreThread:
    return chat._store


def test_nothing_changes_until_it_is_taken(chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    turn = backend.summaries[-1].turn
    assert chat.apply(Summarizing(turn, 50, 100))
    assert chat.summary_progress == 0.5
    assert told(chat, backend)
    assert chat.summary_progress is None
    assert chat.proposal is not None and (chat.proposal.text, chat.proposal.tokens) == (SHORT, 20)
    answer(chat, backend, chat.submit("next"), "answer")
    assert len(prompt(backend)) == 14  # the system prompt, six turns and the question
    assert chat.proposal is not None  # it still fits


def test_what_is_read_from_then_on(chat: Conversation, backend: FakeBackend) -> None:
    choice = summarized(chat, backend)
    request = request_of(backend, chat.submit("next"))
    read = prompt(backend)
    assert read[0] == ("system", f"Be brief.\n\n{HEAD}{SHORT}")
    assert [text for _, text in read[1:-1]] == [message.text for message in chat.messages[choice.messages : -2]]
    assert read[-1] == ("user", "next")
    assert request.past_cut == "summary"
    assert [message.text for message in chat.messages[:2]] == [f"0 {LONG}", "answer 0"]  # the originals stay


def test_from_the_next_turn_on_the_ids_are_known(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    choice = summarized(chat, backend)
    answer(chat, backend, chat.submit("next"), "answer")
    request_of(backend, chat.submit("and then?"))
    messages = backend.requests[-1].messages
    assert all(message.ids is not None for message in messages[:-1])
    first = chat.messages[choice.messages]
    head = text_ids(f"Be brief.\n\n{HEAD}{SHORT}")
    assert messages[1].ids == (*head, USER_TURN, *text_ids(first.text), REPLY_TURN)
    assert backend.requests[-1].past_cut is None


def test_it_outlives_the_program(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    summarized(chat, backend)
    again = reopened(store, backend, chat)
    assert again.summary is not None and again.summary.text == SHORT
    request_of(backend, again.submit("next"))
    assert prompt(backend)[0][1].endswith(SHORT)


def test_undo_goes_back_to_the_ids_of_before(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    before = [message.id for message in chat.messages]
    summarized(chat, backend)
    answer(chat, backend, chat.submit("next"), "answer")
    chat.undo_summary().result(WAIT)
    assert chat.summary is None
    request = request_of(backend, chat.submit("and then?"))
    ids = dict(zip([message.id for message in chat.messages], [m.ids for m in request.messages[1:]], strict=False))
    assert all(ids[message] is not None for message in before)
    assert len(request.messages) == 1 + 12 + 2 + 1
    assert request.past_cut == "summary"  # what was answered with it is read anew
    apply_end(chat, backend)
    with pytest.raises(KvchatError, match="no summary stands"):
        chat.undo_summary()


def apply_end(chat: Conversation, backend: FakeBackend) -> None:
    for event in turn_events(backend.requests[-1]):
        chat.apply(event)


def test_two_after_one_another(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    first = summarized(chat, backend)
    for number in range(6, 10):
        answer(chat, backend, chat.submit(f"{number} {LONG}"), f"answer {number}")
    second = asked(chat, backend)
    command = backend.summaries[-1]
    assert command.messages[0].text.endswith(SHORT)  # the first one is read for the second
    assert command.messages[1].text == chat.messages[first.messages].text
    assert second.replaced > 20
    told(chat, backend, "Eight turns.", 10)
    chat.take_summary("Eight turns.").result(WAIT)
    request_of(backend, chat.submit("next"))
    assert prompt(backend)[0][1] == f"Be brief.\n\n{HEAD}Eight turns."
    assert len(chat.reading.replaced) == first.messages + second.messages
    apply_end(chat, backend)
    chat.undo_summary().result(WAIT)
    assert chat.summary is not None and chat.summary.text == SHORT  # the one from before stands again
    assert reopened(store, backend, chat).summary == chat.summary


def test_an_edit_before_its_end_does_without(chat: Conversation, backend: FakeBackend) -> None:
    choice = summarized(chat, backend)
    request_of(backend, chat.edit(chat.messages[choice.messages - 2].id, "something else"))
    assert prompt(backend)[0] == ("system", "Be brief.")
    apply_end(chat, backend)
    assert chat.summary is None
    chat.show_sibling(chat.messages[choice.messages - 2].id, -1).result(WAIT)
    assert chat.summary is not None


def test_an_edit_behind_it_has_it(chat: Conversation, backend: FakeBackend) -> None:
    choice = summarized(chat, backend)
    request_of(backend, chat.edit(chat.messages[choice.messages].id, "something else"))
    assert prompt(backend) == [("system", f"Be brief.\n\n{HEAD}{SHORT}"), ("user", "something else")]


def test_other_words_for_it(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    summarized(chat, backend)
    chat.edit_summary("Other words, as long.").result(WAIT)
    request_of(backend, chat.submit("next"))
    assert prompt(backend)[0][1].endswith("Other words, as long.")
    assert reopened(store, backend, chat).summary == chat.summary


def test_the_words_of_the_person_are_taken(chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    told(chat, backend)
    chat.take_summary("  My own words.\n").result(WAIT)
    assert chat.summary is not None and chat.summary.text == "My own words."


@pytest.mark.parametrize(
    ("text", "why"), [("  \n", "an empty summary"), ("long " * 1000, "longer than what it stands for")]
)
def test_words_that_are_refused(chat: Conversation, backend: FakeBackend, text: str, why: str) -> None:
    asked(chat, backend)
    told(chat, backend)
    assert why in chat.summary_problem(text)
    with pytest.raises(KvchatError, match=why):
        chat.take_summary(text)
    assert chat.proposal is not None and chat.summary is None


def test_one_that_makes_no_room_is_refused_with_the_reason(chat: Conversation, backend: FakeBackend) -> None:
    choice = asked(chat, backend)
    told(chat, backend, "many words", choice.replaced)
    assert chat.proposal is None
    assert chat.summary_failure is not None and "it makes no room" in chat.summary_failure.message


def test_one_without_words_is_refused(chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    told(chat, backend, " \n", 1)
    assert chat.proposal is None and chat.summary_failure is not None


def test_a_failure_is_kept(chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    failure = Failure("the engine was killed by SIGKILL")
    assert chat.apply(Summarized(backend.summaries[-1].turn, failure=failure))
    assert (chat.proposal, chat.summary_failure, chat.summary_progress) == (None, failure, None)
    asked(chat, backend)  # another one can be asked for
    assert chat.summary_failure is None


def test_one_that_is_dropped_is_cancelled_and_its_answer_not_taken(chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    chat.drop_summary()
    assert backend.cancelled == [backend.summaries[-1].turn]
    assert not told(chat, backend)
    assert chat.proposal is None and chat.summary_progress is None


def test_one_at_a_time_and_not_without_a_reason(store: StoreThread, chat: Conversation, backend: FakeBackend) -> None:
    asked(chat, backend)
    with pytest.raises(KvchatError, match="being written"):
        chat.summarize()
    new = Conversation.start(store, backend, sampling=GREEDY)
    answer(new, backend, new.submit("one"), "answer")
    with pytest.raises(KvchatError, match="nothing that a summary could stand for"):
        new.summarize().result(WAIT)
    assert new.summary_progress is None


def test_a_model_without_room_beside_the_chat(chat: Conversation, backend: FakeBackend) -> None:
    assert backend.ready is not None
    backend.ready = replace(backend.ready, cache=replace(backend.ready.cache, pages=False))
    with pytest.raises(KvchatError, match="no room beside the chat"):
        chat.summarize()


def test_sight_and_forecast_know_it(chat: Conversation, backend: FakeBackend) -> None:
    choice = summarized(chat, backend)
    sight = chat.sight().result(WAIT)
    assert sight.replaced == {message.id for message in chat.messages[: choice.messages]}
    assert sight.summary == chat.summary
    chat.forecast("next")
    store_of(chat).run(lambda _: None).result(WAIT)
    assert backend.forecasts[-1].messages[0].text.endswith(SHORT)
    assert backend.forecasts[-1].past_cut == "summary"


def test_a_continued_reply_reads_it_too(chat: Conversation, backend: FakeBackend) -> None:
    answer(chat, backend, chat.submit("long one"), "It begins", reason="context")
    summarized(chat, backend)
    request = request_of(backend, chat.resume())
    assert request.continue_reply
    assert prompt(backend)[0][1].endswith(SHORT)
    assert prompt(backend)[-1] == ("assistant", "It begins")


# ---------------------------------------------------------------------- pins


def test_a_pinned_message_is_told_and_outlives_the_program(
    chat: Conversation, backend: FakeBackend, store: StoreThread
) -> None:
    chat.pin(chat.messages[2].id, True).result(WAIT)
    request_of(backend, chat.submit("next"))
    assert backend.requests[-1].pinned == (3,)  # the system prompt is number 0
    apply_end(chat, backend)
    again = reopened(store, backend, chat)
    assert [message.pinned for message in again.messages[:4]] == [False, False, True, False]
    again.pin(again.messages[2].id, False).result(WAIT)
    request_of(backend, again.submit("next"))
    assert backend.requests[-1].pinned == ()


def test_not_during_a_turn(chat: Conversation, backend: FakeBackend) -> None:
    request_of(backend, chat.submit("next"))
    with pytest.raises(KvchatError, match="an answer is being written"):
        chat.pin(chat.messages[0].id, True)


def test_pinned_messages_stand_beside_a_summary(chat: Conversation, backend: FakeBackend) -> None:
    chat.pin(chat.messages[0].id, True).result(WAIT)
    chat.pin(chat.messages[1].id, True).result(WAIT)
    choice = summarized(chat, backend)
    request = request_of(backend, chat.submit("next"))
    words = f"From that conversation, word for word:\n\nUser: 0 {LONG.strip()}\n\nAssistant: answer 0"
    assert prompt(backend)[0] == ("system", f"Be brief.\n\n{HEAD}{SHORT}\n\n{words}")
    assert request.pinned == ()
    assert choice.replaced < choice.read - len(LONG)  # they make no room


def test_an_export_and_a_copy_have_both(chat: Conversation, backend: FakeBackend, store: StoreThread) -> None:
    chat.pin(chat.messages[0].id, True).result(WAIT)
    summarized(chat, backend)
    transcript = store.run(ChatStore.export, chat.chat.id).result(WAIT)
    back = read_json(json.loads(write_json(transcript)))
    assert back == transcript
    assert back.messages[0].pinned and back.summaries[0].text == SHORT
    copied = store.run(ChatStore.duplicate, chat.chat.id).result(WAIT)
    copy = Conversation.open(store, backend, copied.id, sampling=GREEDY).result(WAIT)
    assert copy.summary is not None and copy.summary.text == SHORT and copy.messages[0].pinned
    foreign = replace(back, id="another", source="chatgpt")
    (taken,) = store.run(ChatStore.take_in, [foreign]).result(WAIT)
    imported = Conversation.open(store, backend, taken.chat, sampling=GREEDY).result(WAIT)
    assert imported.summary is not None and imported.summary.text == SHORT and imported.messages[0].pinned


# ---------------------------------------------------------------------- the arithmetic


def message(number: int, **more: object) -> Message:
    role = "assistant" if number % 2 else "user"
    return replace(Message(str(number), "c", None, role, f"text {number}", 0.0, "stop"), **more)  # type: ignore[arg-type]


def seen(*tokens: int) -> Sight:
    return Sight({str(number): Seen(0, each, each) for number, each in enumerate(tokens)})


def test_so_many_turns_go_that_a_quarter_of_the_context_stays() -> None:
    messages = [message(number) for number in range(8)]
    choice = choose(messages, seen(*[100] * 8), 1000)
    assert choice is not None
    assert (choice.messages, choice.read, choice.replaced, choice.stays) == (6, 600, 600, 200)
    assert choice.most == 125  # an eighth of the context is less than a quarter of 600
    assert choice.again == 125 + 200


def test_what_is_read_must_fit_with_the_question() -> None:
    messages = [message(number) for number in range(8)]
    choice = choose(messages, seen(*[100] * 8), 512)
    assert choice is not None
    assert choice.messages == 2 and choice.read + QUESTION + choice.most <= 512


def test_a_turn_as_long_as_the_context_has_no_room_for_its_summary() -> None:
    """400 tokens, the question of 112, a summary of at least 48: more than 512."""
    messages = [message(number) for number in range(3)]
    sight = seen(200, 200, 20)
    assert choose(messages, sight, 512) is None
    assert "has 400 tokens: the context has no room beside it" in obstacle(messages, sight, 512).message
    assert "nothing that a summary" in obstacle(messages[:2], sight, 512).message


def test_the_last_turn_stays_and_a_turn_is_not_divided() -> None:
    messages = [message(number) for number in range(3)]
    choice = choose(messages, seen(100, 100, 700), 1000)
    assert choice is not None and choice.messages == 2
    assert choose(messages[:2], seen(100, 700), 1000) is None
    assert choose([], Sight(), 1000) is None


def test_small_turns_make_no_room() -> None:
    assert choose([message(number) for number in range(4)], seen(20, 20, 400, 10), 1000) is None


def test_pinned_messages_and_the_system_prompt_are_not_replaced() -> None:
    messages = [message(0, pinned=True), *(message(number) for number in range(1, 6))]
    sight = seen(*[100] * 6)
    kept = Sight({**sight.messages, "0": Seen(0, 100, 100, kept=60)})
    choice = choose(messages, kept, 800)
    assert choice is not None
    assert (choice.read, choice.replaced) == (100 * choice.messages, 100 * (choice.messages - 1))


@pytest.mark.parametrize("text", ["<think>Hm.</think>\n\nYes.", "Hm.\n</think>\n\nYes."])
def test_a_pinned_answer_stands_without_its_reasoning(text: str) -> None:
    """Whoever opened the block: a template does so where the reply holds only its end."""
    assert pinned_text(message(1, text=text)) == "Assistant: Yes."


def test_a_summary_of_all_that_there_is_does_not_count() -> None:
    messages = [message(0), message(1)]
    summary = Summary("s", "1", "text", 0.0)
    assert reading("", messages, [summary]).summary is None
    assert reading("", [*messages, message(2)], [summary]).system == f"{HEAD}text"

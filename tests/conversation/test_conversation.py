"""Conversation: every way a turn can go, and what is on disk afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from conversing import GREEDY, WAIT, answer, apply, known, on_disk, reopened, request_of, texts
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

from kvchat.backend.protocol import EngineDied, Generate, LoadFailed, Loading, TextDelta, TurnFinished
from kvchat.backend.values import Failure, FinishReason, PromptMessage, Sampling, Usage
from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError

# ------------------------------------------------------------------ a turn


def test_a_turn(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="be brief", clock=77.0)
    asked = chat.submit("Hi!\nHow are you?")
    assert chat.chat.title == "Hi!"
    live = chat.live
    assert live is not None and live.phase == "queued" and live.message == chat.messages[-1].id
    assert texts(chat.messages) == [("user", "Hi!\nHow are you?", ""), ("assistant", "", None)]
    asked.result(WAIT)
    assert on_disk(store, chat) == (chat.chat, chat.messages)  # committed, and nothing computed yet

    request = backend.requests[-1]
    assert request == Generate(
        turn=live.turn,
        messages=(PromptMessage("system", "be brief", ()), PromptMessage("user", "Hi!\nHow are you?", None)),
        sampling=GREEDY,
        history="append",
        clock=77.0,
        keep_kv=True,
        continue_reply=False,
        past_cut=None,
    )
    phases = []
    for event in turn_events(request, ["I am ", "fine."]):
        assert chat.apply(event)
        phases.append(chat.live.phase if chat.live else "over")
    assert phases == ["prompt", "prefill", "prefill", "prefill", "decode", "decode", "over"]

    reply = chat.messages[-1]
    assert (reply.text, reply.finish, reply.model) == ("I am fine.", "stop", "fake-1b")
    expected = finished(request).usage
    assert reply.usage is not None and json.loads(reply.usage) == asdict(expected)
    assert on_disk(store, chat) == (chat.chat, chat.messages)
    assert chat.chat.model == "fake-1b"


def test_live_shows_what_happens(backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    events = turn_events(request, ["a", "b"])
    apply(chat, events[:3])
    assert chat.live is not None
    assert (chat.live.restored, chat.live.progress, chat.messages[-1].text) == (events[1], events[2], "")
    apply(chat, events[3:-1])
    assert (chat.live.phase, chat.messages[-1].text) == ("decode", "ab")


def test_the_next_turn_brings_its_ids_along(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="S")
    answer(chat, backend, chat.submit("one"), "un", "o")
    second = request_of(backend, chat.submit("two"))
    first_ids = (*text_ids("S"), USER_TURN, *text_ids("one"), REPLY_TURN)
    expected = (
        PromptMessage("system", "S", ()),
        PromptMessage("user", "one", first_ids),
        PromptMessage("assistant", "uno", text_ids("uno")),
        PromptMessage("user", "two", None),
    )
    assert second.messages == expected
    apply(chat, turn_events(second))

    again = reopened(store, backend, chat)  # the same from disk
    third = request_of(backend, again.submit("three"))
    assert third.messages[:3] == expected[:3]
    assert third.messages[3].ids == (USER_TURN, *text_ids("two"), REPLY_TURN)


def test_ids_are_those_that_stood_in_the_context_last(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    answer(chat, backend, chat.submit("one"), "uno")
    second = request_of(backend, chat.submit("two"))
    events = turn_events(second)
    first = replace(events[0], segments=((9, 9), (9,), (4, 5)))  # type: ignore[arg-type]
    apply(chat, [first, *events[1:]])
    ids = known(store, chat, ids_key("fakevocab", ""))
    assert [ids[m.id].ids for m in chat.messages[:3]] == [(9, 9), (9,), (4, 5)]


def test_options_reach_the_engine(store: StoreThread, backend: FakeBackend) -> None:
    sampling = Sampling(seed=7, max_tokens=3)
    chat = Conversation.start(store, backend, sampling=sampling, history="exact", keep_kv=False)
    request = request_of(backend, chat.submit("Hi"))
    assert (request.sampling, request.history, request.keep_kv) == (sampling, "exact", False)


def test_the_partial_answer_is_committed_during_the_turn(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), delta(request, "Once")])
    _, (_, reply) = on_disk(store, chat)
    assert (reply.text, reply.finish, reply.model) == ("Once", None, "fake-1b")
    assert known(store, chat, ids_key("fakevocab", ""))[reply.id].ids == text_ids("Once")


def test_events_of_others_change_nothing(backend: FakeBackend, chat: Conversation) -> None:
    stranger = Generate("another turn", (PromptMessage("user", "x"),))
    for event in [*turn_events(stranger), Loading(0.5), EngineDied("killed", (), True)]:
        assert not chat.apply(event)
    request = request_of(backend, chat.submit("Hi"))
    before = (chat.chat, chat.messages, chat.live)
    for event in [*turn_events(stranger), Loading(0.5), EngineDied("killed", (), True), make_ready()]:
        assert not chat.apply(event)
    assert (chat.chat, chat.messages, chat.live) == before
    apply(chat, turn_events(request))
    for event in turn_events(request):  # its own turn, but over
        assert not chat.apply(event)


def test_one_turn_at_a_time(backend: FakeBackend, chat: Conversation) -> None:
    asked = chat.submit("Hi")
    calls: list[Callable[[], Future[None]]] = [
        lambda: chat.submit("again"),
        lambda: chat.edit(chat.messages[0].id, "x"),
        chat.regenerate,
        chat.resume,
    ]
    for call in calls:
        with pytest.raises(KvchatError, match="being written"):
            call()
    answer(chat, backend, asked)
    answer(chat, backend, chat.submit("again"))
    assert len(chat.messages) == 4


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_message_is_refused(backend: FakeBackend, chat: Conversation, text: str) -> None:
    with pytest.raises(KvchatError, match="empty"):
        chat.submit(text)
    assert chat.messages == () and chat.live is None and backend.requests == []


def test_text_that_has_no_utf8_form(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="\udcff")
    answer(chat, backend, chat.submit("caf\udce9"))
    found, messages = on_disk(store, chat)
    assert (found.system, messages[0].text) == ("\ufffd", "caf\ufffd")


# ------------------------------------------------------------------ ends


def test_the_engine_dies(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), delta(request, "Half an ans")])
    backend.ready = None
    assert not chat.apply(EngineDied("killed by SIGKILL", ("log",), True))
    assert chat.apply(TurnFinished(request.turn, "died", Usage(), Failure("the engine died")))
    assert chat.live is None
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "Half an ans", "died")]

    asked = chat.submit("Are you there?")  # while it is started again
    asked.result(WAIT)
    assert len(backend.requests) == 1
    backend.ready = make_ready()
    assert chat.apply(backend.ready)
    second = backend.wait(2)
    assert [m.ids for m in second.messages] == [
        (USER_TURN, *text_ids("Hi"), REPLY_TURN),
        text_ids("Half an ans"),
        None,
    ]
    apply(chat, turn_events(second))
    assert on_disk(store, chat)[1] == chat.messages


def test_stop(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), delta(request, "Once upon")])
    chat.stop().result(WAIT)
    assert backend.cancelled == [request.turn]
    assert chat.live is not None  # until the engine says so
    apply(chat, [delta(request, " a"), finished(request, "cancelled")])
    assert texts(on_disk(store, chat)[1])[1] == ("assistant", "Once upon a", "cancelled")
    with pytest.raises(KvchatError, match="no answer is being written"):
        chat.stop()


def test_a_message_after_an_empty_failed_reply(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    chat.apply(TurnFinished(request.turn, "error", Usage(), Failure("no")))
    second = answer(chat, backend, chat.submit("Hello?"), "Yes")
    assert [(m.role, m.text) for m in second.messages] == [("user", "Hi"), ("assistant", ""), ("user", "Hello?")]
    parents = [message.parent for message in chat.messages]
    assert parents == [None, *(message.id for message in chat.messages[:-1])]
    assert on_disk(store, chat)[1] == chat.messages


# ------------------------------------------------------------------ before the model is ready


def test_a_message_before_ready_is_committed_and_waits(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    ready, backend.ready = backend.ready, None
    chat.submit("Hi").result(WAIT)
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "", None)]
    assert not chat.apply(Loading(0.5))
    assert backend.requests == []
    assert chat.live is not None and chat.live.phase == "queued"
    assert ready is not None
    backend.ready = ready
    assert chat.apply(ready)
    apply(chat, turn_events(backend.wait(), ["Yes"]))
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "Yes", "stop")]
    assert not chat.apply(ready)  # a restart later on sends nothing twice
    assert len(backend.requests) == 1


def test_stop_before_ready(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    ready, backend.ready = backend.ready, None
    asked = chat.submit("Hi")
    chat.stop().result(WAIT)
    assert chat.live is None and backend.cancelled == []
    asked.result(WAIT)
    backend.ready = ready
    assert ready is not None and not chat.apply(ready)
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "", "cancelled")]
    assert backend.requests == []


def test_stop_while_the_message_is_being_saved(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    asked = chat.submit("Hi")
    chat.stop()
    assert chat.live is None
    with pytest.raises(KvchatError, match="still being saved"):
        chat.submit("quickly, another")
    gate.set()
    asked.result(WAIT)
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "", "cancelled")]
    assert backend.requests == [] and backend.cancelled == []
    answer(chat, backend, chat.submit("another"))


def test_the_load_fails_while_a_message_waits(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    ready, backend.ready = backend.ready, None
    chat.submit("Hi").result(WAIT)
    assert chat.apply(LoadFailed(Failure("not a GGUF", "choose another file")))
    assert chat.live is None
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "", "error")]
    with pytest.raises(KvchatError, match="not a GGUF") as caught:
        chat.submit("more")  # nobody would ever answer
    assert caught.value.hint == "choose another file"
    assert len(chat.messages) == 2

    backend.ready = ready  # another model is chosen
    assert ready is not None and not chat.apply(ready)
    answer(chat, backend, chat.resume(), "Hello")
    assert texts(on_disk(store, chat)[1]) == [("user", "Hi", ""), ("assistant", "Hello", "stop")]


def test_load_failed_does_not_end_a_turn_that_the_backend_owes(backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    assert not chat.apply(LoadFailed(Failure("gone")))
    assert chat.live is not None
    assert chat.apply(finished(request, "died"))


# ------------------------------------------------------------------ the tree


def test_regenerate(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    first = answer(chat, backend, chat.submit("Hi"), "Hello")
    old = chat.messages[-1]
    again = answer(chat, backend, chat.regenerate(), "Good day")
    assert again.messages == (replace(first.messages[0], ids=(USER_TURN, *text_ids("Hi"), REPLY_TURN)),)
    assert again.past_cut is None
    assert texts(chat.messages) == [("user", "Hi", ""), ("assistant", "Good day", "stop")]
    assert on_disk(store, chat)[1] == chat.messages
    assert chat.siblings(chat.messages[-1].id) == (old.id, chat.messages[-1].id)
    assert store.run(ChatStore.path, old.id).result(WAIT)[-1] == old


def test_edit(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("one"), "uno")
    answer(chat, backend, chat.submit("two"), "dos")
    answer(chat, backend, chat.submit("three"), "tres")
    old = chat.messages
    edited = answer(chat, backend, chat.edit(old[2].id, "zwei"), "deux")
    assert [m.text for m in edited.messages] == ["one", "uno", "zwei"]
    assert [m.ids is None for m in edited.messages] == [False, False, True]
    assert edited.past_cut == "edited"
    assert [m.text for m in chat.messages] == ["one", "uno", "zwei", "deux"]
    assert chat.messages[2].parent == old[1].id
    assert on_disk(store, chat)[1] == chat.messages
    assert store.run(ChatStore.path, old[-1].id).result(WAIT) == old  # the old branch is all there
    assert answer(chat, backend, chat.submit("more")).past_cut is None

    answer(chat, backend, chat.edit(old[0].id, "eins"), "un")  # the first message: another beginning
    assert [m.text for m in chat.messages] == ["eins", "un"]
    assert chat.siblings(chat.messages[0].id) == (old[0].id, chat.messages[0].id)


def test_edit_of_what_is_not_there_or_not_ones_own(backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"))
    for message, reason in (("nope", "not in the branch"), (chat.messages[-1].id, "cannot be edited")):
        with pytest.raises(KvchatError, match=reason):
            chat.edit(message, "x")
    with pytest.raises(KvchatError, match="empty"):
        chat.edit(chat.messages[0].id, " ")
    assert len(chat.messages) == 2 and chat.live is None


def test_nothing_to_regenerate_or_resume(backend: FakeBackend, chat: Conversation) -> None:
    with pytest.raises(KvchatError, match="no answer to write again"):
        chat.regenerate()
    with pytest.raises(KvchatError, match="no unfinished answer"):
        chat.resume()
    answer(chat, backend, chat.submit("Hi"), reason="stop")
    with pytest.raises(KvchatError, match="no unfinished answer"):
        chat.resume()


@pytest.mark.parametrize("reason", ["length", "context", "cancelled", "error", "died"])
def test_resume(store: StoreThread, backend: FakeBackend, chat: Conversation, reason: FinishReason) -> None:
    first = answer(chat, backend, chat.submit("Hi"), "Once upon", reason=reason)
    reply = chat.messages[-1]
    request = request_of(backend, chat.resume())
    assert request.turn != first.turn
    assert request.continue_reply
    assert request.messages[-1] == PromptMessage("assistant", "Once upon", text_ids("Once upon"))
    assert chat.live is not None and chat.live.message == reply.id and chat.messages[-1].text == "Once upon"
    assert on_disk(store, chat)[1][-1].finish is None
    apply(chat, turn_events(request, [" a", " time"]))
    assert [m.id for m in chat.messages] == [chat.messages[0].id, reply.id]
    assert (chat.messages[-1].text, chat.messages[-1].finish) == ("Once upon a time", "stop")
    assert on_disk(store, chat)[1] == chat.messages
    ids = known(store, chat, ids_key("fakevocab", ""))
    assert ids[reply.id].ids == text_ids("Once upon a time")


def test_resume_that_is_stopped_before_ready_keeps_what_was(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    answer(chat, backend, chat.submit("Hi"), "Once", reason="length")
    before = chat.messages[-1]
    backend.ready = None
    chat.resume().result(WAIT)
    chat.stop()
    assert chat.messages[-1] == replace(before, finish="cancelled")
    assert on_disk(store, chat)[1] == chat.messages


def test_resume_after_the_program_was_killed(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    apply(chat, [*prompt_events(request), delta(request, "Once")])
    again = reopened(store, backend, chat)  # as a new process finds it: finish is None
    assert again.messages[-1].finish is None and again.live is None
    resumed = answer(again, backend, again.resume(), " more")
    assert resumed.messages[-1].ids == text_ids("Once")
    assert again.messages[-1].text == "Once more"
    # The ids that made the text, not those of the joined text: they are the same only in this fake vocabulary.
    assert known(store, again, ids_key("fakevocab", ""))[again.messages[-1].id].ids == text_ids("Once more")


def test_resume_of_a_reply_without_text_asks_anew(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    request = request_of(backend, chat.submit("Hi"))
    chat.apply(finished(request, "cancelled"))
    reply = chat.messages[-1]
    resumed = answer(chat, backend, chat.resume(), "Hello")
    assert not resumed.continue_reply
    assert [m.role for m in resumed.messages] == ["user"]
    assert chat.messages[-1].id == reply.id
    assert known(store, chat, ids_key("fakevocab", ""))[reply.id].ids == text_ids("Hello")


def test_resume_with_another_model(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Once", reason="length")
    other = FakeBackend(make_ready("othervocab", "other-2b"))
    again = reopened(store, other, chat)
    request = request_of(other, again.resume())
    assert request.messages == (PromptMessage("user", "Hi", None), PromptMessage("assistant", "Once", None))
    assert request.past_cut == "model"
    events = turn_events(request, ["!"])
    assert isinstance(events[0], type(prompt_events(request)[0]))
    apply(again, [replace(events[0], segments=((7,), (8, 9))), *events[1:]])  # type: ignore[arg-type]
    reply = again.messages[-1].id
    assert known(store, again, ids_key("othervocab", ""))[reply].ids == (8, 9, *text_ids("!"))
    assert known(store, again, ids_key("fakevocab", ""))[reply].ids is None  # they were those of "Once"


def test_an_error_before_the_prompt_is_ready_leaves_the_ids_alone(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    answer(chat, backend, chat.submit("Hi"), "Once", reason="length")
    request = request_of(backend, chat.resume())
    chat.apply(TurnFinished(request.turn, "died", Usage(), Failure("killed")))
    reply = chat.messages[-1]
    assert (reply.text, reply.finish) == ("Once", "died")
    assert known(store, chat, ids_key("fakevocab", ""))[reply.id].ids == text_ids("Once")


# ------------------------------------------------------------------ why the past is cut


def test_cut_by_another_model_and_back(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello")
    other = FakeBackend(make_ready("othervocab", "other-2b"))
    again = reopened(store, other, chat)
    request = answer(again, other, again.submit("two"), "dos")
    assert request.past_cut == "model"
    assert [m.ids for m in request.messages] == [None, None, None]
    assert again.chat.model == "other-2b"
    assert answer(again, other, again.submit("three")).past_cut is None  # PromptReady told the ids of the past

    back = reopened(store, backend, chat)
    returned = request_of(backend, back.submit("four"))
    assert [m.ids is not None for m in returned.messages] == [True, True, False, False, False, False, False]
    assert returned.past_cut == "model"


def test_cut_by_another_system_prompt(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="old")
    answer(chat, backend, chat.submit("Hi"), "Hello")
    again = reopened(store, backend, chat, system="new")
    request = answer(again, backend, again.submit("two"), "dos")
    assert request.past_cut == "system"
    assert [(m.text, m.ids) for m in request.messages[:2]] == [("new", ()), ("Hi", None)]
    assert on_disk(store, again)[0].system == "new"
    back = reopened(store, backend, chat, system="old")
    assert request_of(backend, back.submit("three")).messages[1].ids is not None


def test_the_same_template_wins_over_another_model(store: StoreThread, backend: FakeBackend) -> None:
    chat = Conversation.start(store, backend, sampling=GREEDY, system="old")
    answer(chat, backend, chat.submit("Hi"), "Hello")
    other = FakeBackend(make_ready("othervocab"))
    chat = reopened(store, other, chat)
    answer(chat, other, chat.submit("two"), "dos")
    chat = reopened(store, backend, chat, system="new")
    assert request_of(backend, chat.submit("three")).past_cut == "system"


# ------------------------------------------------------------------ disk and backend fail


def fill_disk(store: StoreThread, full: bool) -> None:
    def limit(chats: ChatStore) -> None:
        pages = chats._connection.execute("PRAGMA page_count").fetchone()[0]
        chats._connection.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")

    store.run(limit).result(WAIT)


def test_full_disk_at_submit(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello")
    before = (chat.chat, chat.messages)
    fill_disk(store, True)
    asked = chat.submit("x" * 500_000)
    with pytest.raises(NotSavedError, match="disk is full"):
        asked.result(WAIT)
    assert chat.live is None
    assert (chat.chat, chat.messages) == before
    assert len(backend.requests) == 1  # nothing was submitted
    fill_disk(store, False)
    answer(chat, backend, chat.submit("again"), "Yes")
    assert [m.text for m in on_disk(store, chat)[1]] == ["Hi", "Hello", "again", "Yes"]


def test_full_disk_at_the_first_message(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    fill_disk(store, True)
    with pytest.raises(NotSavedError):
        chat.submit("x" * 500_000).result(WAIT)
    assert chat.messages == () and chat.chat.title == "" and chat.chat.head is None
    with pytest.raises(KvchatError, match="no chat"):
        store.run(ChatStore.get, chat.chat.id).result(WAIT)


def test_full_disk_at_a_message_that_was_stopped(
    store: StoreThread, backend: FakeBackend, chat: Conversation, failures: list[KvchatError]
) -> None:
    fill_disk(store, True)
    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    asked = chat.submit("x" * 500_000)
    chat.stop()
    gate.set()
    with pytest.raises(NotSavedError):
        asked.result(WAIT)
    store.run(ChatStore.latest).result(WAIT)
    assert chat.messages == () and chat.live is None
    assert failures == []  # said once, by the future


def test_full_disk_during_the_answer_is_told_and_the_end_saved_later(
    store: StoreThread, backend: FakeBackend, chat: Conversation, failures: list[KvchatError]
) -> None:
    request = request_of(backend, chat.submit("Hi"))
    fill_disk(store, True)
    apply(chat, [*prompt_events(request), TextDelta(request.turn, "y" * 500_000, (1,)), finished(request)])
    store.run(ChatStore.latest).result(WAIT)
    assert chat.live is None and chat.messages[-1].finish == "stop"
    assert [type(error) for error in failures] == [NotSavedError]
    assert chat.unsaved is failures[0]
    fill_disk(store, False)
    store.close()  # tries again what waits
    assert chat.unsaved is None
    reading = ChatStore(store._path)
    assert reading.path(chat.messages[-1].id) == chat.messages
    reading.close()


def test_full_disk_to_the_end(
    store: StoreThread, backend: FakeBackend, chat: Conversation, failures: list[KvchatError]
) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello")
    assert chat.unsaved is None
    request = request_of(backend, chat.submit("more"))
    fill_disk(store, True)
    apply(chat, [*prompt_events(request), TextDelta(request.turn, "y" * 500_000, (1,)), finished(request)])
    store.close()
    assert isinstance(chat.unsaved, NotSavedError)
    assert failures[-1] is chat.unsaved  # told when it was lost
    reading = ChatStore(store._path)
    assert reading.path(chat.messages[-1].id)[-1].finish is None
    reading.close()


def test_a_backend_that_refuses(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    backend.refuse = KvchatError("the pipe is closed")
    with pytest.raises(KvchatError, match="pipe is closed"):
        chat.submit("Hi").result(WAIT)
    assert chat.live is None
    assert texts(chat.messages) == [("user", "Hi", ""), ("assistant", "", "error")]
    assert on_disk(store, chat)[1] == chat.messages
    backend.refuse = None
    answer(chat, backend, chat.resume(), "Hello")


def test_a_backend_that_refuses_what_has_waited(
    store: StoreThread, backend: FakeBackend, chat: Conversation, failures: list[KvchatError]
) -> None:
    ready, backend.ready = backend.ready, None
    chat.submit("Hi").result(WAIT)
    backend.refuse = KvchatError("the pipe is closed")
    backend.ready = ready
    assert ready is not None and chat.apply(ready)
    store.run(ChatStore.latest).result(WAIT)
    assert [error.message for error in failures] == ["the pipe is closed"]
    assert chat.live is None and chat.messages[-1].finish == "error"


def test_a_bug_in_the_backend_does_not_lock_the_chat(
    store: StoreThread, backend: FakeBackend, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(backend, "submit", lambda request: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            chat.submit("Hi").result(WAIT)
    assert chat.live is None and chat.messages[-1].finish == "error"
    answer(chat, backend, chat.submit("again"))


def test_open_of_an_unknown_chat(store: StoreThread, backend: FakeBackend) -> None:
    with pytest.raises(KvchatError, match="no chat"):
        Conversation.open(store, backend, "nope", sampling=GREEDY).result(WAIT)


def test_two_conversations_of_one_chat_lose_nothing(
    store: StoreThread, backend: FakeBackend, chat: Conversation, tmp_path: Path, failures: list[KvchatError]
) -> None:
    answer(chat, backend, chat.submit("Hi"), "Hello")
    second_store = StoreThread(tmp_path / "chats.db", failures.append)  # another process would see the same
    other = reopened(second_store, backend, chat)
    answer(chat, backend, chat.submit("here"), "1")
    answer(other, backend, other.submit("there"), "2")
    second_store.close()
    again = reopened(store, backend, chat)
    assert again.siblings(again.messages[2].id) == (chat.messages[2].id, again.messages[2].id)
    assert [m.text for m in chat.messages] == ["Hi", "Hello", "here", "1"]
    assert [m.text for m in on_disk(store, chat)[1]] == ["Hi", "Hello", "there", "2"]  # the last one is the head
    assert failures == []


def test_stop_races_with_the_commit(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    for number in range(100):
        asked = chat.submit(f"message {number}")
        turn = chat.live
        assert turn is not None
        if number % 3 == 0:
            asked.result(WAIT)
        chat.stop()
        if turn.turn in backend.cancelled:  # the backend has it and owes its end
            asked.result(WAIT)
            assert backend.requests[-1].turn == turn.turn
            assert chat.apply(finished(backend.requests[-1], "cancelled"))
        asked.result(WAIT)
        assert chat.live is None
    assert [request.turn for request in backend.requests] == backend.cancelled
    assert on_disk(store, chat)[1] == chat.messages
    assert {m.finish for m in chat.messages if m.role == "assistant"} == {"cancelled"}


def test_a_database_that_cannot_be_opened_gives_the_turn_back(tmp_path: Path) -> None:
    broken = tmp_path / "chats.db"
    broken.mkdir()
    store = StoreThread(broken, lambda error: None)
    conversation = Conversation.start(store, FakeBackend(make_ready()), sampling=Sampling())
    with pytest.raises(KvchatError):
        conversation.submit("hello").result(timeout=30)
    assert conversation.live is None
    assert conversation.messages == ()
    store.close()

"""What was written in a chat that is left while it is answered: sent when the answer has ended, else a draft there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fake_backend import finished, turn_events
from test_background import SIZE, another, begin, branch, line_of
from ui_fakes import chip, room, sees, send, shown, stage, toasts, until

from kvchat.backend.protocol import LoadFailed
from kvchat.backend.values import Failure, FinishReason
from kvchat.chats.store import ChatStore
from kvchat.errors import KvchatError


async def test_what_waits_behind_it_stays_with_its_chat(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            conversation = room(pilot).conversation
            chat = conversation.chat.id
            await send(pilot, "and then?")
            assert chip(pilot).startswith("next: and then?")
            room(pilot).prompt.put("a draft")
            await another(pilot)
            assert chip(pilot) == "" and room(pilot).prompt.text == ""
            await until(pilot, lambda: on.store.run(ChatStore.draft, chat).result().text == "and then?\na draft")
            await pilot.press("f4")
            await until(pilot, lambda: chip(pilot).startswith("next: and then?"))
            assert room(pilot).prompt.text == "a draft"
            await another(pilot)
            on.engine.say(finished(request))
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[1].messages[-1].text == "and then?"
            assert toasts(pilot) == ""  # it goes on
            on.engine.say(*turn_events(on.engine.requests[1], ["More."]))
            await until(pilot, lambda: "has answered" in toasts(pilot))
            assert [message.text for message in branch(on, chat)] == ["question", "half", "and then?", "More."]
            await until(pilot, lambda: on.store.run(ChatStore.draft, chat).result().text == "a draft")
            await pilot.press("f4")
            await sees(pilot, "More.")
            await until(pilot, lambda: room(pilot).prompt.text == "a draft")
            assert chip(pilot) == ""


@pytest.mark.parametrize("reason", ["cancelled", "died", "error", "context"])
async def test_what_waits_behind_an_answer_that_failed_is_a_draft(home: Path, reason: FinishReason) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            chat = room(pilot).conversation.chat.id
            await send(pilot, "and then?")
            await another(pilot)
            failure = Failure("the disk is gone", "look at it") if reason == "error" else None
            on.engine.say(finished(request, reason, failure))
            await until(pilot, lambda: branch(on, chat)[-1].finish == reason)
            mark = "" if reason == "cancelled" else "!"
            await until(pilot, lambda: mark in line_of(pilot, "question") and "●" not in line_of(pilot, "question"))
            assert ("“question”" in toasts(pilot)) is bool(mark)
            await pilot.press("ctrl+s", "down", "enter")
            await until(pilot, lambda: room(pilot).prompt.text == "and then?")
            assert len(on.engine.requests) == 1
            assert "!" not in line_of(pilot, "question")
            assert ("✗ The disk is gone" in shown(pilot)) is (reason == "error")


async def test_what_waits_is_there_at_once_when_the_answer_has_failed(home: Path) -> None:
    """Also before the end is on disk: the conversation comes back as it is."""
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            chat = room(pilot).conversation.chat.id
            await send(pilot, "and then?")
            room(pilot).prompt.put("a draft")
            await another(pilot)
            hold = threading.Event()
            on.store.run(lambda _: hold.wait(60))
            on.engine.say(finished(request, "died"))
            await until(pilot, lambda: "cut short" in toasts(pilot))
            await pilot.press("f4")
            await until(pilot, lambda: room(pilot).prompt.text == "and then?\na draft")
            hold.set()
            await another(pilot)
            await until(pilot, lambda: on.store.run(ChatStore.draft, chat).result().text == "and then?\na draft")


async def test_a_message_that_cannot_be_saved_is_a_draft_of_its_chat(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while the message is sent, and the person is elsewhere by then."""
    hold = threading.Event()

    def full(*_: object) -> None:
        hold.wait(60)
        raise KvchatError("no space left", "make some")

    with stage(home, turn_events) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: not room(pilot).is_busy and "Hello there." in shown(pilot))
            chat = room(pilot).conversation.chat.id
            monkeypatch.setattr(ChatStore, "add_turn", full)
            await send(pilot, "lost words?")
            await send(pilot, "And then?")
            await pilot.press("ctrl+n")
            await until(pilot, lambda: room(pilot).conversation.chat.id != chat)
            hold.set()
            await until(pilot, lambda: "could not be sent" in toasts(pilot))
            assert "lost" not in room(pilot).prompt.text
            unsent = "lost words?\nAnd then?"
            await until(pilot, lambda: on.store.run(ChatStore.draft, chat).result().text == unsent)
            await pilot.press("f4")
            await until(pilot, lambda: room(pilot).prompt.text == unsent)
            await sees(pilot, "✗ not sent: No space left")


async def test_the_first_message_of_a_chat_that_cannot_be_saved_is_not_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = threading.Event()

    def full(*_: object) -> None:
        hold.wait(60)
        raise KvchatError("no space left", "make some")

    with stage(home, turn_events) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            monkeypatch.setattr(ChatStore, "add_turn", full)
            await send(pilot, "lost words?")
            await another(pilot)
            room(pilot).prompt.put("other words")
            hold.set()
            await until(pilot, lambda: "could not be sent" in toasts(pilot))
            assert room(pilot).prompt.text == "other words"
            await pilot.press("f4")
            await until(pilot, lambda: room(pilot).prompt.text == "lost words?")
            await sees(pilot, "✗ not sent: No space left")


async def test_without_an_engine_what_waits_is_a_draft_and_told(home: Path) -> None:
    """The model is gone when the answer ends behind which a message waits."""
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            chat = room(pilot).conversation.chat.id
            await send(pilot, "and then?")
            await another(pilot)
            on.engine.ready = None
            on.engine.say(LoadFailed(Failure("it is no model", "take another one")), finished(request))
            await until(pilot, lambda: "“question”: the message could not be sent" in toasts(pilot))
            await pilot.press("f4")
            await until(pilot, lambda: room(pilot).prompt.text == "and then?")
            await sees(pilot, "✗ not sent: It is no model")
            assert [message.text for message in branch(on, chat)] == ["question", "half"]

"""Answers in chats that are not open: they go on, are shown in the list, come back whole, and end as they would."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_backend import delta, finished, prompt_events, turn_events
from textual.pilot import Pilot
from ui_fakes import Stage, listed, ready_for, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import EngineDied, Event, Generate, LoadFailed, Titled, Waits, Way
from kvchat.backend.values import Failure, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Message
from kvchat.conversation import Conversation
from kvchat.ui.overflow_question import OverflowQuestion

SIZE = (120, 30)


def line_of(pilot: Pilot[None], title: str) -> str:
    return next((line for line in listed(pilot) if title in line), "")


def branch(on: Stage, chat: str) -> list[Message]:
    """A chat as it is on disk."""
    found = on.store.run(ChatStore.get, chat).result()
    return list(on.store.run(ChatStore.path, found.head).result())


async def begin(pilot: Pilot[None], on: Stage, text: str, *answer: str) -> Generate:
    """Ask in the open chat; the answer has begun with these pieces."""
    count = len(on.engine.requests)
    await send(pilot, text)
    await until(pilot, lambda: len(on.engine.requests) > count)
    request = on.engine.requests[-1]
    on.engine.say(*prompt_events(request), *(delta(request, piece) for piece in answer))
    if answer:
        await sees(pilot, "".join(answer).rstrip())
    return request


async def another(pilot: Pilot[None]) -> None:
    """A new chat."""
    before = room(pilot).conversation
    await pilot.press("ctrl+n")
    await until(pilot, lambda: room(pilot).conversation is not before)


async def test_it_goes_on_while_another_chat_is_answered_and_comes_back_whole(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            first = await begin(pilot, on, "first question", "one ")
            conversation = room(pilot).conversation
            await another(pilot)
            second = await begin(pilot, on, "second question", "alpha ")
            assert on.engine.cancelled == []
            on.engine.say(delta(first, "two "), delta(second, "beta"), delta(first, "three "))
            await sees(pilot, "alpha beta▍")
            assert "two" not in shown(pilot)
            await until(pilot, lambda: status(pilot).endswith("1 in the background"))
            await until(pilot, lambda: "14 tok" in line_of(pilot, "first question"))  # one per byte
            assert "●" in line_of(pilot, "first question") and "●" in line_of(pilot, "second question")
            await pilot.press("ctrl+s", "down", "enter")
            await sees(pilot, "one two three▍")
            assert room(pilot).conversation is conversation
            await until(pilot, lambda: "generating" in status(pilot))
            on.engine.say(delta(first, "four"), finished(first))
            await sees(pilot, "one two three four")
            await until(pilot, lambda: not room(pilot).is_busy)
            on.engine.say(finished(second))
            await until(pilot, lambda: "has answered" in toasts(pilot))
            await until(pilot, lambda: "✓" in line_of(pilot, "second question"))
            assert "✓" not in line_of(pilot, "first question")
            await pilot.press("f4")
            await sees(pilot, "alpha beta")
            await until(pilot, lambda: "✓" not in line_of(pilot, "second question"))
            texts = [
                [m.text for m in branch(on, id)] for id in (conversation.chat.id, room(pilot).conversation.chat.id)
            ]
            assert texts == [["first question", "one two three four"], ["second question", "alpha beta"]]


async def test_its_text_and_its_end_are_written_as_those_of_the_open_chat(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "so ")
            chat = room(pilot).conversation.chat.id
            await another(pilot)
            on.engine.say(delta(request, "far"))
            await until(pilot, lambda: branch(on, chat)[-1].text == "so far")
            assert branch(on, chat)[-1].finish is None
            on.engine.say(finished(request))
            await until(pilot, lambda: branch(on, chat)[-1].finish == "stop")
            usage = branch(on, chat)[-1].usage
            assert usage and '"prompt_tokens": 10' in usage


async def test_leaving_and_coming_back_at_once_loses_nothing(home: Path) -> None:
    """Events that lie in the inbox while chats are switched reach the conversation once."""
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "0 ")
            chat = room(pilot).conversation.chat.id
            for number in range(1, 12):
                on.engine.say(delta(request, f"{number} "))
                await pilot.press("ctrl+n")
                on.engine.say(delta(request, f"{number}b "))
                await pilot.press("f4")
            on.engine.say(finished(request))
            await until(pilot, lambda: not room(pilot).is_busy and room(pilot).conversation.chat.id == chat)
            expected = "0 " + "".join(f"{number} {number}b " for number in range(1, 12))
            await until(pilot, lambda: branch(on, chat)[-1].text == expected)


async def test_it_is_stopped_from_the_list(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            chat = room(pilot).conversation.chat.id
            await another(pilot)
            await pilot.press("ctrl+s", "tab", "s")
            await until(pilot, lambda: on.engine.cancelled == [request.turn])
            on.engine.say(finished(request, "cancelled"))
            await until(pilot, lambda: branch(on, chat)[-1].finish == "cancelled")
            await until(pilot, lambda: "●" not in line_of(pilot, "question"))
            assert "✓" not in line_of(pilot, "question") and "!" not in line_of(pilot, "question")
            await pilot.press("s")
            await until(pilot, lambda: "No answer is being written" in toasts(pilot))


async def test_it_is_stopped_before_the_engine_has_it(home: Path) -> None:
    """No model yet: the turn waits in the app, and is over at once."""
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await send(pilot, "question")
            chat = room(pilot).conversation.chat.id
            await until(pilot, lambda: len(listed(pilot)) == 1)
            await another(pilot)
            await until(pilot, lambda: "for the engine" in line_of(pilot, "question"))
            await pilot.press("ctrl+s", "tab", "s")
            await until(pilot, lambda: branch(on, chat)[-1].finish == "cancelled")


async def test_turns_that_wait_for_the_model_are_all_sent_when_it_is_there(home: Path) -> None:
    with stage(home, turn_events, at_start=False) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            for text in ("one", "two", "three"):
                await send(pilot, text)
                await until(pilot, lambda text=text: line_of(pilot, text) != "")  # type: ignore[misc]
                await another(pilot)
            on.engine.come(ready_for(on.engine.config))
            await until(pilot, lambda: len(on.engine.requests) == 3)
            await until(pilot, lambda: all("✓" in line_of(pilot, text) for text in ("one", "two", "three")))


async def test_without_a_model_each_is_told(home: Path) -> None:
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await send(pilot, "one")
            await until(pilot, lambda: line_of(pilot, "one") != "")
            await another(pilot)
            await send(pilot, "two")
            await until(pilot, lambda: line_of(pilot, "two") != "")
            on.engine.say(LoadFailed(Failure("it is no model", "take another one")))
            await until(pilot, lambda: "!" in line_of(pilot, "one"))
            assert not room(pilot).is_busy
            assert shown(pilot).count("It is no model") == 1


async def test_the_engine_dies_with_two_answers(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            first = await begin(pilot, on, "first", "one")
            chat = room(pilot).conversation.chat.id
            await another(pilot)
            second = await begin(pilot, on, "second", "two")
            on.engine.say(
                EngineDied("the engine was killed", "", True), finished(first, "died"), finished(second, "died")
            )
            await sees(pilot, "the engine died: /continue goes on")
            assert shown(pilot).count("The engine was killed") == 1
            assert toasts(pilot).count("cut short") == 1
            await until(pilot, lambda: "!" in line_of(pilot, "first"))
            assert [(message.text, message.finish) for message in branch(on, chat)[1:]] == [("one", "died")]
            await pilot.press("f4")
            await sees(pilot, "one")
            await sees(pilot, "the engine died: /continue goes on")


async def test_why_it_waits_is_said(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            first = await begin(pilot, on, "first", "one")
            await another(pilot)
            await send(pilot, "second")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            second = on.engine.requests[1]
            on.engine.say(Waits(second.turn, "no room for 900 tokens beside the answer that is being written"))
            await until(pilot, lambda: "waiting: no room for 900 tokens" in status(pilot))
            await pilot.press("f4")
            await until(pilot, lambda: "no room for 900" in line_of(pilot, "second"))
            assert "◔" in line_of(pilot, "second")
            on.engine.say(finished(first), *prompt_events(second), delta(second, "two"))
            await until(pilot, lambda: "●" in line_of(pilot, "second") and "no room" not in line_of(pilot, "second"))


async def test_the_chat_can_be_renamed_pinned_copied_and_exported(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half ")
            chat = room(pilot).conversation.chat.id
            await until(pilot, lambda: branch(on, chat)[-1].text == "half ")
            await another(pilot)
            await pilot.press("ctrl+s", "tab", "p", "r")
            await until(pilot, lambda: pilot.app.screen is not room(pilot).screen)
            await pilot.press("ctrl+u", *"Rome", "enter")
            await until(pilot, lambda: "Rome" in line_of(pilot, "Rome"))
            await pilot.press("x")
            await until(pilot, lambda: "is in " in toasts(pilot))
            await until(pilot, lambda: "the file has what there is of it" in toasts(pilot))
            (file,) = home.glob("**/exports/*.md")
            assert "half" in file.read_text()
            await pilot.press("f")
            await until(pilot, lambda: "the copy has what there is of it" in toasts(pilot))
            await sees(pilot, "half")
            assert room(pilot).conversation.chat.title == "Rome (copy)"
            assert not room(pilot).is_busy
            on.engine.say(delta(request, "and whole"), finished(request))
            await until(pilot, lambda: branch(on, chat)[-1].text == "half and whole")
            kept = on.store.run(ChatStore.get, chat).result()
            assert (kept.title, kept.title_by, kept.pinned_at is not None) == ("Rome", "person", True)


async def test_it_goes_to_the_trash_and_comes_back(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            chat = room(pilot).conversation.chat.id
            await send(pilot, "and then?")
            await another(pilot)
            await pilot.press("ctrl+s", "tab", "d")
            await until(pilot, lambda: on.engine.cancelled == [request.turn])
            assert line_of(pilot, "question")  # not before it has ended
            on.engine.say(finished(request, "cancelled"))
            await until(pilot, lambda: not line_of(pilot, "question"))
            assert "question" not in toasts(pilot)
            await pilot.press("u")
            await until(pilot, lambda: bool(line_of(pilot, "question")))
            assert [(message.text, message.finish) for message in branch(on, chat)[1:]] == [("half", "cancelled")]
            assert len(on.engine.requests) == 1
            assert on.store.run(ChatStore.draft, chat).result().text == "and then?"


async def test_the_open_chat_goes_to_the_trash_while_it_is_answered(home: Path) -> None:
    """The engine takes its time: what still comes is written, and nobody is called."""
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half ")
            chat = room(pilot).conversation.chat.id
            await send(pilot, "/delete")
            await until(pilot, lambda: on.engine.cancelled == [request.turn])
            await until(pilot, lambda: room(pilot).conversation.chat.id != chat and not line_of(pilot, "question"))
            await until(pilot, lambda: "in the trash" in toasts(pilot))
            on.engine.say(delta(request, "and whole"), finished(request, "stop"))
            await until(pilot, lambda: branch(on, chat)[-1].text == "half and whole")
            assert "has answered" not in toasts(pilot)
            await send(pilot, "/undo")
            await sees(pilot, "half and whole")


async def test_titles_are_found_one_after_the_other_when_nothing_is_written(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            requests = []
            for text in ("first", "second"):
                requests.append(await begin(pilot, on, text, f"answer to the {text}"))
                await another(pilot)
            on.engine.say(finished(requests[0]))
            await until(pilot, lambda: "✓" in line_of(pilot, "first"))
            assert on.engine.titles == []  # a turn goes first, and the engine would not answer
            on.engine.say(finished(requests[1]))
            await until(pilot, lambda: len(on.engine.titles) == 1)
            on.engine.say(Titled(on.engine.titles[0].turn, "Alpha"))
            await until(pilot, lambda: len(on.engine.titles) == 2)
            on.engine.say(Titled(on.engine.titles[1].turn, "Beta"))
            await until(pilot, lambda: bool(line_of(pilot, "Alpha")) and bool(line_of(pilot, "Beta")))
            assert "✓" in line_of(pilot, "Alpha")


async def test_the_list_tells_it_where_it_lies_over_the_chat(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(60, 20)) as pilot:
            request = await begin(pilot, on, "question", "half")
            await another(pilot)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: "4 tok" in line_of(pilot, "question"))
            await pilot.press("escape")
            on.engine.say(finished(request))
            await until(pilot, lambda: "“question” has answered. F4 goes there" in toasts(pilot))
            await pilot.press("f4")
            await sees(pilot, "half")
            await pilot.press("f4")
            await until(pilot, lambda: "No other chat has answered" in toasts(pilot))


async def test_an_answer_that_is_complete_before_its_beginning_is_known(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow, the model is not, and the person is elsewhere by then."""
    hold, add_turn = threading.Event(), ChatStore.add_turn

    def slow(*arguments: Any) -> tuple[str, ...]:
        hold.wait(60)
        return add_turn(*arguments)

    monkeypatch.setattr(ChatStore, "add_turn", slow)
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            await send(pilot, "question")
            chat = room(pilot).conversation.chat.id
            await another(pilot)
            await until(pilot, lambda: status(pilot).endswith("1 in the background"))
            hold.set()
            await until(pilot, lambda: "✓" in line_of(pilot, "question"))
            assert [message.text for message in branch(on, chat)] == ["question", "Hello there."]
            await until(pilot, lambda: "in the background" not in status(pilot))


async def test_answers_side_by_side_go_on_together(home: Path) -> None:
    """The chat is answered as long as one of them is written, also when the one that is shown has ended."""
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            first = await begin(pilot, on, "question", "half")
            on.engine.say(finished(first))
            await until(pilot, lambda: not room(pilot).is_busy)
            conversation = room(pilot).conversation
            conversation.ask_alternatives([Sampling(seed=1), Sampling(seed=2)])
            await until(pilot, lambda: len(on.engine.requests) == 3)
            shown_one, other = on.engine.requests[1:]
            await another(pilot)
            for request in (shown_one, other):
                on.engine.say(*prompt_events(request), delta(request, "whole"))
            on.engine.say(finished(shown_one))
            await until(pilot, lambda: "●" in line_of(pilot, "question") and conversation.live is None)
            assert toasts(pilot) == ""
            on.engine.say(finished(other))
            await until(pilot, lambda: "✓" in line_of(pilot, "question"))
            answers = on.store.run(ChatStore.answers, conversation.chat.id).result()
            assert [answer.finish for answer in answers] == ["stop"] * 3


async def test_a_full_context_is_asked_about_when_the_person_looks(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            request = await begin(pilot, on, "question", "half")
            await another(pilot)
            ways = (Way("shift", 4, ((0, 4),)),)
            on.engine.say(replace(finished(request, "context"), ways=ways))
            await until(pilot, lambda: "its context is full" in toasts(pilot))
            assert not isinstance(pilot.app.screen, OverflowQuestion)
            await pilot.press("f4")
            await until(pilot, lambda: isinstance(pilot.app.screen, OverflowQuestion))
            await pilot.press("escape", "ctrl+n", "ctrl+s", "down", "enter")
            await sees(pilot, "half")
            assert not isinstance(pilot.app.screen, OverflowQuestion)  # once


async def test_each_event_reaches_a_conversation_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Event]] = []
    applied = Conversation.apply

    def counted(self: Conversation, event: Event) -> bool:
        seen.append((self.chat.id, event))
        return applied(self, event)

    monkeypatch.setattr(Conversation, "apply", counted)
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            first = await begin(pilot, on, "first", "one")
            chat = room(pilot).conversation.chat.id
            await another(pilot)
            second = await begin(pilot, on, "second", "two")
            await pilot.press("f4")
            events = [delta(first, "!"), delta(second, "?"), finished(first), finished(second)]
            on.engine.say(*events)
            await until(pilot, lambda: "✓" in line_of(pilot, "second"))
            for event in events:
                chats = [name for name, each in seen if each is event]
                assert len(chats) == len(set(chats)) and chat in chats

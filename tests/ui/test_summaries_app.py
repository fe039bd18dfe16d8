"""Summaries and pins in the app: asked for in time, shown, changed, taken, undone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_backend import make_ready, text_ids, turn_events
from textual.pilot import Pilot
from ui_fakes import Stage, lines, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Event, Generate, Summarized, Summarizing, TurnFinished
from kvchat.backend.values import Failure
from kvchat.config import Settings
from kvchat.ui.overflow_question import OverflowQuestion
from kvchat.ui.summary_screen import SummaryEditor, SummaryScreen

CONTEXT = 1200
LONG = "word " * 30
SETTINGS = Settings(context=CONTEXT, overflow="summarize")
SHORT = "Two turns about words."


def cells(request: Generate) -> int:
    return sum(len(text_ids(message.text)) for message in request.messages)


def answering(request: Generate) -> list[Event]:
    """An answer, whose end tells how many cells are in use."""
    *events, end = turn_events(request)
    assert isinstance(end, TurnFinished)
    return [*events, replace(end, usage=replace(end.usage, cells=cells(request)))]


def full(request: Generate) -> list[Event]:
    """As soon as the chat has so many tokens the context is full."""
    *events, end = turn_events(request)
    assert isinstance(end, TurnFinished)
    if cells(request) > 900:
        return [*events, TurnFinished(request.turn, "context", replace(end.usage, overflow="stop"))]
    return [*events, end]


async def begin(pilot: Pilot[None], turns: int) -> None:
    await until(pilot, lambda: status(pilot).startswith("○"))
    for number in range(turns):
        await send(pilot, f"{number} {LONG}")
        await until(pilot, partial(done, pilot, number))


def done(pilot: Pilot[None], number: int) -> bool:
    conversation = room(pilot).conversation
    return len(conversation.messages) == 2 * number + 2 and conversation.live is None


def answer(on: Stage, text: str = SHORT, tokens: int = 20, failure: Failure | None = None) -> None:
    on.engine.say(Summarized(on.engine.summaries[-1].turn, text, tokens, failure=failure))


def is_shown(pilot: Pilot[None]) -> bool:
    return isinstance(pilot.app.screen, SummaryScreen)


async def test_it_is_made_ahead_of_need_shown_and_taken(home: Path) -> None:
    with stage(home, answering, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 5)
            assert not on.engine.summaries  # four fifths of the context are not in use
            await send(pilot, f"5 {LONG}")
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            command = on.engine.summaries[0]
            on.engine.say(Summarizing(command.turn, 10, 40))
            await until(pilot, lambda: "summary 25%" in status(pilot))
            answer(on)
            await until(pilot, lambda: is_shown(pilot))
            editor = pilot.app.screen.query_one(SummaryEditor)
            assert editor.text == SHORT
            await pilot.press("end", "space", *"Yes.", "ctrl+s")
            await until(pilot, lambda: not is_shown(pilot))
            await sees(pilot, "stands for the oldest")
            summary = room(pilot).conversation.summary
            assert summary is not None and summary.text == f"{SHORT} Yes."
            await send(pilot, "next")
            await until(pilot, lambda: len(on.engine.requests) == 7)
            system = on.engine.requests[-1].messages[0]
            assert system.role == "system" and system.text.endswith(f"{SHORT} Yes.")
            await pilot.press("ctrl+home")
            room(pilot).transcript.scroll_home(animate=False)
            await sees(pilot, "seen through a summary")


async def test_while_somebody_writes_it_waits(home: Path) -> None:
    with stage(home, answering, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            room(pilot).prompt.put("a draft")
            answer(on)
            await sees(pilot, "A summary of the oldest messages waits")
            assert not is_shown(pilot)
            room(pilot).prompt.put("")
            await send(pilot, "/summary")
            await until(pilot, lambda: is_shown(pilot))
            await pilot.press("end", "space", *"Yes.", "escape")
            await until(pilot, lambda: "/summary shows it again" in toasts(pilot))
            assert room(pilot).conversation.proposal is not None
            await send(pilot, "/summary")
            await until(pilot, lambda: is_shown(pilot))
            assert pilot.app.screen.query_one(SummaryEditor).text == f"{SHORT} Yes."
            await pilot.press("escape")
            await until(pilot, lambda: not is_shown(pilot))
            await send(pilot, "/summary drop")
            await until(pilot, lambda: room(pilot).conversation.proposal is None)


async def test_the_question_offers_it_and_the_answer_goes_on_with_it(home: Path) -> None:
    with stage(home, full, settings=Settings(context=CONTEXT)) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: isinstance(pilot.app.screen, OverflowQuestion))
            question = pilot.app.screen
            assert isinstance(question, OverflowQuestion)
            rows = [str(option.prompt) for option in question._offers.options]
            assert [row.split()[0] for row in rows] == ["summarize", "stop"]
            assert "830 tokens of 10 messages become 150 at most, and 316 are read again" in rows[0]
            await pilot.press("enter")
            await sees(pilot, "The context is full. The oldest")
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            assert room(pilot).conversation.own.overflow == "summarize"
            room(pilot).prompt.put("a draft")  # the answer waits, so it is shown all the same
            answer(on)
            await until(pilot, lambda: is_shown(pilot))
            await pilot.press("ctrl+s")
            await until(pilot, lambda: len(on.engine.requests) == 7)
            request = on.engine.requests[-1]
            assert request.continue_reply and request.messages[0].text.endswith(SHORT)
            assert room(pilot).prompt.text == "a draft"


async def test_a_full_context_of_a_chat_that_summarizes_is_no_question(home: Path) -> None:
    with stage(home, full, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            answer(on, failure=Failure("the engine was killed by SIGKILL", "try again"))
            await sees(pilot, "No summary: The engine was killed by SIGKILL")
            assert not isinstance(pilot.app.screen, OverflowQuestion)
            await send(pilot, "/summary")
            await until(pilot, lambda: len(on.engine.summaries) == 2)
            answer(on)
            await until(pilot, lambda: is_shown(pilot))


async def test_words_that_are_too_long_stay_in_the_editor(home: Path) -> None:
    with stage(home, answering, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            answer(on)
            await until(pilot, lambda: is_shown(pilot))
            editor = pilot.app.screen.query_one(SummaryEditor)
            editor.text = "long " * 1000
            await pilot.press("ctrl+s")
            problem = pilot.app.screen.query_one("#problem")
            await until(pilot, lambda: problem.display)
            assert "longer than what it stands for" in str(problem.render())
            editor.text = "short"
            await pilot.press("ctrl+s")
            await until(pilot, lambda: room(pilot).conversation.summary is not None)


async def test_undo_has_the_messages_read_again(home: Path) -> None:
    with stage(home, answering, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 60)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            answer(on)
            await until(pilot, lambda: is_shown(pilot))
            await pilot.press("ctrl+s")
            await until(pilot, lambda: room(pilot).conversation.summary is not None)
            await until(pilot, lambda: bool(room(pilot).sights.marks))
            await send(pilot, "/summary show")
            await until(pilot, lambda: is_shown(pilot))
            await pilot.press("escape")
            await until(pilot, lambda: not is_shown(pilot))
            await send(pilot, "/undo")
            await sees(pilot, "The summary is taken back")
            assert room(pilot).conversation.summary is None
            await until(pilot, lambda: not room(pilot).sights.marks)


async def test_another_chat_ends_what_is_in_the_making(home: Path) -> None:
    with stage(home, answering, settings=SETTINGS) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await until(pilot, lambda: len(on.engine.summaries) == 1)
            await send(pilot, "/new")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            assert on.engine.cancelled == [on.engine.summaries[0].turn]
            answer(on)
            await pilot.pause(0.1)
            assert not is_shown(pilot)


async def test_a_recurrent_model_can_have_a_summary(home: Path) -> None:
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: on.engine.started)
            ready = make_ready()
            on.engine.come(replace(ready, model=replace(ready.model, attention="recurrent")))
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/overflow summarize")
            await until(pilot, lambda: room(pilot).conversation.own.overflow == "summarize")


@pytest.mark.parametrize("given", [frozenset({"overflow"}), frozenset()], ids=["said", "unsaid"])
async def test_a_stop_that_was_said_is_not_asked_again(home: Path, given: frozenset[str]) -> None:
    with stage(home, full, settings=Settings(context=CONTEXT, overflow="stop", given=given)) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await begin(pilot, 6)
            await sees(pilot, "the context is full")
            if given:
                await pilot.pause(0.3)
                assert not isinstance(pilot.app.screen, OverflowQuestion)
            else:
                await until(pilot, lambda: isinstance(pilot.app.screen, OverflowQuestion))


# ---------------------------------------------------------------------- pins


async def test_a_message_is_pinned_by_key_and_by_command(home: Path) -> None:
    with stage(home, answering) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/pin")
            await until(pilot, lambda: "nothing to pin" in toasts(pilot))
            await send(pilot, "my name is Ada")
            await until(pilot, lambda: done(pilot, 0))
            await pilot.press("ctrl+o", "p")  # the last message is marked: the answer
            await until(pilot, lambda: room(pilot).conversation.messages[1].pinned)
            await pilot.press("p")
            await until(pilot, lambda: not room(pilot).conversation.messages[1].pinned)
            await pilot.press("escape")
            await send(pilot, "/pin")
            await until(pilot, lambda: "pinned" in shown(pilot))
            told = [line.strip(" ▌") for line in lines(pilot)]
            assert told[told.index("my name is Ada") + 1] == "pinned"
            await send(pilot, "next")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[-1].pinned == (0,)
            chat = room(pilot).conversation.chat.id
        async with on.app(chat).run_test(size=(120, 40)) as pilot:
            await sees(pilot, "my name is Ada")
            await until(pilot, lambda: "pinned" in shown(pilot))

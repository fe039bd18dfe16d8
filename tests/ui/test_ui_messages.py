"""Single messages from the chat screen: browse mode, branches, delete and undo, the message that waits, per-chat
settings."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from pathlib import Path

import pytest
from fake_backend import delta, finished, prompt_events, turn_events
from modal_host import text
from textual.pilot import Pilot
from textual.widgets._toast import Toast
from ui_fakes import Stage, chip, lines, room, sees, send, shown, stage, toasts, until

from kvchat.backend.protocol import Event, Generate
from kvchat.chats.store import ChatStore
from kvchat.errors import KvchatError
from kvchat.ui.browse_bar import BrowseBar

ANSWERS = ("alpha", "beta", "gamma", "delta", "epsilon")


class Counter:
    """Answers differently each time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request: Generate) -> list[Event]:
        self.count += 1
        return turn_events(request, [ANSWERS[self.count - 1]])


async def two_turns(pilot: Pilot[None]) -> None:
    await send(pilot, "first question")
    await sees(pilot, "alpha")
    await until(pilot, lambda: not room(pilot).is_busy)
    await send(pilot, "second question")
    await sees(pilot, "beta")
    await until(pilot, lambda: not room(pilot).is_busy)


def browsing(pilot: Pilot[None]) -> bool:
    return isinstance(pilot.app.focused, BrowseBar)


def marked(pilot: Pilot[None]) -> str:
    """The text of the message that is marked."""
    found = room(pilot).transcript._marked
    return next((m.text for m in room(pilot).conversation.messages if m.id == found), "")


def texts(on: Stage) -> list[str]:
    """The branch as it stands on disk."""
    latest = on.store.run(ChatStore.latest).result()
    return [m.text for m in on.store.run(ChatStore.path, latest.head).result()] if latest else []


async def test_browse_moves_a_mark_and_copies_the_source(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await pilot.press("ctrl+o")
            await until(pilot, lambda: "no messages" in toasts(pilot))
            await two_turns(pilot)
            before = lines(pilot)
            await pilot.press("ctrl+o")
            await until(pilot, lambda: browsing(pilot))
            assert len(lines(pilot)) == len(before)  # nothing moved
            seen = [marked(pilot)]
            for key in ("k", "up", "k", "k", "j", "down", "G", "g"):
                await pilot.press(key)
                seen.append(marked(pilot))
            assert seen == [
                "beta",
                "second question",
                "alpha",
                "first question",
                "first question",
                "alpha",
                "second question",
                "beta",
                "first question",
            ]
            await pilot.press("y")
            assert pilot.app.clipboard == "first question"
            await pilot.press("i")
            assert room(pilot).prompt.has_focus
            assert marked(pilot) == ""
            assert room(pilot).hint.display
            await pilot.press("y")
            assert room(pilot).prompt.text == "y"


async def test_up_in_an_empty_prompt_without_history_browses(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            room(pilot).prompt.remember([])
            await pilot.press("up")
            await until(pilot, lambda: browsing(pilot))
            await pilot.press("escape")
            assert room(pilot).prompt.has_focus


async def test_retry_makes_a_branch_and_the_brackets_switch(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            await pilot.press("ctrl+o", "r")
            await sees(pilot, "gamma")
            await until(pilot, lambda: not room(pilot).is_busy)
            await sees(pilot, "fake-1b ‹2/2›")
            assert "beta" not in shown(pilot)
            await pilot.press("ctrl+o", "left_square_bracket")
            await sees(pilot, "beta")
            await sees(pilot, "fake-1b ‹1/2›")
            assert browsing(pilot)
            assert marked(pilot) == "beta"
            await pilot.press("right_square_bracket")
            await sees(pilot, "gamma")
            await pilot.press("k", "left_square_bracket")
            await until(pilot, lambda: "only one version" in toasts(pilot))
            await pilot.press("g", "j", "r")  # the first answer, from the middle
            await sees(pilot, "delta")
            await until(pilot, lambda: not room(pilot).is_busy)
            assert [m.text for m in room(pilot).conversation.messages] == ["first question", "delta"]
        assert texts(on) == ["first question", "delta"]


async def test_slash_retry_answers_again(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            await send(pilot, "/retry")
            await sees(pilot, "gamma")
            await sees(pilot, "‹2/2›")


async def test_edit_sends_a_branch_and_escape_gives_the_draft_back(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            room(pilot).prompt.put("a draft")
            await pilot.press("ctrl+o", "e")
            await until(pilot, lambda: "Only your own" in toasts(pilot))
            await pilot.press("k", "e")
            await until(pilot, lambda: "editing" in chip(pilot))
            assert room(pilot).prompt.text == "second question"
            await pilot.press("escape")
            assert chip(pilot) == ""
            assert room(pilot).prompt.text == "a draft"
            await pilot.press("ctrl+o", "k", "e")
            await until(pilot, lambda: "editing" in chip(pilot))
            await pilot.press("!", "enter")
            await sees(pilot, "gamma")
            assert chip(pilot) == ""
            await sees(pilot, "▌ second question!")
            await sees(pilot, "you ‹2/2›")
            await until(pilot, lambda: not room(pilot).is_busy)
            await send(pilot, "/edit")
            assert room(pilot).prompt.text == "second question!"


async def test_the_draft_comes_back_when_the_edit_was_sent(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            room(pilot).prompt.put("a draft")
            await pilot.press("ctrl+o", "k", "e")
            await until(pilot, lambda: "editing" in chip(pilot))
            await pilot.press("!", "enter")
            await until(pilot, lambda: texts(on) == ["first question", "alpha", "second question!", "gamma"])
            assert room(pilot).prompt.text == "a draft"


async def test_an_edit_that_another_takes_the_place_of_joins_the_draft(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            room(pilot).prompt.put("a draft")
            room(pilot).screen._sending.edit_last()  # type: ignore[attr-defined]
            await pilot.press("!", "ctrl+o", "g", "e")
            await until(pilot, lambda: room(pilot).prompt.text == "first question")
            await pilot.press("escape")
            assert room(pilot).prompt.text == "a draft\nsecond question!"


async def test_an_edit_that_is_refused_goes_on(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "first")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            room(pilot).prompt.put("a draft")
            room(pilot).screen._sending.edit_last()  # type: ignore[attr-defined]
            await pilot.press("!", "enter")
            await until(pilot, lambda: "An answer is being written" in toasts(pilot))
            assert room(pilot).prompt.text == "first!"
            assert "editing" in chip(pilot)
            on.engine.say(*prompt_events(on.engine.requests[0]), finished(on.engine.requests[0]))
            await until(pilot, lambda: not room(pilot).is_busy)
            await pilot.press("enter")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert [message.text for message in on.engine.requests[1].messages] == ["first!"]
            assert room(pilot).prompt.text == "a draft"


async def test_the_forecast_of_an_edit_is_that_of_the_branch(home: Path) -> None:
    """What is asked for is the beginning of the chat with the draft behind it, not the whole chat with it."""
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            await pilot.press("ctrl+o", "k", "e")
            await until(pilot, lambda: bool(on.engine.forecasts))
            asked = on.engine.forecasts[-1].messages
            assert [message.text for message in asked] == ["first question", "alpha", "second question"]
            await pilot.press("escape", "x")
            await until(pilot, lambda: len(on.engine.forecasts) == 2)
            assert [message.text for message in on.engine.forecasts[-1].messages][-2:] == ["beta", "x"]


async def test_the_line_above_the_prompt_keeps_the_way_out_on_narrow_screens(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(60, 20)) as pilot:
            await two_turns(pilot)
            await pilot.press("ctrl+o", "k", "e")
            await until(pilot, lambda: chip(pilot).startswith("editing: your message of "))
            assert chip(pilot).endswith(" · esc cancels")
            await pilot.resize_terminal(90, 20)
            await until(pilot, lambda: chip(pilot).endswith(" · ⏎ sends it as a branch, esc cancels"))


@pytest.mark.parametrize("size", [(80, 24), (60, 11)])
async def test_a_toast_does_not_lie_over_what_is_written(home: Path, size: tuple[int, int]) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=size, notifications=True) as pilot:
            await pilot.press("ctrl+o")
            await until(pilot, lambda: any(toast.region for toast in pilot.app.screen.query(Toast)))
            assert not pilot.app.screen.query_one(Toast).region.overlaps(room(pilot).prompt.region)


async def test_delete_and_undo(home: Path) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            await pilot.press("ctrl+o", "k", "d")
            await until(pilot, lambda: "second question" not in shown(pilot))
            assert browsing(pilot)
            assert marked(pilot) == "alpha"
            assert texts(on) == ["first question", "alpha"]
            await pilot.press("u")
            await sees(pilot, "beta")
            assert texts(on) == ["first question", "alpha", "second question", "beta"]
            await pilot.press("u")
            await until(pilot, lambda: "nothing to undo" in toasts(pilot))
            await pilot.press("g", "d")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            await until(pilot, lambda: room(pilot).prompt.has_focus)
            await until(pilot, lambda: "follows it. /undo brings it back." in toasts(pilot))  # u would be text
            await send(pilot, "/undo")
            await sees(pilot, "beta")


async def test_continue_from_browse_mode(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "count")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            first = on.engine.requests[0]
            on.engine.say(*prompt_events(first), delta(first, "one "), finished(first, "cancelled"))
            await sees(pilot, "/continue goes on")
            await pilot.press("ctrl+o", "c")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[1].continue_reply
            assert room(pilot).prompt.has_focus


async def test_one_message_waits_for_the_end_of_the_answer(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "first")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            await send(pilot, "second")
            await until(pilot, lambda: chip(pilot).startswith("next: second"))
            assert room(pilot).prompt.text == ""
            await send(pilot, "third")
            assert room(pilot).prompt.text == "third"
            await until(pilot, lambda: "One message waits already" in toasts(pilot))
            await pilot.press("escape")  # takes back the one that waits, before it stops the answer
            assert room(pilot).prompt.text == "second\nthird"
            assert chip(pilot) == ""
            assert on.engine.cancelled == []
            room(pilot).prompt.put("")
            await send(pilot, "second again")
            on.engine.say(*prompt_events(on.engine.requests[0]), finished(on.engine.requests[0]))
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[1].messages[-1].text == "second again"
            assert chip(pilot) == ""


async def test_what_waits_is_given_back_when_the_answer_was_stopped(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "first")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            await send(pilot, "second")
            await pilot.press("ctrl+c")
            on.engine.say(*prompt_events(on.engine.requests[0]), finished(on.engine.requests[0], "cancelled"))
            await until(pilot, lambda: room(pilot).prompt.text == "second")
            await pilot.pause(0.1)
            assert len(on.engine.requests) == 1


async def test_what_waits_is_given_back_when_what_is_before_it_could_not_be_saved(home: Path, monkeypatch) -> None:
    with stage(home, Counter()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await two_turns(pilot)
            saving: Future[None] = Future()
            with monkeypatch.context() as patched:
                patched.setattr(on.store, "run", lambda *_, **__: saving)
                await send(pilot, "third")
                await until(pilot, lambda: room(pilot).is_busy)
            await send(pilot, "fourth")
            await until(pilot, lambda: chip(pilot).startswith("next: fourth"))
            saving.set_exception(KvchatError("the disk is full", "make room"))
            await until(pilot, lambda: room(pilot).prompt.text == "third\nfourth")
            assert chip(pilot) == ""


async def test_what_waited_and_came_back_during_an_edit_elsewhere_stays(home: Path, monkeypatch) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            edited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            monkeypatch.setattr("kvchat.ui.writing.edit", lambda *_: edited)
            await send(pilot, "first")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            await send(pilot, "second")
            room(pilot).prompt.put("a draft")
            editing = asyncio.create_task(room(pilot).prompt.action_edit_elsewhere())
            on.engine.say(*prompt_events(on.engine.requests[0]), finished(on.engine.requests[0], "context"))
            await until(pilot, lambda: room(pilot).prompt.text == "second\na draft")
            edited.set_result("a better draft")
            await editing
            assert room(pilot).prompt.text == "second\na better draft"


async def test_system_prompt_and_sampling_of_a_chat(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "/system")
            await sees(pilot, "This chat has no system prompt.")
            await send(pilot, "/system be brief")
            await send(pilot, "/temp 0.3")
            await send(pilot, "/seed 7")
            await until(pilot, lambda: "seed 7, for this chat." in toasts(pilot))
            await send(pilot, "/temp hot")
            await until(pilot, lambda: "/temp: 'hot' is not a number" in toasts(pilot))
            await send(pilot, "/temp")
            await until(pilot, lambda: "temperature: 0.3" in toasts(pilot))
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            request = on.engine.requests[0]
            assert request.messages[0].text == "be brief"
            assert (request.sampling.temperature, request.sampling.seed) == (0.3, 7)
            await until(pilot, lambda: not room(pilot).is_busy)
            await send(pilot, "/system -")
            await until(pilot, lambda: "no system prompt now" in toasts(pilot))
            await send(pilot, "again")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[1].messages[0].role == "user"
            chat = room(pilot).conversation.chat.id
    with stage(home, turn_events) as on:
        async with on.app(chat).run_test(size=(120, 30)) as pilot:
            await sees(pilot, "Hello there.")
            assert room(pilot).conversation.sampling.temperature == 0.3
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            assert room(pilot).conversation.sampling.temperature != 0.3


async def test_f1_tells_the_keys(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 60)) as pilot:
            await pilot.press("f1")
            await until(pilot, lambda: "another answer, as a branch" in text(pilot.app))
            assert re.search(r"F2 +Settings", text(pilot.app))

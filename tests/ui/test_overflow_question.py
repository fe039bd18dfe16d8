"""A full context in the app: the question, /overflow, what left below the messages, and the way back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import delta, finished, make_ready, prompt_events, text_ids, turn_events
from test_tmux import Terminal, is_ready
from ui_fakes import lines, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Event, Evicted, Generate, TurnFinished, Way
from kvchat.backend.values import OverflowPolicy, Usage
from kvchat.conversation import Own
from kvchat.formats.past import Eviction
from kvchat.ui.overflow_question import OverflowQuestion
from kvchat.ui.settings_pages import ChatDraft, ChatNow, HistoryPage

ONE = 2 + len("one")  # tokens of a message "one" with its turns, see fake_backend
ANSWER = len(text_ids("Hello there."))
FIRST_TURN = (0, ONE + ANSWER)


def full(request: Generate) -> list[Event]:
    """The second answer fills the context: it ends, or the first turn leaves it, by what the request says."""
    events = turn_events(request)
    users = [message for message in request.messages if message.role == "user"]
    if len(users) < 2 or request.evictions:
        return events
    end = finished(request)
    if request.overflow == "stop":
        ways = (Way("shift", 17, (FIRST_TURN,)), Way("sinks", 9, ((4, 13),)), Way("prune", 12))
        usage = replace(end.usage, overflow="stop")
        return [*events[:-1], TurnFinished(request.turn, "context", usage, ways=ways)]
    at = sum(len(message.ids or ()) for message in request.messages) + len(text_ids(users[-1].text)) + 2
    left = Evicted(request.turn, Eviction(at, (FIRST_TURN,)), request.overflow, 0.01)
    usage = replace(end.usage, overflow=request.overflow, evicted=FIRST_TURN[1], evictions=1)
    return [*prompt_events(request), left, delta(request, "Gone."), TurnFinished(request.turn, "stop", usage)]


def asked(on_screen: object) -> bool:
    return isinstance(on_screen, OverflowQuestion)


async def test_the_question_comes_once_and_enter_goes_on(home: Path) -> None:
    with stage(home, full) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "one")
            await sees(pilot, "Hello there.")
            await send(pilot, "two")
            await until(pilot, lambda: asked(pilot.app.screen))
            question = pilot.app.screen
            assert isinstance(question, OverflowQuestion)
            rows = [str(option.prompt) for option in question._offers.options]
            assert [row.split()[0] for row in rows] == ["shift", "sinks", "prune", "stop"]
            assert "17 tokens: the oldest turn" in rows[0]
            assert "9 tokens: the oldest after the first ones, in 2 messages" in rows[1]
            assert "12 tokens: here and there in the middle" in rows[2]
            await pilot.press("enter")
            await until(pilot, lambda: len(on.engine.requests) == 3)
            request = on.engine.requests[-1]
            assert (request.continue_reply, request.overflow) == (True, "shift")
            await sees(pilot, "let 17 tokens go (shift)")
            assert room(pilot).conversation.own.overflow == "shift"


async def test_stop_stays_stop_and_is_not_asked_again(home: Path) -> None:
    with stage(home, full) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "one")
            await sees(pilot, "Hello there.")
            await send(pilot, "two")
            await until(pilot, lambda: asked(pilot.app.screen))
            await pilot.press("escape")
            await until(pilot, lambda: room(pilot).conversation.own.overflow == "stop")
            await sees(pilot, "the context is full: /overflow says what may leave")
            await send(pilot, "three")
            await until(pilot, lambda: len(on.engine.requests) == 3 and room(pilot).conversation.live is None)
            await pilot.pause(0.2)
            assert not asked(pilot.app.screen)


async def test_what_left_is_marked_and_undo_takes_it_back(home: Path) -> None:
    with stage(home, full) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/overflow shift")
            await until(pilot, lambda: "the oldest turns leave" in toasts(pilot))
            await send(pilot, "one")
            await sees(pilot, "Hello there.")
            await send(pilot, "two")
            await until(pilot, lambda: shown(pilot).count("not seen any more") == 2)
            told = [line.strip(" ▌") for line in lines(pilot)]
            assert told[told.index("one") + 1] == "not seen any more"  # below the message, in a line of its own
            await until(pilot, lambda: "let 17 go" in status(pilot))
            await send(pilot, "/undo")
            await sees(pilot, "17 tokens taken back")
            await sees(pilot, f"computed again with the next message: {len(text_ids('Gone.'))} tokens")
            await until(pilot, lambda: "not seen any more" not in shown(pilot))
            await send(pilot, "/undo")
            await until(pilot, lambda: "nothing to undo" in toasts(pilot))
            await send(pilot, "three")
            await until(pilot, lambda: len(on.engine.requests) == 3)
            assert on.engine.requests[-1].evictions == ()


async def test_another_answer_knows_nothing_of_it(home: Path) -> None:
    with stage(home, full) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/overflow sinks")
            for text in ("one", "two"):
                await send(pilot, text)
                await until(pilot, lambda: room(pilot).conversation.live is None and room(pilot).view is not None)
                await until(pilot, lambda: room(pilot).conversation.messages[-1].finish == "stop")
            await until(pilot, lambda: "not seen any more" in shown(pilot))
            on.engine.script = turn_events
            await send(pilot, "/retry")
            await until(pilot, lambda: "not seen any more" not in shown(pilot))
            assert on.engine.requests[-1].evictions == ()


async def test_undo_where_it_would_not_fit(home: Path) -> None:
    with stage(home, full) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/overflow shift")
            for text in ("one", "two"):
                await send(pilot, text)
                await until(pilot, lambda: room(pilot).conversation.live is None)
            await until(pilot, lambda: "not seen any more" in shown(pilot))
            assert on.engine.ready is not None
            cache = replace(on.engine.ready.cache, context=20)
            on.engine.come(replace(on.engine.ready, cache=cache))
            await send(pilot, "/overflow stop")
            await send(pilot, "/undo")
            await until(pilot, lambda: "It would not fit" in toasts(pilot))
            await until(pilot, lambda: "/context" in toasts(pilot))
            await sees(pilot, "not seen any more")
            await send(pilot, "/overflow sinks")
            await send(pilot, "/undo")
            await sees(pilot, "The context holds 20, so some will leave again (sinks)")


async def test_a_recurrent_model_says_why_not(home: Path) -> None:
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: on.engine.started)
            ready = make_ready()
            on.engine.come(replace(ready, model=replace(ready.model, attention="hybrid")))
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "/overflow Shift")
            await until(pilot, lambda: "a recurrent state cannot let single tokens go" in toasts(pilot))
            assert room(pilot).conversation.own.overflow is None
            await send(pilot, "/overflow some")
            await until(pilot, lambda: "an overflow policy" in toasts(pilot))
            await send(pilot, "/overflow")
            await sees(pilot, "overflow stop: the answer ends, nothing leaves")


@pytest.mark.parametrize("attention", ["GQA", "recurrent"])
def test_the_field_in_the_settings(attention: str) -> None:
    ready = make_ready()
    ready = replace(ready, model=replace(ready.model, attention=attention))
    page = HistoryPage(ChatDraft(ChatNow()), ready)
    page.step("overflow", 1)
    walked: OverflowPolicy = "shift" if attention == "GQA" else "summarize"  # for which nothing has to leave
    assert page.draft.own == Own(overflow=walked)
    row = page.row("overflow")
    assert row.walkable
    assert ("the oldest turns leave" if attention == "GQA" else "the model sums up the oldest turns") in row.note
    detail = page.detail("overflow")
    assert "sinks: the first tokens and the last ones stay" in detail
    assert ("a recurrent state cannot let single tokens go" in detail) == (attention == "recurrent")
    assert page.changed
    assert page.line("overflow") is None
    page.give_back("overflow")
    assert not page.changed


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def test_the_real_model_in_a_full_context(terminal: Terminal, home: Path) -> None:
    """A message that leaves little room, an answer that fills it: the question comes, and with sinks it goes on."""
    terminal.open("--ctx-size", "512", "-n", "120", "--temp", "0", "--draft", "off")
    terminal.until(is_ready)
    (home / "long.txt").write_text(" ".join(f"Item {number} is red." for number in range(64)))
    terminal.run("load-buffer", str(home / "long.txt"))
    terminal.run("paste-buffer", "-p")
    terminal.keys("Enter")
    screen = terminal.until_text("The context is full")
    assert "sinks" in screen and "the oldest after the first ones, in 1 message" in screen
    assert "shift" not in screen.partition("The context of 512 tokens is full")[2]  # there is no older turn
    terminal.keys("Enter")
    screen = terminal.until(lambda screen: "go (sinks)" in screen)
    assert re.search(r"let\s+(128|256)\s+tokens go \(sinks\)", screen), screen
    assert re.search(r"\d+ % still seen", screen), screen
    terminal.keys("C-q")
    terminal.until_text("ended with 0")


def test_usage_of_a_reply_that_went_on() -> None:
    from kvchat.conversation.turning import _added

    first = Usage(overflow="sinks", evicted=100, evictions=2, reasoning_evicted=7)
    assert _added(Usage(), first) == replace(Usage(), overflow="sinks", evicted=100, evictions=2, reasoning_evicted=7)
    went_on = Usage(overflow="shift", evicted=20, evictions=1)
    assert _added(went_on, first).evicted == 120
    assert _added(went_on, first).overflow == "shift"

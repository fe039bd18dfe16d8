"""What becomes of answers when the app is left or the engine changed while they are written: finished, stopped, or the
person stays."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from fake_backend import delta, finished, turn_events
from test_background import another, begin, branch, line_of
from textual.pilot import Pilot
from textual.widgets import Static
from ui_fakes import Stage, chip, room, sees, send, shown, stage, until

from kvchat.backend.protocol import EngineDied, Generate
from kvchat.chats.store import ChatStore
from kvchat.ui.background_question import AnswersRunning

SIZE = (100, 30)


def asked(pilot: Pilot[None]) -> bool:
    return isinstance(pilot.app.screen, AnswersRunning)


def question(pilot: Pilot[None]) -> str:
    return "\n".join(str(each.content) for each in pilot.app.screen.query(Static))


def waiting(pilot: Pilot[None]) -> str:
    """The line that tells what is waited for; "" when it is hidden."""
    found = [each for each in room(pilot).screen.query("#ending") if each.display]
    assert all(isinstance(each, Static) for each in found)
    return str(found[0].content) if found and isinstance(found[0], Static) else ""


async def two_answers(pilot: Pilot[None], on: Stage) -> tuple[list[str], list[Generate]]:
    """Two chats that are being answered, the second of them open: their ids, and the requests."""
    chats, requests = [], []
    for name in ("first", "second"):
        if requests:
            await another(pilot)
        requests.append(await begin(pilot, on, name, f"{name} half"))
        chats.append(room(pilot).conversation.chat.id)
    return chats, requests


def ends(on: Stage, chats: list[str]) -> list[tuple[str, str | None]]:
    return [(branch(on, chat)[-1].text, branch(on, chat)[-1].finish) for chat in chats]


async def test_finish_and_quit_waits_for_all(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            chats, requests = await two_answers(pilot, on)
            await send(pilot, "what waits")
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            assert "“first”  10 tok" in question(pilot) and "“second”  11 tok" in question(pilot)
            await pilot.press("enter")
            await until(pilot, lambda: waiting(pilot).startswith("quits after: 2 answers, 21 tokens"))
            assert "esc stays" in waiting(pilot) and "^C stops them" in waiting(pilot)
            on.engine.say(delta(requests[1], " more"))
            await sees(pilot, "second half more")
            on.engine.say(finished(requests[1]))
            await until(pilot, lambda: waiting(pilot).startswith("quits after: 1 answer, 10 tokens"))
            assert len(on.engine.requests) == 2  # what waits is not sent any more
            assert not pilot.app._exit
            on.engine.say(finished(requests[0]))
            await until(pilot, lambda: pilot.app._exit)
            assert on.engine.cancelled == []
        assert ends(on, chats) == [("first half", "stop"), ("second half more", "stop")]
        assert on.store.run(ChatStore.draft, chats[1]).result().text == "what waits"


async def test_stop_and_quit_keeps_what_there_is(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            chats, requests = await two_answers(pilot, on)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("s")
            await until(pilot, lambda: sorted(on.engine.cancelled) == sorted(each.turn for each in requests))
            on.engine.say(*(finished(each, "cancelled") for each in requests))
            await until(pilot, lambda: pilot.app._exit)
        assert ends(on, chats) == [("first half", "cancelled"), ("second half", "cancelled")]


async def test_an_engine_that_does_not_answer_does_not_keep_the_app(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            chats, _ = await two_answers(pilot, on)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("ctrl+q")  # twice: no waiting
            await until(pilot, lambda: len(on.engine.cancelled) == 2)
            await until(pilot, lambda: pilot.app._exit)
        assert ends(on, chats) == [("first half", None), ("second half", None)]


async def test_stay(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            _, requests = await two_answers(pilot, on)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("escape")
            await until(pilot, lambda: not asked(pilot))
            assert waiting(pilot) == ""
            on.engine.say(*(finished(each) for each in requests))
            await until(pilot, lambda: "✓" in line_of(pilot, "first"))
            assert not pilot.app._exit and on.engine.cancelled == []
            await pilot.press("ctrl+q")
            await until(pilot, lambda: pilot.app._exit)


async def test_who_waits_can_stay_or_stop_them(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            chats, requests = await two_answers(pilot, on)
            for _ in range(2):
                await pilot.press("ctrl+q")
                await until(pilot, lambda: asked(pilot))
                await pilot.press("f")
                await until(pilot, lambda: waiting(pilot) != "")
                await pilot.press("escape")
                assert waiting(pilot) == ""
            assert on.engine.cancelled == []
            await send(pilot, "next")  # the chat goes on as before
            assert chip(pilot).startswith("next: next")
            await pilot.press("escape", "ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("f", "ctrl+c")
            await until(pilot, lambda: len(on.engine.cancelled) == 2)
            on.engine.say(*(finished(each, "cancelled") for each in requests))
            await until(pilot, lambda: pilot.app._exit)
        assert [finish for _, finish in ends(on, chats)] == ["cancelled", "cancelled"]


async def test_the_question_goes_when_nothing_is_written_any_more(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            _, requests = await two_answers(pilot, on)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            on.engine.say(delta(requests[0], "!!"), finished(requests[1]))
            await until(pilot, lambda: "12 tok" in question(pilot) and "second" not in question(pilot))
            on.engine.say(finished(requests[0]))
            await until(pilot, lambda: pilot.app._exit)


async def test_a_dead_engine_ends_the_waiting(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            _, requests = await two_answers(pilot, on)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("f")
            on.engine.say(EngineDied("killed", "", True), *(finished(each, "died") for each in requests))
            await until(pilot, lambda: pilot.app._exit)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_does_not_ask(home: Path, number: signal.Signals) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            chats, requests = await two_answers(pilot, on)
            signal.raise_signal(number)
            await until(pilot, lambda: len(on.engine.cancelled) == 2)
            assert not asked(pilot)
            on.engine.say(*(finished(each, "cancelled") for each in requests))
            await until(pilot, lambda: pilot.app._exit)
            assert pilot.app.return_code == 128 + number
        assert [finish for _, finish in ends(on, chats)] == ["cancelled", "cancelled"]


async def test_another_cache_is_applied_when_the_answers_are_finished(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            _, requests = await two_answers(pilot, on)
            await send(pilot, "/cache q8_0")
            await until(pilot, lambda: asked(pilot))
            await pilot.press("f")
            await until(pilot, lambda: waiting(pilot).startswith("applied after: 2 answers"))
            await send(pilot, "what comes then")
            on.engine.say(finished(requests[0]))
            await send(pilot, "/cache q4_0")  # another one, without another question
            await pilot.pause()
            assert not asked(pilot) and on.engine.configured == []
            on.engine.script = turn_events
            on.engine.say(finished(requests[1]))
            await until(pilot, lambda: [each.type_k for each in on.engine.configured] == ["q4_0"])
            await until(pilot, lambda: len(on.engine.requests) == 3)
            await sees(pilot, "Hello there.")
            assert waiting(pilot) == "" and "what comes then" in shown(pilot)


@pytest.mark.parametrize(("size", "names"), [((40, 12), "and 6 more"), ((120, 30), "and 4 more"), ((34, 8), "9 chats")])
async def test_the_question_fits_the_screen(home: Path, size: tuple[int, int], names: str) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=size) as pilot:
            for number in range(9):
                if number:
                    await another(pilot)
                await begin(pilot, on, f"{number} " + "x" * 60)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: asked(pilot))
            await pilot.pause()
            lines = [strip.text for strip in pilot.app.screen._compositor.render_strips()]
            assert any(names in line for line in lines)
            assert any("finish them and quit" in line for line in lines)
            assert any("esc stay" in line for line in lines)

"""Reading ahead from the chat screen, with a fake engine: what it is asked to read, and when; what is told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from fake_backend import delta, finished, prompt_events, turn_events
from textual import events
from textual.pilot import Pilot
from textual.widgets import Static
from ui_fakes import Stage, hint, ready_for, room, sees, send, stage, status, until

from kvchat.backend.protocol import Forecasted, Generate, ReadAhead, ReadingAhead, TurnFinished
from kvchat.backend.values import Usage
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.ui import typing_ahead
from kvchat.ui.chips import FileRef
from kvchat.ui.launch import Survey
from kvchat.ui.settings_screen import SettingsScreen
from kvchat.ui.wording import reading_ahead

LONG = "A line of a text that is long enough to become a chip.\n" * 30


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_ahead, "REST", 0.05)
    monkeypatch.setattr(typing_ahead, "LONG_REST", 0.15)


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: status(pilot).startswith("○"))


async def write(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*("space" if letter == " " else letter for letter in text))


def drafts(on: Stage) -> list[tuple[str, bool]]:
    """What was to be read: draft, whether it has rested."""
    return [(command.messages[-1].text, command.done) for command in on.engine.read_aheads]


async def rested(pilot: Pilot[None], on: Stage, text: str) -> ReadAhead:
    await until(pilot, lambda: (text, True) in drafts(on))
    return on.engine.read_aheads[-1]


async def test_what_is_written_is_read_when_it_rests(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await write(pilot, "tell me")
            await rested(pilot, on, "tell me")
            assert drafts(on)[-2:] == [("tell me", False), ("tell me", True)]
            await write(pilot, " why")
            command = await rested(pilot, on, "tell me why")
            assert command.keep_kv
            await pilot.press("enter")
            await sees(pilot, "▌ tell me why")
            await until(pilot, lambda: not room(pilot).is_busy)
            count = len(drafts(on))
            await write(pilot, "more")
            command = await rested(pilot, on, "more")
            assert [message.role for message in command.messages] == ["user", "assistant", "user"]
            assert all(message.ids for message in command.messages[:2])
            assert len(drafts(on)) > count


async def test_a_paste_is_read_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_ahead, "REST", 60.0)
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            room(pilot).prompt.post_message(events.Paste(LONG))
            await until(
                pilot, lambda: drafts(on) == [(LONG.rstrip("\n") + "\n", False)] or drafts(on) == [(LONG, False)]
            )
            await write(pilot, "why")
            await pilot.pause(0.2)
            assert len(drafts(on)) == 1  # words wait for a rest


async def test_a_file_is_read_when_it_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_ahead, "REST", 60.0)
    file = home / "notes.txt"
    file.write_text(LONG)
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            room(pilot).prompt.put_file((0, 0), (0, 0), FileRef(str(file), "notes.txt"), "30 lines")
            await until(pilot, lambda: len(drafts(on)) == 1)
            assert LONG.strip() in drafts(on)[0][0]


@pytest.mark.parametrize("text", ["/model smol", "   "])
async def test_commands_and_blanks_are_not_read(home: Path, text: str) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await write(pilot, text)
            await pilot.pause(0.4)
            assert drafts(on) == []


async def test_nothing_is_read_while_the_cursor_is_within_the_text(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            room(pilot).prompt.put("the end comes later")
            await rested(pilot, on, "the end comes later")
            await pilot.press("home", "x", "y")
            await pilot.pause(0.4)
            assert all(not text.startswith("x") for text, _ in drafts(on))
            await pilot.press("end", "!")
            await rested(pilot, on, "xythe end comes later!")


async def test_nothing_is_read_while_an_answer_is_written_and_then_it_is(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "question")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "half"))
            await sees(pilot, "half")
            before = len(drafts(on))
            await write(pilot, "meanwhile")
            await pilot.pause(0.4)
            assert len(drafts(on)) == before
            on.engine.say(finished(request))
            await rested(pilot, on, "meanwhile")


async def test_an_answer_in_another_chat_ends_and_the_draft_is_asked_for_again(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await write(pilot, "tell me")
            await rested(pilot, on, "tell me")
            count = len(drafts(on))
            on.engine.say(TurnFinished("another", "stop", Usage()))
            await until(pilot, lambda: len(drafts(on)) > count)


async def test_what_was_written_while_the_model_was_loaded_is_read_then(home: Path) -> None:
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: on.engine.started)
            await write(pilot, "tell me")
            await pilot.pause(0.3)
            assert drafts(on) == []
            on.engine.come(ready_for(on.engine.config))
            await rested(pilot, on, "tell me")


@pytest.mark.parametrize("way", ["setting", "no engine"])
async def test_off(home: Path, way: str) -> None:
    settings = Settings(read_ahead=way != "setting")
    with stage(home, at_start=way == "setting", settings=settings) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await write(pilot, "tell me")
            await pilot.pause(0.4)
            assert drafts(on) == []


async def test_it_is_turned_off_in_the_settings(home: Path) -> None:
    found = ModelFile("tiny", tiny.build("llama", home), 1, "models")
    with stage(home, turn_events, found=Survey((found,), (), found.path)) as on:
        async with on.app().run_test(size=(110, 34)) as pilot:
            await ready(pilot)
            await send(pilot, "/settings turns")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await pilot.press("end", "right")
            effect = pilot.app.screen.query_one("#effect", Static)
            await until(pilot, lambda: str(effect.content).startswith("Nothing is computed again"))
            await pilot.press("enter")
            await until(pilot, lambda: [config.read_ahead for config in on.engine.configured] == [False])
            await ready(pilot)
            await write(pilot, "tell me")
            await pilot.pause(0.4)
            assert drafts(on) == []


async def test_what_was_sent_before_is_read_only_when_it_rests_for_long(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "a question")
            await sees(pilot, "▌ a question")
            await until(pilot, lambda: not room(pilot).is_busy)
            count = len(drafts(on))
            await pilot.press("up")
            await rested(pilot, on, "a question")
            assert drafts(on)[count:] == [("a question", True)]


async def test_the_line_below_the_prompt_tells_how_much_is_read(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await write(pilot, "tell me")
            turn = (await rested(pilot, on, "tell me")).turn
            await until(pilot, lambda: [each.messages[-1].text for each in on.engine.forecasts][-1:] == ["tell me"])
            asked = len(on.engine.forecasts)
            on.engine.say(Forecasted(on.engine.forecasts[-1].turn, 2020, 0, 0, 2020, 9.0, None))
            on.engine.say(ReadingAhead(turn, 2012, 1980, 0, 1980))
            await until(pilot, lambda: hint(pilot) == "read ahead 1,980 of 2,012 tokens")
            on.engine.say(ReadingAhead(turn, 2012, 2012, 0, 2012))
            await until(pilot, lambda: len(on.engine.forecasts) == asked + 1)  # it costs less now
            on.engine.say(Forecasted(on.engine.forecasts[-1].turn, 2020, 2012, 0, 8, 0.1, None))
            cost = "reuses 2,012, computes 8, first token in about 0.1 s"
            await until(pilot, lambda: hint(pilot) == f"{cost} · 2,012 read ahead")
            on.engine.say(ReadingAhead("of somebody else", 1, 1, 0, 1))
            await pilot.pause(0.1)
            await until(pilot, lambda: "2,012 read ahead" in hint(pilot))


async def test_the_answer_tells_what_was_read_while_it_was_typed(home: Path) -> None:
    def script(request: Generate) -> list[object]:
        *events_, last = turn_events(request)
        usage = replace(last.usage, prompt_tokens=2020, reused=2012, resident=2012, ahead=2012, ahead_wasted=7)
        return [*events_, replace(last, usage=usage)]

    with stage(home, script) as on:  # type: ignore[arg-type]
        async with on.app().run_test(size=(160, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "question")
            await sees(pilot, "2,012 read while you typed, 7 in vain")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (ReadingAhead("t", 40, 30), ""),
        (ReadingAhead("t", 40, 30, 0, 8), "read ahead 8 of 18 tokens"),
        (ReadingAhead("t", 40, 40, 0, 12, 3), "12 read ahead, 3 in vain"),
        (
            ReadingAhead("t", 0, 0, why="the state of this model cannot be taken back"),
            "not read ahead: the state of this model cannot be taken back",
        ),
        (
            ReadingAhead("t", 900, 300, 0, 256, why="the rest could not be taken back"),
            "read ahead 256 of 856 tokens, the rest could not be taken back",
        ),
    ],
)
def test_words(told: ReadingAhead, words: str) -> None:
    assert reading_ahead(told) == words

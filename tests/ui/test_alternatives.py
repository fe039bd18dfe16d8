"""Several answers side by side in the app: asked for, shown, stopped, one of them kept while others go on or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import delta, finished, prompt_events, turn_events
from modal_host import text
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, send, stage, status, toasts, until

from kvchat.backend.protocol import Generate, Waits
from kvchat.backend.values import Failure, Sampling
from kvchat.chats.store import ChatStore
from kvchat.config import Settings
from kvchat.ui.alternatives_question import OthersRunning
from kvchat.ui.alternatives_screen import AlternativesScreen

SEEDED = Settings(sampling=Sampling(seed=7))
WIDE, NARROW = (160, 48), (80, 24)


@asynccontextmanager
async def three(home: Path, size: tuple[int, int] = WIDE) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    """A question is written, F5 has asked for three answers, and none of them has begun."""
    with stage(home, settings=SEEDED) as on:
        async with on.app().run_test(size=size) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            room(pilot).prompt.put("Why?")
            await pilot.press("f5")
            await until(pilot, lambda: isinstance(pilot.app.screen, AlternativesScreen))
            yield on, pilot


def side_by_side(pilot: Pilot[None]) -> AlternativesScreen:
    screen = next(each for each in pilot.app.screen_stack if isinstance(each, AlternativesScreen))
    assert isinstance(screen, AlternativesScreen)
    return screen


def in_view(pilot: Pilot[None]) -> list[int]:
    return [column.number for column in side_by_side(pilot)._columns if column.display]


async def reads(pilot: Pilot[None], wanted: str) -> None:
    await until(pilot, lambda: wanted in text(pilot.app))


def begin(on: Stage, *texts: str) -> tuple[Generate, ...]:
    """The prompts are read, and so much of each answer has come."""
    for request, said in zip(on.engine.requests, texts, strict=True):
        on.engine.say(*prompt_events(request), delta(request, said))
    return tuple(on.engine.requests)


def saved(on: Stage) -> list[tuple[str, str | None]]:
    """What is on disk of all answers to the last message."""

    def read(chats: ChatStore) -> list[tuple[str, str | None]]:
        chat = chats.latest()
        assert chat is not None
        branch = chats.branch(chat.id, chat.head)
        found = [chats.path(each)[-1] for each in branch.siblings[branch.messages[-1].id]]
        return [(message.text, message.finish) for message in found]

    return on.store.run(read).result(30)


# ------------------------------------------------------------------ how they look


async def test_three_columns_that_fill_as_text_comes(home: Path) -> None:
    async with three(home) as (on, pilot):
        assert in_view(pilot) == [1, 2, 3]
        await reads(pilot, "3 answers, 3 being written · Why?")
        for seed in (7, 8, 9):
            assert f"{seed - 6}/3 seed {seed}" in text(pilot.app)
        first, second, third = begin(on, "The *first*", "A second", "Third")
        await reads(pilot, "A second")
        row = next(line for line in text(pilot.app).splitlines() if "A second" in line)
        assert [part in row for part in ("The first", "A second", "Third")] == [True] * 3
        on.engine.say(delta(second, " one"), finished(second))
        await reads(pilot, "A second one")
        await reads(pilot, "3 answers, 2 being written")
        on.engine.say(finished(first), finished(third, "length"))
        await reads(pilot, "3 answers · Why?")
        assert "token limit" in text(pilot.app)
        assert [each for each, _ in saved(on)] == ["The *first*", "A second one", "Third"]


async def test_what_each_shares_and_waits_for(home: Path) -> None:
    async with three(home) as (on, pilot):
        first, second, third = on.engine.requests
        on.engine.say(Waits(third.turn, "there is no room in the context"))
        await reads(pilot, "waits: there is no room in the context")
        events = prompt_events(second)
        restored = replace(events[1], reused=812, shared=812, computed=1)  # type: ignore[type-var]
        on.engine.say(events[0], restored, delta(second, "x"))
        await reads(pilot, "shares 812 cells")
        on.engine.say(prompt_events(first)[0])
        await reads(pilot, "restoring")
        on.engine.say(prompt_events(first)[2])
        await reads(pilot, "reading 50%")


async def test_in_a_narrow_terminal_two_at_a_time(home: Path) -> None:
    async with three(home, NARROW) as (on, pilot):
        begin(on, "one", "two", "three")
        assert in_view(pilot) == [1, 2]
        await reads(pilot, "1 to 2 in view")
        await pilot.press("right", "right")
        assert in_view(pilot) == [2, 3]
        await reads(pilot, "three")
        await pilot.press("right")
        assert in_view(pilot) == [1, 2]
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: in_view(pilot) == [1])
        await reads(pilot, "⏎ keep  ←→ move  x stop one  esc stop all")  # the others are not in view
        await pilot.resize_terminal(40, 12)
        await until(pilot, lambda: in_view(pilot) == [1])
        await pilot.press("left")
        assert in_view(pilot) == [3]
        await reads(pilot, "three")
        await pilot.resize_terminal(160, 48)
        await until(pilot, lambda: in_view(pilot) == [1, 2, 3])
        await reads(pilot, "one")


async def test_one_scrolls_and_the_others_stay(home: Path) -> None:
    async with three(home, NARROW) as (on, pilot):
        begin(on, "\n\n".join(f"first {number}" for number in range(40)), "two", "three")
        await reads(pilot, "first 39")
        await pilot.press("pageup")
        await until(pilot, lambda: "first 39" not in text(pilot.app))
        await pilot.press("end")
        await reads(pilot, "first 39")
        assert "two" in text(pilot.app)


async def test_nothing_of_it_reaches_the_terminal(home: Path) -> None:
    async with three(home) as (on, pilot):
        begin(on, "a\x1b]0;title\x07b", "[red]c[/red]", "d\u202ee")
        await reads(pilot, "[red]c[/red]")
        assert "\x1b" not in text(pilot.app)
        assert "\u202e" not in text(pilot.app)


# ------------------------------------------------------------------ keeping one


@pytest.mark.parametrize("keys", [["2"], ["right", "enter"], ["left", "left", "enter"]])
async def test_the_kept_one_is_the_answer(home: Path, keys: list[str]) -> None:
    async with three(home) as (on, pilot):
        for request, said in zip(begin(on, "one", "two", "three"), "abc", strict=True):
            on.engine.say(finished(request))
            assert said
        await reads(pilot, "3 answers · Why?")
        await pilot.press(*keys)
        await sees(pilot, "‹2/3›")
        assert [m.text for m in room(pilot).conversation.messages] == ["Why?", "two"]
        await sees(pilot, "temperature 0.8, seed 8")
        await until(pilot, lambda: _path(on) == ["Why?", "two"])
        await send(pilot, "More?")
        await until(pilot, lambda: len(on.engine.requests) == 4)
        assert [m.text for m in on.engine.requests[-1].messages] == ["Why?", "two", "More?"]


def _path(on: Stage) -> list[str]:
    def read(chats: ChatStore) -> list[str]:
        chat = chats.latest()
        assert chat is not None
        return [message.text for message in chats.path(chat.head)]

    return on.store.run(read).result(30)


async def test_keeping_one_while_the_others_go_on(home: Path) -> None:
    async with three(home) as (on, pilot):
        first, second, third = begin(on, "one", "two", "three")
        on.engine.say(finished(second))
        await reads(pilot, "2 being written")
        await pilot.press("2")
        await until(pilot, lambda: isinstance(pilot.app.screen, OthersRunning))
        assert "2 other answers are still being written." in text(pilot.app)
        await pilot.press("enter")
        await sees(pilot, "‹2/3›")
        await until(pilot, lambda: "2 other answers being written" in status(pilot))
        assert on.engine.cancelled == []
        await send(pilot, "More?")
        await until(pilot, lambda: len(on.engine.requests) == 4)
        on.engine.say(*turn_events(on.engine.requests[-1], ["four"]))
        await sees(pilot, "four")
        on.engine.say(delta(first, " more"), finished(first), finished(third))
        await until(pilot, lambda: "All answers are there" in toasts(pilot))
        assert [m.text for m in room(pilot).conversation.messages] == ["Why?", "two", "More?", "four"]
        await pilot.press("ctrl+o", "g", "j", "left_square_bracket")
        await sees(pilot, "one more")
        await until(pilot, lambda: saved(on) == [("one more", "stop"), ("two", "stop"), ("three", "stop")])


async def test_keeping_one_and_stopping_the_others(home: Path) -> None:
    async with three(home) as (on, pilot):
        first, second, third = begin(on, "one", "two", "three")
        await pilot.press("3")
        await until(pilot, lambda: isinstance(pilot.app.screen, OthersRunning))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, AlternativesScreen))
        assert room(pilot).conversation.messages[-1].text == "one"
        await pilot.press("3", "s")
        await sees(pilot, "‹3/3›")
        assert sorted(on.engine.cancelled) == sorted([first.turn, second.turn])
        on.engine.say(finished(first, "cancelled"), finished(second, "cancelled"))
        on.engine.say(delta(third, " of three"), finished(third))
        await sees(pilot, "three of three")
        assert saved(on) == [("one", "cancelled"), ("two", "cancelled"), ("three of three", "stop")]


async def test_they_are_shown_again(home: Path) -> None:
    async with three(home) as (on, pilot):
        for request in begin(on, "one", "two", "three"):
            on.engine.say(finished(request))
        await reads(pilot, "3 answers · Why?")
        await pilot.press("escape")
        await sees(pilot, "‹1/3›")
        await send(pilot, "/alt")
        await until(pilot, lambda: isinstance(pilot.app.screen, AlternativesScreen))
        await reads(pilot, "three")
        await pilot.press("3")
        await sees(pilot, "‹3/3›")
        assert len(on.engine.requests) == 3


# ------------------------------------------------------------------ stopping


async def test_escape_stops_all_and_then_leaves(home: Path) -> None:
    async with three(home) as (on, pilot):
        requests = begin(on, "one", "two", "three")
        await reads(pilot, "esc stop all")
        await pilot.press("escape")
        assert sorted(on.engine.cancelled) == sorted(request.turn for request in requests)
        on.engine.say(*(finished(request, "cancelled") for request in requests))
        await reads(pilot, "esc back")
        assert text(pilot.app).count("stopped") == 3
        await pilot.press("escape")
        await sees(pilot, "stopped: /continue goes on")
        assert saved(on) == [("one", "cancelled"), ("two", "cancelled"), ("three", "cancelled")]


async def test_one_is_stopped(home: Path) -> None:
    async with three(home) as (on, pilot):
        _, second, _ = begin(on, "one", "two", "three")
        await pilot.press("right", "x")
        assert on.engine.cancelled == [second.turn]
        on.engine.say(finished(second, "cancelled"))
        await reads(pilot, "2 being written")
        await pilot.press("x")
        assert on.engine.cancelled == [second.turn]


async def test_a_copy_leaves_out_what_the_model_thought_whoever_opened_the_block(home: Path) -> None:
    async with three(home) as (on, pilot):
        begin(on, "hmm\n</think>\n\nYes.", "<think>a</think>No.", "Maybe.")
        await reads(pilot, "Maybe.")
        copied = []
        for _ in range(3):
            await pilot.press("y", "right")
            copied.append(pilot.app.clipboard)
        assert copied == ["Yes.", "No.", "Maybe."]


async def test_one_that_failed_says_why(home: Path) -> None:
    async with three(home) as (on, pilot):
        first, second, third = begin(on, "one", "two", "three")
        on.engine.say(finished(second, "error", Failure("there is no room for it", "wait for another one")))
        await reads(pilot, "There is no room for it")
        on.engine.say(finished(first), finished(third, "died", Failure("the engine was killed")))
        await reads(pilot, "The engine was killed")
        await pilot.press("1")
        await sees(pilot, "‹1/3›")


# ------------------------------------------------------------------ asking


async def test_beside_the_last_answer_with_temperatures(home: Path) -> None:
    with stage(home, turn_events, settings=SEEDED) as on:
        async with on.app().run_test(size=WIDE) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "Why?")
            await sees(pilot, "Hello there.")
            on.engine.script = None
            await send(pilot, "/alt 2 0.1 0.9")
            await until(pilot, lambda: isinstance(pilot.app.screen, AlternativesScreen))
            await reads(pilot, "2/2 temperature 0.9, seed 7")
            assert [request.sampling.temperature for request in on.engine.requests[1:]] == [0.1, 0.9]
            for request in on.engine.requests[1:]:
                on.engine.say(*turn_events(request, ["again"]))
            await reads(pilot, "2 answers · Why?")
            await pilot.press("2")
            await sees(pilot, "‹3/3›")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/alt", "no answer to write again"),
        ("/alt 1", "cannot be 1 answers"),
        ("/alt lots", "no number of answers"),
        ("/alt 3 0.5", "one for each"),
    ],
)
async def test_what_cannot_be_asked_for(home: Path, command: str, said: str) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=WIDE) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, command)
            await until(pilot, lambda: said in toasts(pilot))
            assert on.engine.requests == []


async def test_while_an_answer_is_written_the_text_comes_back(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=WIDE) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, "Why?")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            room(pilot).prompt.put("And this?")
            await pilot.press("f5")
            await until(pilot, lambda: "being written" in toasts(pilot))
            assert room(pilot).prompt.text == "And this?"
            room(pilot).prompt.put("/retry")
            await pilot.press("f5")
            await until(pilot, lambda: "This is a command" in toasts(pilot))
            assert room(pilot).prompt.text == "/retry"


async def test_at_temperature_zero_it_is_said(home: Path) -> None:
    with stage(home, settings=Settings(sampling=Sampling(temperature=0.0))) as on:
        async with on.app().run_test(size=WIDE) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            room(pilot).prompt.put("Why?")
            await pilot.press("f5")
            await until(pilot, lambda: "At temperature 0 all of them are the same" in toasts(pilot))


async def test_all_that_was_typed_at_once_is_done_in_its_order(home: Path) -> None:
    """The keys after F5 are for the screen that it opens, or harmless."""
    async with three(home) as (on, pilot):
        for request in begin(on, "one", "two", "three"):
            on.engine.say(finished(request))
        await reads(pilot, "3 answers · Why?")
        await pilot.press("right", "right", "left", "enter", "enter", "escape")
        await sees(pilot, "‹2/3›")
        assert len(on.engine.requests) == 3

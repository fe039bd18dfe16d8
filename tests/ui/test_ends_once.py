"""Screens over the chat end once, whatever comes in one read, and never take another one away."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import settled, type_at_once
from textual.pilot import Pilot
from ui_fakes import room, sees, send, stage, until

from kvchat.ui.help import Help


async def chatting(pilot: Pilot[None]) -> None:
    await send(pilot, "hello")
    await sees(pilot, "Hello there.")
    await until(pilot, lambda: not room(pilot).is_busy)


@pytest.mark.parametrize(
    "opening",
    [("f1",), ("f2",), ("f3",), ("ctrl+p",), ("f2", "m", "enter"), ("ctrl+s", "tab", "r")],
    ids=" ".join,
)
@pytest.mark.parametrize("ending", ["escape", "ctrl+c", "enter"])
async def test_several_keys_that_end_it_in_one_read(home: Path, opening: tuple[str, ...], ending: str) -> None:
    """Help, settings, inspector, palette, the list of models, a question: the chat is still there, and can be used."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await chatting(pilot)
            await pilot.press(*opening)
            await settled(pilot, lambda: len(pilot.app.screen_stack) > 1)
            times = 2 if ending == "ctrl+c" else 4  # the next two would be for the chat, and end the app
            await type_at_once(pilot, *[ending] * times)
            for _ in range(6):
                await pilot.press("escape")
            await settled(pilot, lambda: len(pilot.app.screen_stack) == 1)
            room(pilot).prompt.focus()
            await send(pilot, "again")
            await until(pilot, lambda: len(on.engine.requests) == 2)


@pytest.mark.parametrize("opening", ["f1", "f2", "f3", "ctrl+p", "ctrl+s", "ctrl+o"])
async def test_keys_for_a_screen_that_was_not_drawn_yet(home: Path, opening: str) -> None:
    """What opens it and what moves in it come in one read."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await chatting(pilot)
            keys = ("end", "down", "tab", "up", "home", "shift+tab", "pagedown", "right", "left", "backspace", "a", "7")
            await type_at_once(pilot, opening, *keys)
            for _ in range(6):
                await pilot.press("escape")
            await settled(pilot, lambda: len(pilot.app.screen_stack) == 1)
            assert pilot.app._exception is None


@pytest.mark.parametrize("opening", ["f1", "f2", "f3", "ctrl+p"])
async def test_a_key_that_is_held_opens_one_screen(home: Path, opening: str) -> None:
    """Five of it in one read: one screen, or with F1, which takes the help away too, one or none."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await chatting(pilot)
            await type_at_once(pilot, *[opening] * 5)
            await settled(pilot, lambda: len(pilot.app.screen_stack) <= 2)
            await type_at_once(pilot, "enter", "enter", "enter")
            await pilot.pause()
            assert len(pilot.app.screen_stack) <= 4  # from the inspector to the settings, and from these to the models


async def test_a_key_for_a_screen_under_another_one_waits_for_nothing(home: Path) -> None:
    """Help over the settings: what ends the settings does not take the help away, and works once that is gone."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await chatting(pilot)
            await pilot.press("f2")
            await settled(pilot, lambda: len(pilot.app.screen_stack) == 2)
            below = pilot.app.screen
            await pilot.press("f1")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Help))
            below.action_cancel()  # type: ignore[attr-defined]
            await pilot.pause()
            assert isinstance(pilot.app.screen, Help)
            await pilot.press("escape")
            await settled(pilot, lambda: pilot.app.screen is below)
            await pilot.press("escape")
            await settled(pilot, lambda: len(pilot.app.screen_stack) == 1)

"""The palette and the help: everything by name, with the keys that do the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import EVIL, text
from rich.cells import cell_len
from textual.pilot import Pilot
from ui_fakes import OTHER, lines, room, sees, send, shown, stage, toasts, until

from kvchat.ui.help import Help, Line, matching
from kvchat.ui.inspector import Inspector
from kvchat.ui.palette import Entry, Palette
from kvchat.ui.settings_screen import SettingsScreen
from kvchat.ui.slash import COMMANDS


def rows(pilot: Pilot[None]) -> list[str]:
    """The lines within the box that is on the screen, from its filter on."""
    return [line.strip(" │╭╮╰╯─▁▂▃▄▅▆▇█") for line in text(pilot.app).splitlines() if "│" in line]


async def palette(pilot: Pilot[None], *keys: str) -> Palette:
    """Open it, and type."""
    await pilot.press("ctrl+p", *keys)
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette))
    await pilot.pause(0.1)
    found = pilot.app.screen
    assert isinstance(found, Palette)
    return found


# ------------------------------------------------------------------ the palette


async def test_it_lists_actions_with_their_keys_and_all_commands(home: Path) -> None:
    """Before anything is typed: what can be done, with keys at the right edge, then the slash commands."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 60)) as pilot:
            await palette(pilot)
            told = text(pilot.app)
            for name in COMMANDS:
                assert f" {name} " in told, name
            assert any(row.startswith("New chat") and row.endswith("^N") for row in rows(pilot))
            assert "Theme: ink" not in told


async def test_an_action_is_done(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await palette(pilot, *"settings")
            assert rows(pilot)[1] == "" and rows(pilot)[2].startswith("Settings")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))


async def test_a_command_is_carried_out_or_written_into_the_prompt(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await palette(pilot, *"/system")
            await pilot.press("enter")
            await sees(pilot, "This chat has no system prompt.")
            await palette(pilot, *"/system")
            await pilot.press("tab")
            await until(pilot, lambda: room(pilot).prompt.text == "/system ")
            assert room(pilot).prompt.has_focus


async def test_a_chat_is_opened_by_its_title(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            for title in ("first about apples", "second about pears"):
                await send(pilot, title)
                await sees(pilot, "Hello there.")
                await pilot.press("ctrl+n")
                await until(pilot, lambda: "Hello there." not in shown(pilot))
            await palette(pilot, *"chat apples")
            await until(pilot, lambda: any("Chat: first about apples" in row for row in rows(pilot)))
            await pilot.press("enter")
            await sees(pilot, "▌ first about apples")


async def test_a_model_is_chosen(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.engine.started)
            await palette(pilot, *"model: other")
            assert any(row.startswith("Model: other-2b") for row in rows(pilot))
            await pilot.press("enter")
            await until(pilot, lambda: str(OTHER.path) in toasts(pilot))  # it was meant, and is not there


async def test_a_theme_is_shown_while_one_moves_over_it_and_kept_when_chosen(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await palette(pilot, *"theme: ")
            assert pilot.app.theme == "ink"
            await pilot.press("down")  # auto is the first, then ink, then paper
            await pilot.press("down")
            await until(pilot, lambda: pilot.app.theme == "paper")
            await pilot.press("escape")
            await until(pilot, lambda: pilot.app.theme == "ink")
            await palette(pilot, *"theme: paper")
            await pilot.press("enter")
            await until(pilot, lambda: pilot.app.theme == "paper")
            file = home / "config.toml"
            await until(pilot, lambda: file.exists() and tomllib.loads(file.read_text())["theme"] == "paper")


async def test_names_of_others_are_text(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, EVIL)
            await sees(pilot, "Hello there.")
            await palette(pilot, *"evil")
            await until(pilot, lambda: any("[bold red]" in row for row in rows(pilot)))
            assert "\x1b" not in text(pilot.app)
            box = text(pilot.app).partition("Commands")[2].partition("╰")[0].splitlines()[1:-1]
            assert len({cell_len(line[: line.rindex("│")]) for line in box}) == 1


async def test_what_is_typed_at_once_finds_what_was_meant(home: Path) -> None:
    """Key, name and Enter come in one go: nothing is lost and nothing is overtaken."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await pilot.press("ctrl+p", *"kv insp", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, Inspector))


async def test_nothing_of_that_name(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(60, 20)) as pilot:
            await palette(pilot, *"qqqq")
            assert "nothing has such a name" in text(pilot.app)
            await pilot.press("enter", "escape")
            await until(pilot, lambda: not pilot.app.screen.is_modal)


async def test_a_click_chooses(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await palette(pilot, *"/system")
            row = next(y for y, line in enumerate(text(pilot.app).splitlines()) if "/system [text]" in line)
            await pilot.click(offset=(30, row))
            await sees(pilot, "This chat has no system prompt.")


def test_entries_of_one_name_are_not_one() -> None:
    one, other = (Entry("Chat", "hello", lambda: None, id=name) for name in "ab")
    assert one != other


# ------------------------------------------------------------------ the help


@pytest.mark.parametrize(
    ("keys", "first", "told"),
    [
        ((), "Writing", ["Send;", "New chat", "/quit", "Undo", "Keys and commands"]),
        (("ctrl+o",), "Browsing messages", ["New chat", "/quit"]),
        (("ctrl+s",), "List of chats", ["Rename", "New chat"]),
        (("f2",), "Settings", ["Save as default", "Keys and commands"]),
        (("f3",), "KV inspector", ["Report to a file", "Keys and commands"]),
    ],
)
async def test_help_is_about_what_has_the_keyboard(
    home: Path, keys: tuple[str, ...], first: str, told: list[str]
) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            await pilot.press(*keys)
            await pilot.pause(0.1)
            before = pilot.app.screen
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(pilot.app.screen, Help))
            await pilot.pause(0.1)
            assert rows(pilot)[2] == first
            screen = pilot.app.screen
            assert isinstance(screen, Help)
            words = "\n".join(f"{line.name} {line.words}" for line in screen.found(""))
            for each in told:
                assert each in words
            await pilot.press("f1")
            await until(pilot, lambda: pilot.app.screen is before)


async def test_a_question_mark_is_help_only_where_one_cannot_write(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await pilot.press("question_mark")
            assert room(pilot).prompt.text == "?"
            await pilot.press("ctrl+u")
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            for keys in (("ctrl+o",), ("ctrl+s", "tab"), ("f2",)):
                await pilot.press(*keys, "question_mark")
                await until(pilot, lambda: isinstance(pilot.app.screen, Help))
                await pilot.press("question_mark")  # here it is looked for
                await until(pilot, lambda: "?" in rows(pilot)[0])
                await pilot.press("escape", "escape")
                await until(pilot, lambda: not pilot.app.screen.is_modal)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 10)])
async def test_help_fits_and_is_searched(home: Path, size: tuple[int, int]) -> None:
    """No line of the help is cut: what does not fit goes on below, behind the keys."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=size) as pilot:
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(pilot.app.screen, Help))
            await pilot.pause(0.1)
            assert "…" not in text(pilot.app)
            await pilot.press(*"trash")
            await pilot.pause(0.1)
            assert "/delete" in text(pilot.app)
            assert "/quit" not in text(pilot.app)


async def test_help_can_be_asked_for_a_word(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await send(pilot, "/help clipboard")
            await until(pilot, lambda: isinstance(pilot.app.screen, Help))
            await until(pilot, lambda: "nothing has such a name" in text(pilot.app))
            await pilot.press("escape")
            assert lines(pilot)


def test_headings_without_lines_are_left_out() -> None:
    told = [Line("One"), Line("a", "first"), Line("Two"), Line("b", "second")]
    assert matching(told, "") == told
    assert matching(told, "SEC b") == told[2:]
    assert matching(told, "zzz") == []

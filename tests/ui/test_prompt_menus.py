"""Menus above the prompt and the search in what was sent, in the whole app."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_backend import turn_events
from textual import events
from textual.pilot import Pilot
from ui_fakes import hint, room, sees, send, shown, stage, status, toasts, until

from kvchat.chats.store import ChatStore
from kvchat.chats.types import stored_object
from kvchat.ui.overlay import Overlay


def frame(pilot: Pilot[None]) -> list[str]:
    """The whole screen as text."""
    return [strip.text.rstrip() for strip in pilot.app.screen_stack[0]._compositor.render_strips()]


def menu(pilot: Pilot[None]) -> list[str]:
    """The lines of the overlay with its frame; none when it is hidden."""
    found = list(pilot.app.screen_stack[0].query(Overlay))
    if not found or not found[0].display:
        return []
    region = found[0].region
    return [line[region.x : region.right] for line in frame(pilot)[region.y : region.bottom]]


def marked(pilot: Pilot[None]) -> int | None:
    return pilot.app.screen_stack[0].query_one(Overlay)._marked


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: room(pilot).prompt.companion is not None)
    await until(pilot, lambda: "fake-1b" in status(pilot))


async def test_the_menu_lies_over_the_transcript(home: Path) -> None:
    """At 80x24: ten commands in a box right above the prompt, which stays in its place; what is left of the welcome is
    above the box."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            before = frame(pilot)
            await pilot.press("/")
            await until(pilot, lambda: len(menu(pilot)) == 12)
            box = menu(pilot)
            assert box[0].startswith("╭─ commands ─")
            assert box[1].startswith("│▌/model [name]")
            assert "choose the model" in box[1]
            assert "esc leaves the text" in box[-1]
            assert {len(line) for line in box} == {80}
            assert frame(pilot)[:3] == before[:3]
            top = next(row for row, line in enumerate(before) if line.startswith("╭"))
            assert frame(pilot)[top - 1] == box[-1]
            assert frame(pilot)[top].startswith("╭")


async def test_it_follows_the_text_and_the_prompt(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press(*"a b", "ctrl+j", "@")
            await until(pilot, lambda: len(menu(pilot)) >= 2)
            box = menu(pilot)
            await pilot.resize_terminal(60, 20)
            await until(pilot, lambda: menu(pilot) != box and len(menu(pilot)[0]) == 60)
            row = next(row for row, line in enumerate(frame(pilot)) if line == menu(pilot)[-1])
            assert frame(pilot)[row + 1].startswith("╭")


async def test_letters_narrow_it_and_enter_takes(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press(*"/re")
            await until(pilot, lambda: len(menu(pilot)) > 2)
            assert menu(pilot)[1].startswith("│▌/retry")  # shorter than /rename
            await pilot.press("down", "enter")
            assert room(pilot).prompt.text == "/rename "
            assert menu(pilot) == []
            assert on.engine.requests == []
            await pilot.press(*"x", "enter")
            await until(pilot, lambda: "gets its title with its first message" in toasts(pilot))


async def test_a_whole_command_is_carried_out_at_once(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press(*"/history", "enter")
            await sees(pilot, "history append: what was rendered stays as it was")
            await sees(pilot, "template GGUF: no answer here yet")


async def test_escape_leaves_the_text_and_the_menu_stays_away(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press(*"/mo", "escape", *"d")
            assert room(pilot).prompt.text == "/mod"
            assert menu(pilot) == []
            await pilot.press("ctrl+u", *"/mo")
            await until(pilot, lambda: len(menu(pilot)) > 2)


async def test_arguments_that_are_known(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press(*"/cache ")
            await until(pilot, lambda: len(menu(pilot)) == 6)
            assert [line.strip("│▌ ").split()[0] for line in menu(pilot)[1:-1]] == ["f16", "bf16", "q8_0", "q4_0"]
            await pilot.press(*"q8", "tab", "enter")
            await until(pilot, lambda: bool(on.engine.configured))
            assert (on.engine.configured[0].type_k, on.engine.configured[0].type_v) == ("q8_0", "q8_0")
            await pilot.press(*"/model ")
            await until(pilot, lambda: len(menu(pilot)) == 4)
            assert "other-2b" in menu(pilot)[2]
            assert "2.0 GiB" in menu(pilot)[2]
            await pilot.press(*"\x7f")
            await pilot.press("ctrl+u", *"/context ")
            await until(pilot, lambda: "now" in "".join(menu(pilot)))
            # the model was trained for 4,096 tokens, which is the context that it has
            assert [line.split()[1:3] for line in menu(pilot)[1:-1]] == [["2048", "│"], ["4096", "now"]]


async def test_what_is_recalled_opens_no_menu(home: Path) -> None:
    """Up goes on through what was sent, a command among it."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            room(pilot).prompt.remember(["first", "/mode", "last"])
            await pilot.press("up", "up")
            assert room(pilot).prompt.text == "/mode"
            assert menu(pilot) == []
            await pilot.press("up")
            assert room(pilot).prompt.text == "first"


async def test_a_pasted_slash_opens_no_menu(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            room(pilot).prompt.post_message(events.Paste("/mod"))
            await pilot.pause()
            await pilot.press("e")
            assert (room(pilot).prompt.text, menu(pilot)) == ("/mode", [])


async def test_the_mouse_takes_and_scrolls(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press("/")
            await until(pilot, lambda: len(menu(pilot)) == 12)
            overlay = pilot.app.screen.query_one(Overlay)
            overlay.post_message(events.MouseScrollDown(overlay, 1, 1, 0, 1, 0, False, False, False, 1, 1))
            await until(pilot, lambda: marked(pilot) == 1)
            third = menu(pilot)[3].strip(" ▌│").split()[0]
            await pilot.click(Overlay, offset=(4, 3))
            await until(pilot, lambda: room(pilot).prompt.text == f"{third} ")
            assert room(pilot).prompt.has_focus


async def test_a_window_without_room_has_no_menu_and_all_keys(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(20, 4)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await pilot.press(*"/help", "enter")
            await until(pilot, lambda: room(pilot).prompt.text == "")


async def test_foreign_names_are_shown_as_text(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a\x1b]0;OWNED\x07[bold]x[⚠️].txt").write_text("x")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(60, 20)) as pilot:
            await ready(pilot)
            await pilot.press("@", "a")
            await until(pilot, lambda: "bold" in "".join(menu(pilot)))
            assert "a␛]0;OWNED␇[bold]x[⚠].txt" in menu(pilot)[1]
            assert menu(pilot)[1].endswith("│")


# ---------------------------------------------------------------------- what was sent before


async def test_search_in_what_was_sent(home: Path) -> None:
    """A box above the prompt: this chat's texts first, then those of the others; the draft stays below."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            for text in ("far alpha", "far beta"):
                await send(pilot, text)
                await until(pilot, lambda: not room(pilot).is_busy and room(pilot).conversation.messages != ())
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            await send(pilot, "here alpha")
            await sees(pilot, "Hello there.")
            await pilot.press(*"draft", "ctrl+r")
            await until(pilot, lambda: len(menu(pilot)) == 5)
            texts = [line.strip("│▌ ").split("  ")[0] for line in menu(pilot)[1:-1]]
            assert texts == ["here alpha", "far beta", "far alpha"]
            assert "another chat" in menu(pilot)[2]
            assert room(pilot).prompt.text == "draft"
            await pilot.press(*"alpha")
            await until(pilot, lambda: len(menu(pilot)) == 4)
            assert "sent before: alpha" in menu(pilot)[0]
            await pilot.press("ctrl+r", "enter")
            assert room(pilot).prompt.text == "far alpha"
            assert menu(pilot) == []
            await pilot.press("up")  # the draft is not lost
            assert room(pilot).prompt.text == "draft"


async def test_search_left_and_search_in_vain(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await send(pilot, "words")
            await sees(pilot, "Hello there.")
            for key in ("escape", "ctrl+c", "ctrl+g"):
                await pilot.press(*"x", "ctrl+r", *"wor", key)
                assert (room(pilot).prompt.text, menu(pilot)) == ("x", [])
                await pilot.press("backspace")
            await pilot.press("ctrl+r", *"zzz")
            await until(pilot, lambda: "(nothing)" in "".join(menu(pilot)))
            await pilot.press("enter")
            assert "(nothing)" in "".join(menu(pilot))
            await pilot.press("ctrl+u")
            await until(pilot, lambda: "words" in "".join(menu(pilot)))
            room(pilot).prompt.post_message(events.Paste("wo\nrds"))
            await until(pilot, lambda: "sent before: wo rds" in menu(pilot)[0])


# ---------------------------------------------------------------------- what commands say


async def test_history_is_the_chats_own(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await ready(pilot)
            await send(pilot, "one")
            await sees(pilot, "Hello there.")
            assert on.engine.requests[-1].history == "append"
            await send(pilot, "/history exact")
            await until(pilot, lambda: "history exact, for this chat." in toasts(pilot))
            await send(pilot, "/history no")
            await until(pilot, lambda: "append, exact" in toasts(pilot))
            await send(pilot, "two")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            assert on.engine.requests[-1].history == "exact"
            latest = on.store.run(ChatStore.latest).result()
            assert latest is not None
            assert stored_object(latest.settings)["history"] == "exact"
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            assert room(pilot).conversation.history == "append"


async def test_a_system_prompt_that_varies_gets_a_hint(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await ready(pilot)
            await send(pilot, "/system Today is 2026-11-29. " + "You are brief and exact. " * 4)
            await sees(pilot, "The system prompt holds a date (2026-11-29)")
            await sees(pilot, "computed again when it")
            await send(pilot, "/system You are brief.")
            await until(pilot, lambda: room(pilot).conversation.chat.system == "You are brief.")
            assert shown(pilot).count("The system prompt holds") == 1
            assert hint(pilot).startswith("⏎ send")

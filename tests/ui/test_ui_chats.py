"""The list of chats: find, rename, delete and undo, duplicate; and that a title is only text."""

from __future__ import annotations

import json
import re
import stat
from datetime import datetime
from pathlib import Path

import pytest
from fake_backend import delta, prompt_events, turn_events
from modal_host import type_at_once
from rich.cells import cell_len
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input
from ui_fakes import Stage, listed, room, sees, send, shown, stage, toasts, until

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.ui.dialogs import AskLine
from kvchat.ui.sidebar import ChatList, Filter


def rows(pilot: Pilot[None]) -> list[str]:
    """What the list says of chats, without the ages."""
    return [row.rpartition("now")[0].strip(" ▌●") for row in listed(pilot)]


def heads(pilot: Pilot[None]) -> list[str]:
    """Under which heads they stand."""
    lists = room(pilot).screen.query(ChatList)
    return [str(each.prompt).strip() for listing in lists for each in listing.options if each.disabled]


def highlighted(pilot: Pilot[None]) -> str:
    found = (listing.highlighted_option for listing in room(pilot).screen.query(ChatList))
    return next((str(option.prompt) for option in found if option is not None), "")


def titles(on: Stage) -> list[str]:
    return [summary.chat.title for summary in on.store.run(ChatStore.chats).result()]


async def chat(pilot: Pilot[None], text: str) -> None:
    """A chat with one turn, whose title is `text`."""
    if room(pilot).conversation.messages:
        await pilot.press("ctrl+n")
        await until(pilot, lambda: not room(pilot).conversation.messages)
    await send(pilot, text)
    await sees(pilot, "Hello there.")
    await until(pilot, lambda: not room(pilot).is_busy and bool(rows(pilot)) and rows(pilot)[0] == text[:21])


async def test_typing_finds_chats_by_title_and_text(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, ["Hello there. ", request.messages[-1].text[::-1]])) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "about pirates")
            await chat(pilot, "about whales")
            await pilot.press("ctrl+s", "p", "i", "r")
            await until(pilot, lambda: rows(pilot) == ["about pirates"])
            assert isinstance(pilot.app.focused, Filter)
            assert heads(pilot) == []
            await pilot.press("escape")
            await until(pilot, lambda: rows(pilot) == ["about whales", "about pirates"])
            await pilot.press("slash", *"selahw")  # in an answer only
            await until(pilot, lambda: len(rows(pilot)) == 1)
            listing = room(pilot).screen.query_one(ChatList)
            prompt = listing.options[0].prompt
            assert isinstance(prompt, Content)
            assert [prompt.plain[span.start : span.end] for span in prompt.spans if "bold" in str(span.style)] == [
                "selahw"
            ]
            await pilot.press("ctrl+u", *"about")
            await until(pilot, lambda: listing.option_count == 2)
            await pilot.press("down", "enter")
            await until(pilot, lambda: room(pilot).prompt.has_focus)
            assert room(pilot).sidebar.query_one(Input).value == ""
            await until(pilot, lambda: heads(pilot) == ["Today"] and len(rows(pilot)) == 2)


async def test_no_letter_that_acts_is_taken_from_a_search(home: Path) -> None:
    """What is typed after ^S is looked for, whatever it begins with; letters act where Down or Tab leads."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
            for letter in "rpxfdujk":
                await pilot.press("ctrl+s", letter, "z")
                assert room(pilot).sidebar.query_one(Input).value == f"{letter}z"
                await until(pilot, lambda: rows(pilot) == [])
                await pilot.press("escape", "escape")
                await until(pilot, lambda: rows(pilot) == ["one"])
            assert titles(on) == ["one"]
            await pilot.press("ctrl+s", "down", "slash", "d", "/")  # from the list, too; a second slash is looked for
            assert room(pilot).sidebar.query_one(Input).value == "d/"
            await pilot.press("escape", "tab", "d")
            await until(pilot, lambda: titles(on) == [])


async def test_what_is_typed_in_one_go_with_the_key_is_looked_for(home: Path) -> None:
    """No pause in which the keyboard could come to the list before the letters do."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "about pirates")
            await chat(pilot, "about whales")
            await type_at_once(pilot, "a", "ctrl+s", "p", "i", "r")
            await until(pilot, lambda: rows(pilot) == ["about pirates"])
            assert room(pilot).prompt.text == "a"


async def test_chats_stand_under_their_days_and_pinned_ones_above(home: Path) -> None:
    now = datetime.now().replace(hour=12, minute=0, second=0).timestamp()
    with stage(home, turn_events) as on:
        for days in (0, 1, 3, 30, 400):
            name = f"{days} days"
            old = Chat(name, name, 1.0, now - days * 86400, "", 1.0, "", None)
            on.store.run(ChatStore.add_turn, old, [Message(name, name, None, "user", "x", 1.0, "")]).result()
        async with on.app().run_test(size=(120, 30)) as pilot:
            await pilot.press("ctrl+s")
            await until(pilot, lambda: heads(pilot) == ["Today", "Yesterday", "Previous 7 days", "Older"])
            listing = room(pilot).screen.query_one(ChatList)
            await until(pilot, lambda: highlighted(pilot) != "")
            seen = [highlighted(pilot)]
            for key in ("down", "j", "j", "j"):  # the cursor passes over heads
                await pilot.press(key)
                seen.append(highlighted(pilot))
            assert [line.split(" days")[0].strip() for line in seen] == ["0", "1", "3", "30", "400"]
            await pilot.press("p")
            await until(pilot, lambda: heads(pilot)[0] == "Pinned")
            assert "400 days" in highlighted(pilot)  # it is followed
            await pilot.press("up")  # around to the end
            assert "30 days" in highlighted(pilot)
            await pilot.press("p")
            await until(pilot, lambda: heads(pilot) == ["Pinned", "Today", "Yesterday", "Previous 7 days"])
            order = [option.id for option in listing.options if option.id]
            assert order == ["400 days", "30 days", "0 days", "1 days", "3 days"]
            await pilot.press("home", "p")
            await until(pilot, lambda: heads(pilot)[-1] == "Older")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await pilot.press("ctrl+s")
            await until(pilot, lambda: heads(pilot) == ["Pinned", "Today", "Yesterday", "Previous 7 days", "Older"])


async def test_a_search_without_hits_can_be_left(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
            await pilot.press("ctrl+s", "z", "z")
            await until(pilot, lambda: rows(pilot) == [])
            await pilot.press("enter", "escape", "escape")
            await until(pilot, lambda: rows(pilot) == ["one"])
            assert room(pilot).prompt.has_focus


async def test_rename_from_the_list_and_by_command(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "/rename too early")
            await until(pilot, lambda: "with its first message" in toasts(pilot))
            await chat(pilot, "one")
            await chat(pilot, "two")
            await pilot.press("ctrl+s", "down", "r")
            await until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
            line = pilot.app.screen.query_one(Input)
            assert line.value == "one"
            line.value = ""
            await pilot.press(*"uno", "enter")
            await until(pilot, lambda: "uno" in rows(pilot))
            assert sorted(titles(on)) == ["two", "uno"]
            await pilot.press("r")
            await until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
            await pilot.press("x", "escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, AskLine))
            await pilot.press("escape")
            await send(pilot, "/rename  zwei  Wörter ")
            await until(pilot, lambda: "zwei Wörter" in rows(pilot))
            await send(pilot, "and on")
            await until(pilot, lambda: len(room(pilot).conversation.messages) == 4 and not room(pilot).is_busy)
            assert "zwei Wörter" in titles(on)


async def test_delete_and_undo_a_chat(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
            await chat(pilot, "two")
            await pilot.press("ctrl+s", "down", "d")
            await until(pilot, lambda: rows(pilot) == ["two"])
            assert [summary.chat.title for summary in on.store.run(ChatStore.trashed).result()] == ["one"]
            await sees(pilot, "▌ two")  # the open chat stays
            await until(pilot, lambda: "in the trash. u or /undo brings it back." in toasts(pilot))
            await pilot.press("u")
            await until(pilot, lambda: rows(pilot) == ["two", "one"])
            await pilot.press("escape")
            await send(pilot, "/delete")
            await until(pilot, lambda: rows(pilot) == ["one"])
            assert room(pilot).conversation.messages == ()
            await until(pilot, lambda: "in the trash. /undo brings it back." in toasts(pilot))  # u would be text
            await send(pilot, "/undo")
            await sees(pilot, "▌ two")
            await send(pilot, "/undo")
            await until(pilot, lambda: "nothing to undo" in toasts(pilot))


async def test_a_chat_is_copied_and_the_copy_opened(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
            first = room(pilot).conversation.chat.id
            await pilot.press("ctrl+s", "tab", "f")
            await until(pilot, lambda: room(pilot).conversation.chat.id != first)
            await sees(pilot, "▌ one")
            await until(pilot, lambda: len(rows(pilot)) == 2)
            assert sorted(titles(on)) == ["one", "one (copy)"]


async def test_a_chat_with_an_answer_being_written_is_marked(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "long")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "half"))
            await until(pilot, lambda: any("●" in row for row in listed(pilot)))
            on.engine.say(*turn_events(request)[-1:])
            await until(pilot, lambda: not any("●" in row for row in listed(pilot)))


async def test_a_title_is_only_text(home: Path) -> None:
    evil = "[bold red]x[/] \x1b]0;owned\x07\x9b2J\u202e"
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "x")
            await sees(pilot, "Hello there.")
            await until(pilot, lambda: not room(pilot).is_busy)
            identity = room(pilot).conversation.chat.id
            on.store.run(ChatStore.rename, identity, evil).result()
            await pilot.press("ctrl+s", "slash", "x")
            await until(pilot, lambda: "[bold red]x[/]" in rows(pilot)[0])
            await pilot.press("escape", "tab", "r")
            await until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
            text = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
            assert "[bold red]" in text
            assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in text)


async def test_what_was_found_is_shown_in_its_own_branch(home: Path) -> None:
    answers = iter(["needle\n" + "x\n" * 60, "second answer", "a third one"])
    with stage(home, lambda request: turn_events(request, [next(answers)])) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "first chat")
            await until(pilot, lambda: "x" in shown(pilot) and not room(pilot).is_busy)
            await send(pilot, "/retry")
            await sees(pilot, "second answer")
            await until(pilot, lambda: not room(pilot).is_busy)
            await pilot.press("ctrl+n")
            await send(pilot, "another")
            await sees(pilot, "a third one")
            await pilot.press("ctrl+s", "slash", *"needle")
            await until(pilot, lambda: len(rows(pilot)) == 1)
            await pilot.press("enter")
            await sees(pilot, "needle")
            await sees(pilot, "‹1/2›")


async def test_enter_before_it_was_found(home: Path) -> None:
    """What was looked for is opened, not what was highlighted until then."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            for text in ("needle in here", "another"):
                await chat(pilot, text)
                await pilot.press("ctrl+n")
            await until(pilot, lambda: len(listed(pilot)) == 2)
            await pilot.press("ctrl+s", *"needle", "enter")
            await sees(pilot, "▌ needle in here")
            await until(pilot, lambda: room(pilot).prompt.has_focus and len(listed(pilot)) == 2)


async def test_a_new_chat_is_not_in_the_list_and_the_first_one_is_highlighted(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: len(listed(pilot)) == 1)
            await pilot.press("ctrl+s", "enter")
            await sees(pilot, "▌ one")


async def test_what_was_found_in_the_open_chat_is_shown(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, ["needle\n" + "x\n" * 60])) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "a chat")
            await until(pilot, lambda: "x" in shown(pilot) and not room(pilot).is_busy)
            assert "needle" not in shown(pilot)
            await pilot.press("ctrl+s", *"needle")
            await until(pilot, lambda: "needle" in highlighted(pilot))
            await pilot.press("enter")
            await sees(pilot, "needle")
            assert room(pilot).prompt.has_focus


async def test_a_chat_is_exported_and_the_place_told(home: Path, tmp_path: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(160, 40)) as pilot:
            await send(pilot, "/export")
            await until(pilot, lambda: "chat is empty" in toasts(pilot))
            await chat(pilot, "one")
            await pilot.press("ctrl+s", "tab", "x")
            await sees(pilot, '"one" is in')
            await until(pilot, lambda: '"one" is in ' in toasts(pilot))  # the list may lie over the transcript
            (file,) = (home / "exports").iterdir()
            assert file.name.startswith("one-") and file.suffix == ".md"
            assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
            assert "## You" in file.read_text() and "Hello there." in file.read_text()
            await pilot.press("escape")
            target = tmp_path / "a chat.json"
            await send(pilot, f"/export {target}")
            await until(pilot, target.exists)
            assert json.loads(target.read_text())["title"] == "one"
            await send(pilot, f"/export json {target}")
            await sees(pilot, "choose another name")
            await send(pilot, f"/export {tmp_path}")
            await until(pilot, lambda: any(file.suffix == ".md" for file in tmp_path.iterdir()))


WIDE = [
    "键值缓存量化的误差分析与说明文档",
    "👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻",
    "⚠️ 1️⃣ warnings ⚠️⚠️⚠️⚠️⚠️⚠️⚠️⚠️⚠️",
    "שלום עולם וכולם",
    "x" * 200,
    "[b]bold[/] $accent",
]


def drawn(pilot: Pilot[None]) -> list[str]:
    return [strip.text for strip in pilot.app.screen._compositor.render_strips()]


def ends(line: str) -> int | None:
    """The column behind the age of a chat, None in a row without one."""
    age = re.search(r" \d+y", line[:40])
    return cell_len(line[: age.end()]) if age else None


@pytest.mark.parametrize("size", [(60, 20), (120, 36)])
async def test_the_list_is_straight_whatever_titles_hold(home: Path, size: tuple[int, int]) -> None:
    """At 60x20 it lies over the chat. Each row is as wide as its box, and the ages stand in one column."""
    with stage(home, turn_events) as on:
        for number, title in enumerate(WIDE):
            made = Chat(f"c{number}", "t", 1.0, 86400.0, "", 1.0, "", None)
            on.store.run(
                ChatStore.add_turn, made, [Message(f"m{number}", made.id, None, "user", "x", 1.0, "")]
            ).result()
            on.store.run(ChatStore.rename, made.id, title).result()
        async with on.app().run_test(size=size) as pilot:
            await pilot.press("ctrl+s", "down")
            listing = room(pilot).screen.query_one(ChatList)
            await until(pilot, lambda: listing.option_count == len(WIDE) + 1)
            column = 28 if size[0] >= 100 else 27
            await until(pilot, lambda: [ends(line) for line in drawn(pilot)].count(column) == len(WIDE))
            screen = drawn(pilot)
            assert {cell_len(line) for line in screen} == {size[0]}
            assert {ends(line) for line in screen} == {column, None}
            assert any("[b]bold[/] $accent" in line for line in screen)
            if size[0] < 100:  # the border of the overlay
                edges = {cell_len(line.partition("▕")[0]) for line in screen if "▕" in line[:40]}
                assert len(edges) <= 1

"""The list of chats: find, rename, delete and undo, duplicate; and that a title is only text."""

from __future__ import annotations

from pathlib import Path

from fake_backend import delta, prompt_events, turn_events
from textual.pilot import Pilot
from textual.widgets import Input, OptionList
from ui_fakes import Stage, room, sees, send, shown, stage, toasts, until

from kvchat.chats.store import ChatStore
from kvchat.ui.dialogs import AskLine
from kvchat.ui.sidebar import Filter


def rows(pilot: Pilot[None]) -> list[str]:
    """What the list says, without the ages."""
    listing = room(pilot).screen.query_one(OptionList)
    return [str(option.prompt).rpartition("now")[0].strip(" ▌●") for option in listing.options]


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
            await pilot.press("escape")
            await until(pilot, lambda: rows(pilot) == ["about whales", "about pirates"])
            await pilot.press("slash", *"selahw")  # in an answer only
            await until(pilot, lambda: len(room(pilot).screen.query_one(OptionList).options) == 1)
            listing = room(pilot).screen.query_one(OptionList)
            assert "selahw" in str(listing.options[0].prompt)
            await pilot.press("ctrl+u", *"about")
            await until(pilot, lambda: listing.option_count == 2)
            await pilot.press("down", "enter")
            await until(pilot, lambda: room(pilot).prompt.has_focus)
            assert room(pilot).sidebar.query_one(Input).value == ""
            await until(pilot, lambda: listing.option_count == 2)


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
            await pilot.press("ctrl+s", "j", "r")
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
            assert "▌ two" in shown(pilot)  # the open chat stays
            await pilot.press("u")
            await until(pilot, lambda: rows(pilot) == ["two", "one"])
            await pilot.press("escape")
            await send(pilot, "/delete")
            await until(pilot, lambda: rows(pilot) == ["one"])
            assert room(pilot).conversation.messages == ()
            await send(pilot, "/undo")
            await sees(pilot, "▌ two")
            await send(pilot, "/undo")
            await until(pilot, lambda: "nothing to undo" in toasts(pilot))


async def test_a_chat_is_copied_and_the_copy_opened(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await chat(pilot, "one")
            first = room(pilot).conversation.chat.id
            await pilot.press("ctrl+s", "f")
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
            listing = room(pilot).screen.query_one(OptionList)
            await until(pilot, lambda: listing.option_count == 1 and "●" in str(listing.options[0].prompt))
            on.engine.say(*turn_events(request)[-1:])
            await until(pilot, lambda: "●" not in str(listing.options[0].prompt))


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
            await pilot.press("escape", "r")
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
            assert "‹1/2›" in shown(pilot)

"""The first screen with a fake engine: sending, stopping, chats, deaths, commands, small windows."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import delta, finished, make_ready, prompt_events, turn_events
from modal_host import text
from textual.widgets import OptionList
from ui_fakes import lines, room, sees, send, shown, stage, status, until

from kvchat.backend.protocol import EngineDied, LoadFailed, TurnFinished
from kvchat.backend.values import Failure, Usage
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Message
from kvchat.config import Settings
from kvchat.ui.background_question import AnswersRunning
from kvchat.ui.help import Help


async def test_a_message_is_sent_and_answered(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "Hello model")
            await sees(pilot, "Hello there.")
            await sees(pilot, "▌ Hello model")
            assert room(pilot).prompt.text == ""
            await until(pilot, lambda: "fake-1b" in status(pilot))
            await sees(pilot, "first 0.60 s")
            assert "stopped" not in shown(pilot)  # it ended by itself: nothing to say
        chats = on.store.run(ChatStore.chats).result()
        assert [(summary.chat.title, summary.messages) for summary in chats] == [("Hello model", 2)]


async def test_first_frame_and_typing_before_the_engine_is_ready(home: Path) -> None:
    with stage(home, turn_events, at_start=False) as on:
        async with on.app().run_test(size=(100, 20)) as pilot:
            assert room(pilot).prompt.has_focus
            await send(pilot, "early")
            await until(pilot, lambda: "waiting" in status(pilot))
            await sees(pilot, "▌ early")
            assert on.engine.requests == []
            await until(pilot, lambda: on.engine.started)
            on.engine.come(make_ready())
            await sees(pilot, "Hello there.")
            assert [message.text for message in on.engine.requests[0].messages] == ["early"]


async def test_text_streams_and_escape_stops(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "count")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request)[:3])
            await until(pilot, lambda: "reading 43% 100 t/s" in status(pilot))  # 3 of 7
            on.engine.say(delta(request, "one "), delta(request, "two"))
            await sees(pilot, "one two▍")
            await until(pilot, lambda: "generating" in status(pilot))
            await pilot.press("escape")
            assert on.engine.cancelled == [request.turn]
            on.engine.say(finished(request, "cancelled"))
            await sees(pilot, "stopped: /continue goes on")
            assert "one two▍" not in shown(pilot)
            await until(pilot, lambda: status(pilot).startswith("⏸"))


async def test_continue_goes_on_with_the_same_answer(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "count")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            first = on.engine.requests[0]
            on.engine.say(*prompt_events(first), delta(first, "one "), finished(first, "cancelled"))
            await sees(pilot, "/continue goes on")
            await send(pilot, "/continue")
            await until(pilot, lambda: len(on.engine.requests) == 2)
            second = on.engine.requests[1]
            assert second.continue_reply
            on.engine.say(*prompt_events(second), delta(second, "two"), finished(second))
            await sees(pilot, "    one two")
            assert "/continue" not in shown(pilot)
            assert shown(pilot).count("fake-1b") == 1


async def test_new_chat_and_back(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "in the first chat")
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+n")
            await until(pilot, lambda: "in the first chat" not in shown(pilot))
            await send(pilot, "in the second chat")
            await sees(pilot, "Hello there.")
            listing = pilot.app.screen.query_one(OptionList)
            await until(pilot, lambda: listing.option_count == 3)
            await pilot.press("ctrl+s", "down", "enter")
            await sees(pilot, "in the first chat")
            assert "in the second chat" not in shown(pilot)
            assert room(pilot).prompt.has_focus
            await pilot.press("up")
            assert room(pilot).prompt.text == "in the first chat"


async def test_resume_shows_the_chat_and_an_interrupted_answer(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "half an answer"))
            await sees(pilot, "half an answer")
            pilot.app.exit()  # as a kill would: the turn has no end
    with stage(home, turn_events) as on:
        latest = on.store.run(ChatStore.latest).result()
        assert latest is not None
        async with on.app(latest.id).run_test(size=(120, 30)) as pilot:
            await sees(pilot, "half an answer")
            await sees(pilot, "interrupted: /continue goes on")
            await send(pilot, "next question")
            await sees(pilot, "Hello there.")
            assert "/continue" not in shown(pilot)
            assert len(on.engine.requests[0].messages) == 3


async def test_a_death_of_the_engine_is_said_and_survived(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "half"))
            on.engine.ready = None
            on.engine.say(
                TurnFinished(request.turn, "died", Usage(), Failure("the engine was killed by SIGSEGV", "")),
                EngineDied("the engine was killed by SIGSEGV", ("last line",), True),
            )
            await sees(pilot, "The engine was killed by SIGSEGV. It is being started again")
            await sees(pilot, "the engine died: /continue goes on")
            on.engine.script = turn_events
            on.engine.come(replace(make_ready(), notes=("extra buffers: off",)))
            await sees(pilot, "· extra buffers: off")
            await send(pilot, "again")
            await sees(pilot, "Hello there.")


async def test_a_model_that_cannot_be_loaded(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "readable later")
            await sees(pilot, "Hello there.")
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "waits")
            on.engine.say(LoadFailed(Failure("it is not a GGUF file", "take another")))
            await sees(pilot, "It is not a GGUF file")
            await sees(pilot, "take another")
            await until(pilot, lambda: "no engine" in status(pilot))
            await send(pilot, "kept in the prompt")
            assert room(pilot).prompt.text == "kept in the prompt"
            await pilot.press("ctrl+s", "tab", "end", "enter")
            await sees(pilot, "readable later")
            await pilot.press("ctrl+c")
            await send(pilot, "not here either")
            assert room(pilot).prompt.text == "not here either"


async def test_a_turn_that_fails_says_why(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "too long")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            failure = Failure("the prompt has 9000 tokens", "take a larger --ctx-size")
            on.engine.say(finished(on.engine.requests[0], "error", failure))
            await sees(pilot, "The prompt has 9000 tokens")
            await sees(pilot, "take a larger --ctx-size")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
async def test_an_unwritable_folder_gives_the_text_back(home: Path) -> None:
    home.chmod(0o500)
    try:
        await _disk_error(home)
    finally:
        home.chmod(0o700)


async def test_a_broken_database_gives_the_text_back(home: Path) -> None:
    (home / "chats.db").mkdir()
    await _disk_error(home)


def _spoil(file: Path) -> None:
    """A page goes bad that the next message needs, while somebody has the file open."""
    with closing(sqlite3.connect(file)) as other:
        (page,) = other.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_messages_1'"
        ).fetchone()
        other.execute("UPDATE chats SET model = model")  # nobody trusts the pages that he remembers then
        other.commit()
        other.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    with file.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"\xa5" * 4096)


async def test_a_page_that_goes_bad_gives_the_text_back(home: Path) -> None:
    """It is told, the app goes on with what is on the screen, and the next start has all that was said."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "first words")
            await sees(pilot, "first 0.60 s")
            assert on.store.run(ChatStore.latest).result() is not None  # all that came before is written
            _spoil(home / "chats.db")
            await send(pilot, "precious words")
            await sees(pilot, "not sent:")
            await sees(pilot, "is damaged")
            await until(pilot, lambda: room(pilot).prompt.text == "precious words")
            assert "first words" in shown(pilot)
            assert len(on.engine.requests) == 1
    with closing(ChatStore(home / "chats.db")) as store:
        (remark,) = store.remarks
        assert "1 chat with 2 messages could be read" in remark
        assert [message.text for message in store.path(store.chats()[0].chat.head)] == ["first words", "Hello there."]


async def _disk_error(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "precious words")
            await sees(pilot, "not sent:")
            assert room(pilot).prompt.text == "precious words"
            assert "▌ precious" not in shown(pilot)
            assert on.engine.requests == []


async def test_a_chat_that_goes_on_in_another_app(home: Path) -> None:
    """It is said where the person looks, and what was said there is one key away."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "Begin")
            await sees(pilot, "first 0.60 s")
            chat, parent = room(pilot).conversation.chat, room(pilot).conversation.messages[-1].id
            assert on.store.run(ChatStore.latest).result() is not None  # all that came before is written
            with closing(ChatStore(home / "chats.db")) as other:
                other.add_turn(chat, [Message("there", chat.id, parent, "user", "Said there", 9.0, "")])
            await send(pilot, "Said here")
            await sees(pilot, "this chat went on in another kvchat")
            mine = room(pilot).conversation.messages[2]
            assert mine.text == "Said here"
            assert room(pilot).conversation.siblings(mine.id) == ("there", mine.id)
            assert on.store.run(ChatStore.get, chat.id).result().head == room(pilot).conversation.chat.head


async def test_a_locked_database_does_not_lock_the_screen(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "first")
            await sees(pilot, "Hello there.")
            other = sqlite3.connect(home / "chats.db")
            other.execute("BEGIN IMMEDIATE")
            await send(pilot, "second")
            await sees(pilot, "▌ second")
            room(pilot).prompt.put("typed meanwhile")
            await pilot.press("x")
            assert room(pilot).prompt.text == "typed meanwhilex"
            other.rollback()
            await until(pilot, lambda: shown(pilot).count("Hello there.") == 2)


async def test_slash_commands(home: Path) -> None:
    with stage(home, turn_events, settings=Settings(system="be brief")) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "/hlep")
            assert room(pilot).prompt.text == "/hlep"
            room(pilot).prompt.put("")
            await send(pilot, "/help")
            await until(pilot, lambda: isinstance(pilot.app.screen, Help))
            await pilot.press("escape")
            await send(pilot, "//etc/hosts is a file")
            await sees(pilot, "▌ /etc/hosts is a file")
            await sees(pilot, "Hello there.")
            await send(pilot, "/new  You are a pirate ")
            await until(pilot, lambda: "Hello there." not in shown(pilot))
            await send(pilot, "hi")
            await sees(pilot, "Hello there.")
            systems = [request.messages[0].text for request in on.engine.requests]
            assert systems == ["be brief", "You are a pirate"]
            await send(pilot, "/quit")
            await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit)


async def test_interrupt_copies_then_stops_then_clears_then_quits(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            room(pilot).prompt.put("a draft")
            room(pilot).prompt.select_all()
            await pilot.press("ctrl+c")
            assert pilot.app.clipboard == "a draft"
            assert on.engine.cancelled == []
            room(pilot).prompt.move_cursor((0, 0))
            await pilot.press("ctrl+c")
            assert on.engine.cancelled == [request.turn]
            on.engine.say(finished(request, "cancelled"))
            await sees(pilot, "stopped")
            await pilot.press("ctrl+c")
            assert room(pilot).prompt.text == ""
            await pilot.press("up")
            assert room(pilot).prompt.text == "a draft"
            await pilot.press("ctrl+c", "ctrl+c")
            assert not pilot.app._exit
            await pilot.press("ctrl+c")
            await until(pilot, lambda: pilot.app._exit)


async def test_quitting_keeps_the_answer_that_is_being_written(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "all of this"))
            await sees(pilot, "all of this")
            await pilot.press("ctrl+q")
            await until(pilot, lambda: isinstance(pilot.app.screen, AnswersRunning))
            await pilot.press("s")
            await until(pilot, lambda: on.engine.cancelled == [request.turn])
            assert not pilot.app._exit
            on.engine.say(finished(request, "cancelled"))
            await until(pilot, lambda: pilot.app._exit)
    with stage(home) as on:
        latest = on.store.run(ChatStore.latest).result()
        assert latest is not None
        message = on.store.run(ChatStore.path, latest.head).result()[-1]
        assert (message.text, message.finish) == ("all of this", "cancelled")


async def test_sidebar_is_an_overlay_in_a_narrow_window(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await send(pilot, "a chat")
            await sees(pilot, "Hello there.")
            sidebar, side = room(pilot).sidebar, room(pilot).screen.query_one("#side")
            width = room(pilot).transcript.size.width
            assert not side.display
            await pilot.press("ctrl+s")
            await until(pilot, lambda: bool(side.display) and sidebar.has_keyboard)
            assert room(pilot).transcript.size.width == width  # nothing moved
            await pilot.press("escape")
            await until(pilot, lambda: not side.display and room(pilot).prompt.has_focus)
            await pilot.resize_terminal(120, 24)
            await until(pilot, lambda: bool(side.display))
            await until(pilot, lambda: room(pilot).transcript.size.width < 120 - 25)


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (40, 12), (20, 6), (100, 7), (5, 3)])
async def test_windows_of_all_sizes(home: Path, size: tuple[int, int]) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=size) as pilot:
            await send(pilot, "键值缓存 👩‍💻 " * 5)
            await until(pilot, lambda: len(on.engine.requests) == 1)
            await pilot.resize_terminal(120, 36)
            await sees(pilot, "Hello there.")
            await pilot.resize_terminal(*size)
            if size[1] >= 6:
                await until(pilot, lambda: room(pilot).status.region.bottom <= size[1])
                assert room(pilot).transcript.size.height >= 1
                assert room(pilot).prompt.size.height >= 1


async def test_nothing_foreign_is_markup_or_a_control_sequence(home: Path) -> None:
    evil = "[bold red]x[/] \x1b]0;owned\x07 \x9b2J \u202egnp.exe [/nope"
    with stage(home, lambda request: turn_events(request, [evil])) as on:
        on.engine.at_start = False
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: on.engine.started)
            on.engine.come(make_ready(name=evil))
            await send(pilot, evil)
            await until(pilot, lambda: shown(pilot).count("[bold red]x[/]") >= 3)  # user, heading, answer
            await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count == 2)
            on.engine.say(EngineDied(evil, (evil,), True), LoadFailed(Failure(evil, evil)))
            await sees(pilot, "It is being started again")
            await send(pilot, evil)  # refused, in a toast
            await pilot.pause()
            strips = pilot.app.screen._compositor.render_strips()
            text = "\n".join(strip.text for strip in strips)
            assert "[bold red]" in text
            assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in text)


async def test_notes_do_not_disturb_reading(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, ["line\n" * 60])) as on:
        async with on.app().run_test(size=(80, 20)) as pilot:
            await send(pilot, "long")
            await sees(pilot, "first 0.60 s")
            await pilot.press("pageup")
            before = lines(pilot)
            await send(pilot, "/system")
            await pilot.pause()
            assert lines(pilot)[:-1] == before[:-1]
            assert "↓ new" in lines(pilot)[-1]
            await pilot.press("ctrl+end")
            await sees(pilot, "This chat has no system prompt.")


async def test_the_mouse_selects_and_the_prompt_keeps_the_keyboard(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, ["first words of the answer"])) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await send(pilot, "question")
            await sees(pilot, "first words")
            await pilot.click("#transcript", offset=(5, 10))
            assert room(pilot).prompt.has_focus
            row = next(y for y, line in enumerate(lines(pilot)) if "first words" in line)
            await pilot.mouse_down("#transcript", offset=(4, row))
            await pilot.hover("#transcript", offset=(8, row))
            await pilot.mouse_up("#transcript", offset=(8, row))
            await pilot.pause()
            await pilot.press("ctrl+c")
            assert pilot.app.clipboard == "first"
            assert not room(pilot).screen.selections
            await pilot.press("x")
            assert room(pilot).prompt.text == "x"


@pytest.mark.parametrize("columns", [1, 4, 7])
async def test_a_window_of_a_few_columns(home: Path, columns: int) -> None:
    """Nothing can be read in it, and nothing ends in it."""
    with stage(home) as on:
        async with on.app().run_test(size=(columns, 12)) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            await pilot.press("a", "backspace", "ctrl+s", "escape", "f2", "escape", "f1", "escape")
            await pilot.resize_terminal(80, 24)
            await until(pilot, lambda: "Write a message" in text(pilot.app))

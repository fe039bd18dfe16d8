"""Settings in the app: what is the chat's own, what becomes the default, and what the engine is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import model, text
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, send, shown, stage, toasts, until

from kvchat.backend.values import Sampling
from kvchat.config import Settings, load_settings
from kvchat.conversation import Own
from kvchat.ui.launch import Survey
from kvchat.ui.settings_screen import SettingsScreen


def a_model(folder: Path) -> Survey:
    """One whose header can be read, so that its engine can be configured."""
    found = model("llama", folder)
    return Survey((found,), (), found.path)


async def settings(pilot: Pilot[None], page: str = "sampling") -> SettingsScreen:
    await send(pilot, f"/settings {page}")
    await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
    found = pilot.app.screen
    assert isinstance(found, SettingsScreen)
    return found


async def closed(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: not isinstance(pilot.app.screen, SettingsScreen))


async def answered(pilot: Pilot[None], on: Stage, words: str = "a question") -> None:
    await until(pilot, lambda: on.link.ready is not None)
    before = len(on.engine.requests)
    await send(pilot, words)
    await until(pilot, lambda: len(on.engine.requests) == before + 1 and not room(pilot).is_busy)


async def test_the_next_answer_is_drawn_so(home: Path) -> None:
    """Nothing is asked of the engine but the next turn, and the chat keeps its values."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            await settings(pilot)
            await pilot.press("0", "enter", "down", "7", "enter", "enter")
            await closed(pilot)
            await until(pilot, lambda: "Set for this chat" in toasts(pilot))
            await answered(pilot, on, "again")
            assert on.engine.requests[-1].sampling == replace(Sampling(), temperature=0.0, top_k=7)
            assert on.engine.configured == []
            chat = room(pilot).conversation.chat.id
        stored = on.desk.open_conversation(chat).result(10)
        assert stored.own == Own({"temperature": 0.0, "top_k": 7})
    assert not on.paths.config_file.exists()


async def test_given_back(home: Path) -> None:
    """The default of the settings holds again."""
    with stage(home, turn_events, settings=Settings(sampling=Sampling(temperature=0.5))) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            await send(pilot, "/temp 1.5")
            await until(pilot, lambda: room(pilot).conversation.sampling.temperature == 1.5)
            await settings(pilot)
            assert "● default 0.5" in text(pilot.app)
            await pilot.press("delete", "enter")
            await closed(pilot)
            assert room(pilot).conversation.sampling.temperature == 0.5
            assert room(pilot).conversation.own == Own()


async def test_history_is_from_the_next_turn_on(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            await settings(pilot, "history")
            assert "it changed nothing of the past in 1 answer here" in text(pilot.app)
            await pilot.press("right")
            assert "the chat is rendered again" in text(pilot.app)
            await pilot.press("enter")
            await closed(pilot)
            await answered(pilot, on, "again")
            assert [request.history for request in on.engine.requests] == ["append", "exact"]


async def test_save_as_default(home: Path) -> None:
    """Into the file, and at once for chats that are begun; the engine is left as it is."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            on.paths.config_file.write_text("# mine\ntop_k = 40  # usual\n")
            await settings(pilot)
            await pilot.press("0", ".", "3", "enter", "tab", "right", "ctrl+s")
            await closed(pilot)
            await until(pilot, lambda: "Saved as default." in toasts(pilot))
            written = on.paths.config_file.read_text()
            assert written.startswith("# mine\ntop_k = 40  # usual\n")
            loaded = load_settings(on.paths, {}, {})
            assert loaded.sampling == Sampling(temperature=0.3)
            assert loaded.history == "exact"
            assert "min_p" not in written  # what is so anyway
            assert on.engine.configured == []
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            conversation = room(pilot).conversation
            assert (conversation.sampling.temperature, conversation.history) == (0.3, "exact")
            assert conversation.own == Own()


async def test_the_open_chat_follows_the_new_default(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            await settings(pilot)
            await pilot.press("0", ".", "3", "enter", "ctrl+s")
            await until(pilot, lambda: "Saved as default." in toasts(pilot))
            await settings(pilot)
            assert "● default 0.3" in text(pilot.app)  # its own still, and the same
            await pilot.press("backspace", "enter")
            await closed(pilot)
            assert room(pilot).conversation.sampling.temperature == 0.3


async def test_a_damaged_file_is_left_alone(home: Path) -> None:
    """The chat has its values, the file is as it was, and the person is told once."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            on.paths.config_file.write_text("temp = = 1\n")
            await settings(pilot)
            await pilot.press("0", ".", "3", "enter", "ctrl+s")
            await closed(pilot)
            await until(pilot, lambda: "not saved:" in shown(pilot))
            await sees(pilot, "Invalid value (at line 1, column 8)")
            assert shown(pilot).count("not saved:") == 1
            assert on.paths.config_file.read_text() == "temp = = 1\n"
            assert room(pilot).conversation.own == Own({"temperature": 0.3})


async def test_the_budget_goes_to_the_engine_and_into_the_file(home: Path) -> None:
    with stage(home, turn_events, found=a_model(home)) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            before = on.engine.config
            await settings(pilot, "store")
            await until(pilot, lambda: "0 B are used" in text(pilot.app))
            await pilot.press("down", "4", "G", "i", "B", "enter", "ctrl+s")
            await until(pilot, lambda: on.engine.configured == [replace(before, kv_budget=4 << 30)])
            await until(pilot, on.paths.config_file.exists)
            assert load_settings(on.paths, {}, {}).kv_budget == 4 << 30
            assert "kv = " not in on.paths.config_file.read_text()


async def test_memory_only_until_the_end(home: Path) -> None:
    with stage(home, turn_events, found=a_model(home)) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await answered(pilot, on)
            before = on.engine.config
            assert before.kv_folder is not None
            await settings(pilot, "store")
            await pilot.press("right", "enter")
            await until(pilot, lambda: on.engine.configured == [replace(before, kv_folder=None)])
            await settings(pilot, "store")
            await pilot.press("right", "enter")
            await until(pilot, lambda: on.engine.configured[1:] == [before])


async def test_a_run_without_kv_says_so(home: Path) -> None:
    with stage(home, turn_events, settings=Settings(kv=False)) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.link.ready is not None)
            await settings(pilot, "store")
            assert "started with --no-kv" in text(pilot.app)
            await pilot.press("right", "enter")
            await closed(pilot)
            assert on.engine.configured == []


async def test_a_new_chat_keeps_what_was_set_before_its_first_message(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.link.ready is not None)
            await settings(pilot)
            await pilot.press("end", "space", *"END", "enter", "enter")
            await closed(pilot)
            await answered(pilot, on)
            assert on.engine.requests[-1].sampling.stop == ("END",)
            chat = room(pilot).conversation.chat.id
        stored = on.desk.open_conversation(chat).result(10)
        assert json.loads(stored.chat.settings)["sampling"] == {"stop": ["END"]}


@pytest.mark.parametrize(("words", "seen"), [("", "KV memory"), ("samp", "Temperature"), ("Store", "Most on disk")])
async def test_a_page_by_name(home: Path, words: str, seen: str) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.link.ready is not None)
            await settings(pilot, words)
            await until(pilot, lambda: seen in text(pilot.app) or "file" in text(pilot.app))


async def test_a_page_that_is_none(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "/settings xyz")
            await until(pilot, lambda: "engine, turns, sampling, history, store" in toasts(pilot))

"""Incognito in the app: nothing of a chat comes to the disk, it says so, and leaving such a chat is asked about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import turn_events
from textual.pilot import Pilot
from traces import traces
from ui_fakes import Stage, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Event, Generate
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.ui.dialogs import Confirm

MARKER = "zanzibarquokka"


def replies(request: Generate) -> list[Event]:
    return turn_events(request, ["Hello there."])


@pytest.fixture
def beside(home: Path) -> Iterator[Stage]:
    """An app with chats on disk."""
    with stage(home, replies) as made:
        yield made
        made.desk.incognito.close()


def on_disk(made: Stage) -> list[str]:
    return [summary.chat.title for summary in made.store.run(ChatStore.chats).result()]


async def answered(pilot: Pilot[None], text: str, count: int = 2) -> None:
    await send(pilot, text)
    await until(pilot, lambda: not room(pilot).is_busy and len(room(pilot).conversation.messages) == count)


def frame(pilot: Pilot[None]) -> str:
    return "\n".join(strip.text for strip in room(pilot).screen._compositor.render_strips())


async def test_a_chat_beside_others_comes_to_no_file(beside: Stage, home: Path) -> None:
    async with beside.app().run_test(size=(110, 30)) as pilot:
        await sees(pilot, "kvchat")
        await answered(pilot, "an open word")
        await send(pilot, "/incognito")
        await sees(pilot, "Incognito: this chat")
        await until(pilot, lambda: "incognito" in status(pilot))
        room(pilot).prompt.put(f"half a {MARKER}draft")
        await pilot.pause(1.0)  # a draft that is kept would be written by now
        await answered(pilot, f"the word is {MARKER}")
        assert [request.incognito for request in beside.engine.requests] == [False, True]
        await pilot.pause(0.2)
        assert on_disk(beside) == ["an open word"]
        assert traces([home], [MARKER]) == set()


async def test_leaving_is_asked_about_and_lets_it_go(beside: Stage) -> None:
    async with beside.app().run_test(size=(110, 30)) as pilot:
        await sees(pilot, "kvchat")
        await send(pilot, "/incognito")
        await sees(pilot, "Incognito")
        await answered(pilot, MARKER)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))
        assert room(pilot).conversation.incognito
        await send(pilot, "/delete")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: not room(pilot).conversation.incognito)
        assert MARKER not in shown(pilot)
        await until(pilot, lambda: "incognito" not in status(pilot))
        assert room(pilot).prompt.placeholder == "Write a message"
        assert on_disk(beside) == []


async def test_an_empty_one_is_left_without_a_word(beside: Stage) -> None:
    async with beside.app().run_test() as pilot:
        await sees(pilot, "kvchat")
        await send(pilot, "/incognito")
        await sees(pilot, "Incognito")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: not room(pilot).conversation.incognito)


async def test_what_was_sent_elsewhere_is_not_found_there(beside: Stage) -> None:
    async with beside.app().run_test(size=(110, 30)) as pilot:
        await sees(pilot, "kvchat")
        await answered(pilot, "an open word")
        for _ in range(2):
            await send(pilot, "/incognito")
            await until(pilot, lambda: room(pilot).conversation.incognito)
            await pilot.press("ctrl+r")
            await until(pilot, lambda: "(nothing)" in frame(pilot))
            await pilot.press("escape")


async def test_it_can_be_exported_by_hand(beside: Stage, tmp_path: Path) -> None:
    async with beside.app().run_test(size=(110, 30)) as pilot:
        await sees(pilot, "kvchat")
        await send(pilot, "/incognito")
        await sees(pilot, "Incognito")
        await answered(pilot, MARKER)
        await send(pilot, f"/export md {tmp_path / 'kept.md'}")
        await until(pilot, (tmp_path / "kept.md").exists)
        assert MARKER in (tmp_path / "kept.md").read_text()


async def test_no_editor_gets_the_draft(beside: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "true")
    async with beside.app().run_test() as pilot:
        await sees(pilot, "kvchat")
        await send(pilot, "/incognito")
        await sees(pilot, "Incognito")
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "editor" in toasts(pilot))


async def test_a_whole_session(home: Path) -> None:
    """`--incognito`: the chats of the session are listed until it ends, and the disk is not looked at."""
    with stage(home, replies) as before:
        async with before.app().run_test(size=(110, 30)) as pilot:
            await sees(pilot, "kvchat")
            await answered(pilot, "an open word")
    with stage(home, replies, settings=Settings(incognito=True)) as made:
        made.desk = replace(made.desk, store=StoreThread(None, lambda _: None))
        async with made.app().run_test(size=(110, 30)) as pilot:
            await sees(pilot, "Incognito: chats")
            await until(pilot, lambda: "incognito" in status(pilot))
            await answered(pilot, f"first {MARKER}")
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            await answered(pilot, f"second {MARKER}")
            await pilot.press("ctrl+s")
            await until(pilot, lambda: room(pilot).sidebar.has_keyboard)
            assert [chat.chat.title for chat in made.desk.store.run(ChatStore.chats).result()] == [
                f"second {MARKER}",
                f"first {MARKER}",
            ]
            assert made.engine.config.kv_folder is None
            assert "an open word" not in frame(pilot)
        made.desk.store.close()
    assert traces([home], [MARKER]) == set()


async def test_the_settings_cannot_bring_the_disk_back(home: Path) -> None:
    with stage(home, replies, settings=Settings(incognito=True)) as made:
        made.desk = replace(made.desk, store=StoreThread(None, lambda _: None))
        async with made.app().run_test(size=(110, 30)) as pilot:
            await until(pilot, lambda: "fake-1b" in status(pilot))
            await send(pilot, "/settings store")
            await until(pilot, lambda: "--incognito" in top(pilot))
            await pilot.press("right", "enter")
            await pilot.pause(0.2)
            assert made.engine.configured == []
            await pilot.press("f3")
            await until(pilot, lambda: "Incognito: what is on disk is not looked at" in top(pilot))
        made.desk.store.close()
    assert not (home / "kv").exists()


def top(pilot: Pilot[None]) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())

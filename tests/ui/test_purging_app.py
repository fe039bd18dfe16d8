"""/purge: asks, ends the answer, has the engine forget, and leaves no byte."""

from __future__ import annotations

from pathlib import Path

from fake_backend import turn_events
from kv_pages import namespace, put_chat
from textual.pilot import Pilot
from traces import traces
from ui_fakes import Stage, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Event, Forgotten, Generate
from kvchat.chats.store import ChatStore
from kvchat.formats.page import pack_ids
from kvchat.kv.store import PageStore
from kvchat.ui.dialogs import Confirm

MARKER = "zanzibarquokka"
IDS = tuple(range(20_000, 20_200))


def replies(request: Generate) -> list[Event]:
    return turn_events(request, ["Hello there."])


def titles(on: Stage) -> list[str]:
    return [summary.chat.title for summary in on.store.run(ChatStore.chats).result()]


async def chat(pilot: Pilot[None], text: str) -> str:
    await until(pilot, lambda: "fake-1b" in status(pilot))
    await send(pilot, text)
    await until(pilot, lambda: not room(pilot).is_busy and len(room(pilot).conversation.messages) == 2)
    return room(pilot).conversation.chat.id


def put_pages(on: Stage, message: str) -> None:
    store = PageStore(on.paths.kv_folder, namespace(), 1 << 30)
    put_chat(store, IDS)
    store.close()
    on.store.run(ChatStore.set_ids, "key", {message: IDS}).result()


async def confirmed(pilot: Pilot[None], key: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press(key)
    await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))


async def test_the_open_chat(home: Path) -> None:
    with stage(home, replies) as on:
        async with on.app().run_test(size=(110, 30)) as pilot:
            kept = await chat(pilot, "another")
            await pilot.press("ctrl+n")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            gone = await chat(pilot, f"the word is {MARKER}")
            put_pages(on, room(pilot).conversation.messages[0].id)
            room(pilot).prompt.put(f"and a draft with {MARKER}")
            await pilot.pause(1.0)
            assert traces([home], [MARKER])
            await send_command(pilot, "/purge")
            await confirmed(pilot, "n")
            assert room(pilot).conversation.chat.id == gone
            await send_command(pilot, "/purge")
            await confirmed(pilot, "y")
            await until(pilot, lambda: "Removed for good" in toasts(pilot))
            assert on.engine.forgotten
            assert titles(on) == ["another"]
            assert not room(pilot).conversation.messages
            assert kept in {summary.chat.id for summary in on.store.run(ChatStore.chats).result()}
            assert traces([home], [MARKER, pack_ids(IDS[:4]), pack_ids(IDS[100:104])]) == set()
    assert traces([home], [MARKER]) == set()


async def test_the_trash(home: Path) -> None:
    with stage(home, replies) as on:
        async with on.app().run_test(size=(110, 30)) as pilot:
            await send(pilot, "/purge trash")
            await until(pilot, lambda: "The trash is empty." in toasts(pilot))
            await chat(pilot, MARKER)
            await send(pilot, "/delete")
            await until(pilot, lambda: titles(on) == [] and not room(pilot).conversation.messages)
            await send(pilot, "/purge trash")
            await confirmed(pilot, "y")
            await until(pilot, lambda: "Removed for good" in toasts(pilot))
            assert on.store.run(ChatStore.trashed).result() == ()
            assert traces([home], [MARKER]) == set()
            await send(pilot, "/undo")
            await sees(pilot, "not restored: There is no chat")
            assert not room(pilot).conversation.messages
            assert MARKER not in shown(pilot)


async def test_what_makes_no_sense(home: Path) -> None:
    with stage(home, replies) as on:
        async with on.app().run_test(size=(110, 30)) as pilot:
            await sees(pilot, "kvchat")
            await send(pilot, "/purge")
            await until(pilot, lambda: "This chat is empty." in toasts(pilot))
            await send(pilot, "/purge everything")
            await until(pilot, lambda: "/purge removes this chat" in toasts(pilot))


async def test_an_engine_that_does_not_answer_is_not_waited_for_long(home: Path, monkeypatch) -> None:
    monkeypatch.setattr("kvchat.ui.purging.PATIENCE", 0.1)
    with stage(home, replies) as on:
        monkeypatch.setattr(on.engine, "forget", lambda command: None)
        async with on.app().run_test(size=(110, 30)) as pilot:
            await chat(pilot, MARKER)
            await send(pilot, "/purge")
            await confirmed(pilot, "y")
            await until(pilot, lambda: "Removed for good" in toasts(pilot))
            assert titles(on) == []


async def test_two_that_wait_for_the_engine_are_both_removed(home: Path, monkeypatch) -> None:
    with stage(home, replies) as on:
        asked: list[str] = []
        monkeypatch.setattr(on.engine, "forget", lambda command: asked.append(command.turn))
        async with on.app().run_test(size=(110, 30)) as pilot:
            await chat(pilot, "first")
            await send_command(pilot, "/delete")
            await until(pilot, lambda: titles(on) == [] and not room(pilot).conversation.messages)
            await chat(pilot, "second")
            await send_command(pilot, "/purge")
            await confirmed(pilot, "y")
            await send_command(pilot, "/purge trash")
            await confirmed(pilot, "y")
            await until(pilot, lambda: len(asked) == 2)
            on.engine.say(*map(Forgotten, asked))
            await until(pilot, lambda: toasts(pilot).count("Removed for good") == 2)
            assert titles(on) == []
            assert on.store.run(ChatStore.trashed).result() == ()


async def test_who_quits_while_the_engine_is_waited_for_has_it_removed(home: Path, monkeypatch) -> None:
    with stage(home, replies) as on:
        monkeypatch.setattr(on.engine, "forget", lambda command: None)
        async with on.app().run_test(size=(110, 30)) as pilot:
            await chat(pilot, MARKER)
            await send_command(pilot, "/purge")
            await confirmed(pilot, "y")
            await pilot.press("ctrl+q")
            await until(pilot, lambda: pilot.app._exit)
        assert titles(on) == []


async def send_command(pilot: Pilot[None], command: str) -> None:
    """Without the draft that is written."""
    room(pilot).prompt.put("")
    await send(pilot, command)

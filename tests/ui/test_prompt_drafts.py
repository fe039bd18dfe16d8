"""Drafts that outlive a switch of chats and the end of the app."""

from __future__ import annotations

from pathlib import Path

from fake_backend import finished, prompt_events, turn_events
from textual.pilot import Pilot
from ui_fakes import Stage, chip, listed, room, sees, send, stage, until

from kvchat.chats import drafts
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Draft
from kvchat.ui.chips import FileRef


def kept(on: Stage, chat: str) -> Draft:
    return on.store.run(ChatStore.draft, chat).result()


async def has(pilot: Pilot[None], draft: str) -> None:
    await until(pilot, lambda: room(pilot).prompt.draft == draft)


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: room(pilot).prompt.companion is not None)


async def test_each_chat_has_its_own(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "first chat")
            await sees(pilot, "Hello there.")
            room(pilot).prompt.put("draft of the first")
            await pilot.press("ctrl+n")
            await has(pilot, "")
            room(pilot).prompt.put("draft of none")
            await until(pilot, lambda: any("first chat" in row for row in listed(pilot)))
            await pilot.press("ctrl+s", "enter")
            await has(pilot, "draft of the first")
            await pilot.press("ctrl+n")
            await has(pilot, "draft of none")


async def test_it_comes_back_at_the_next_start(home: Path, tmp_path: Path) -> None:
    """Pastes in full, files as what they are."""
    file = tmp_path / "n.txt"
    file.write_text("inside\n")
    whole = "see " + "\n".join("x" * 30)
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            prompt = room(pilot).prompt
            prompt.put("see ")
            prompt.type_text(prompt.chips.fold("\n".join("x" * 30)))
            prompt.type_text(" @")
            row, column = prompt.cursor_location
            prompt.put_file((row, column - 1), (row, column), FileRef(str(file), "n.txt"), "~2 tokens")
            assert prompt.text == "see [Pasted #1 · 30 lines] @n.txt · ~2 tokens "
    with stage(home, turn_events) as on:
        assert kept(on, drafts.NEW).text == f"{whole} @n.txt · ~2 tokens "
        async with on.app().run_test(size=(120, 30)) as pilot:
            await has(pilot, f"{whole} @n.txt ")
            await pilot.press("enter")
            await sees(pilot, "Hello there.")
            assert on.engine.requests[0].messages[-1].text == f"```text n.txt\ninside\n```\n\n{whole} @n.txt "
    with stage(home) as on:
        assert kept(on, drafts.NEW) == Draft()


async def test_what_is_sent_is_a_draft_no_more(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            room(pilot).prompt.put("words")
            await until(pilot, lambda: kept(on, drafts.NEW).text == "words")
            await pilot.press("enter")
            await sees(pilot, "Hello there.")
            await until(pilot, lambda: kept(on, drafts.NEW) == Draft())
            room(pilot).prompt.put("more")
            chat = room(pilot).conversation.chat.id
            await until(pilot, lambda: kept(on, chat).text == "more")
            await pilot.press("ctrl+c")
            await until(pilot, lambda: kept(on, chat) == Draft())


async def test_what_waits_to_be_sent_is_kept(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "first")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            await send(pilot, "second")
            await until(pilot, lambda: "second" in chip(pilot))
            room(pilot).prompt.put("third")
            chat = room(pilot).conversation.chat.id
            await until(pilot, lambda: kept(on, chat).text == "second\nthird")
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), finished(request))
            await until(pilot, lambda: len(on.engine.requests) == 2)
            await until(pilot, lambda: kept(on, chat).text == "third")


async def test_an_edit_costs_neither_the_draft_nor_itself(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "question")
            await sees(pilot, "Hello there.")
            chat = room(pilot).conversation.chat.id
            room(pilot).prompt.put("draft")
            room(pilot).screen._sending.edit_last()  # type: ignore[attr-defined]
            assert room(pilot).prompt.text == "question"
            await until(pilot, lambda: kept(on, chat).text == "draft")  # what stands there is in the chat already
            await pilot.press("!")
            await until(pilot, lambda: kept(on, chat).text == "draft\nquestion!")
            await pilot.press("ctrl+n")
            await has(pilot, "")
            await pilot.press("ctrl+s", "enter")
            await has(pilot, "draft\nquestion!")


async def test_what_was_typed_while_the_draft_was_read_stays(home: Path) -> None:
    with stage(home) as on:
        on.store.run(ChatStore.set_draft, drafts.NEW, Draft("from before")).result()
        async with on.app().run_test(size=(120, 30)) as pilot:
            room(pilot).prompt.put("at once")
            await has(pilot, "from before\nat once")


async def test_labels_that_cannot_be_understood_are_text(home: Path) -> None:
    with stage(home) as on:
        for labels in ("no json", "[1]", '{"@a": 1, "@b": {"path": 1}, "@c": {"path": "/c", "name": "c", "first": 1}}'):
            on.store.run(ChatStore.set_draft, drafts.NEW, Draft("@a @b @c", labels)).result()
            async with on.app().run_test(size=(120, 30)) as pilot:
                await has(pilot, "@a @b @c")
                assert room(pilot).prompt.written.files == {}

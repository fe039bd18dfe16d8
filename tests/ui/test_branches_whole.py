"""One chat through all that can be done with its messages: the tree on disk is the one that was on the screen."""

from __future__ import annotations

from pathlib import Path

import tiny
from driver import Driver
from fake_backend import turn_events
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, send, stage, until

from kvchat.backend.protocol import Event, Generate
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Message

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")


class Counting:
    """Each answer is the next number."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request: Generate) -> list[Event]:
        self.count += 1
        return turn_events(request, [NUMBERS[self.count - 1]])


async def quiet(pilot: Pilot[None], text: str) -> None:
    await sees(pilot, text)
    await until(pilot, lambda: not room(pilot).is_busy)


def branch(pilot: Pilot[None]) -> list[tuple[str, int, int]]:
    """Of each message that is shown: its text, which version it is, of how many."""
    conversation = room(pilot).conversation
    around = [conversation.siblings(message.id) for message in conversation.messages]
    return [(m.text, ids.index(m.id) + 1, len(ids)) for m, ids in zip(conversation.messages, around, strict=True)]


def saved(on: Stage) -> list[Message]:
    latest = on.store.run(ChatStore.latest).result()
    assert latest is not None
    return list(on.store.run(ChatStore.path, latest.head).result())


async def test_retry_edit_switch_delete_undo_and_reopen(home: Path) -> None:
    """Two turns; another answer to the first question; back; the second question edited; its branch deleted, and
    brought back; then the first answer's other version is shown. A new app shows the same: texts, versions, order."""
    with stage(home, Counting()) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            for question, reply in (("first", "one"), ("second", "two")):
                await send(pilot, question)
                await quiet(pilot, reply)
            await pilot.press("ctrl+o", "g", "j", "r")
            await quiet(pilot, "three")
            assert branch(pilot) == [("first", 1, 1), ("three", 2, 2)]
            await pilot.press("ctrl+o", "left_square_bracket")
            await sees(pilot, "two")
            await pilot.press("G", "k", "e")
            await until(pilot, lambda: room(pilot).prompt.text == "second")
            await pilot.press("!", "enter")
            await quiet(pilot, "four")
            edited = [("first", 1, 1), ("one", 1, 2), ("second!", 2, 2), ("four", 1, 1)]
            assert branch(pilot) == edited
            await pilot.press("ctrl+o", "k", "d")
            await sees(pilot, "two")
            assert branch(pilot) == [("first", 1, 1), ("one", 1, 2), ("second", 1, 1), ("two", 1, 1)]
            await pilot.press("u")
            await sees(pilot, "four")
            assert branch(pilot) == edited
            await pilot.press("g", "j", "right_square_bracket")
            await sees(pilot, "three")
            await pilot.press("left_square_bracket")
            await sees(pilot, "four")
            last = branch(pilot)
            messages = room(pilot).conversation.messages
            chat = room(pilot).conversation.chat.id
        assert last == edited
        assert saved(on) == list(messages)
    with stage(home, Counting()) as on:
        async with on.app(chat).run_test(size=(120, 30)) as pilot:
            await sees(pilot, "four")
            assert branch(pilot) == last
            assert room(pilot).conversation.messages == messages


def test_another_answer_computes_one_token_of_its_prompt(home: Path, tmp_path: Path) -> None:
    """All of the prompt is resident; its last token is decoded for its logits. So more than 90 % is reused."""
    driver = Driver.start(home, tiny.build("llama", tmp_path))
    try:
        driver.ready()
        driver.ask("Tell me about letters, reports and the like. " * 4)
        driver.ask("And more of it, please.")
        driver.messages.pop()
        usage = driver.ask(None).usage
        assert usage.computed == 1
        assert usage.reused == usage.resident == usage.prompt_tokens - 1 > 100
    finally:
        driver.engine.close()

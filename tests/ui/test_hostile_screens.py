"""Titles, texts, model names and files with escape sequences, direction overrides, markup and NUL in every screen that
shows them: no cell has a control character, and no markup is obeyed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import turn_events
from textual.pilot import Pilot
from ui_fakes import FAKE, OTHER, Stage, room, sees, send, stage, status, until

from kvchat.backend.protocol import Event, Generate
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Draft, Message
from kvchat.ui.launch import Survey

EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m[bold red]aa[/]\u202etxt.exe\u2066\u200b\x08\r\0[@click=app.quit]bb[/][b" + "W" * 200
)
# Control characters, direction marks, zero width space, BOM, halves of characters.
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
MODELS = (
    replace(FAKE, name=EVIL[:100], path=Path("/models/[bold red]evil\x1b[31m\u202e.gguf")),
    replace(OTHER, name=f"{EVIL[:60]}2"),
)


def replies(request: Generate) -> list[Event]:
    return turn_events(
        request, [EVIL, f"\n\n# {EVIL}\n\n- {EVIL}\n\n```{EVIL}\n{EVIL}\n```\n\n| {EVIL} |\n|-|\n| {EVIL} |"]
    )


@pytest.fixture
def on(home: Path) -> Iterator[Stage]:
    with stage(
        home, replies, found=Survey(MODELS, (Path("/models"), Path(f"/x/{EVIL}".replace("\0", ""))), MODELS[0].path)
    ) as made:
        chat = Chat("01EVIL", EVIL, 1.0, 2.0, EVIL, 3.0, EVIL, None, settings=json.dumps({"x": EVIL}))
        question = Message("01EVIL-u", "01EVIL", None, "user", EVIL, 1.0, "")
        reply = Message("01EVIL-r", "01EVIL", "01EVIL-u", "assistant", EVIL, 1.0, EVIL, EVIL, json.dumps({"cut": EVIL}))
        made.store.run(ChatStore.add_turn, chat, [question, reply]).result()
        made.store.run(
            ChatStore.set_draft, "01EVIL", Draft(EVIL, json.dumps({EVIL: {"path": EVIL, "name": EVIL}}))
        ).result()
        yield made


def check(pilot: Pilot[None]) -> str:
    """Everything that is on the screen now, and what is said for a moment."""
    drawn = []
    for screen in pilot.app.screen_stack:
        for strip in screen._compositor.render_strips():
            for segment in strip:
                found = FORBIDDEN.search(segment.text)
                assert segment.control or found is None, (screen, segment.text)
                assert not (segment.style and segment.style.meta.get("@click") == "app.quit"), segment
                drawn.append(segment.text)
            drawn.append("\n")
    return "".join(drawn)


async def look(pilot: Pilot[None], *keys: str) -> str:
    await pilot.press(*keys)
    await pilot.pause(0.15)
    return check(pilot)


async def test_the_chat_and_the_list(on: Stage) -> None:
    async with on.app("01EVIL").run_test(size=(140, 40)) as pilot:
        await sees(pilot, "[bold red]aa[/]")  # as text
        check(pilot)
        await look(pilot, "ctrl+s")
        assert "[bold" in check(pilot)
        await look(pilot, *"owned")
        await look(pilot, "escape", "tab", "r")  # rename
        await look(pilot, "escape")
        await look(pilot, "x")  # export
        await look(pilot, "p")
        await look(pilot, "f")  # copy
        await look(pilot, "escape", "escape")


async def test_answers_and_browsing(on: Stage) -> None:
    async with on.app("01EVIL").run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: not status(pilot).startswith("◌"))
        room(pilot).prompt.put("")
        await send(pilot, "Hi.")
        await until(pilot, lambda: not room(pilot).is_busy and len(room(pilot).conversation.messages) == 4)
        await look(pilot)
        await look(pilot, "ctrl+o")
        for key in ("k", "k", "K", "J", "y", "Y", "enter"):
            await look(pilot, key)
        await look(pilot, "d")
        await look(pilot, "escape")


@pytest.mark.parametrize(
    "opened",
    ["f1", "f2", "f3", "ctrl+p", "ctrl+r"],
)
async def test_screens(on: Stage, opened: str) -> None:
    async with on.app("01EVIL").run_test(size=(140, 40)) as pilot:
        await sees(pilot, "[bold red]aa[/]")
        room(pilot).prompt.put("")
        await look(pilot, opened)
        for key in ("tab", "down", "tab", "down", "right", "tab"):
            await look(pilot, key)
        await look(pilot, "escape", "escape")


@pytest.mark.parametrize(
    "command",
    [
        "/model",
        f"/model {EVIL[8:80]}",
        "/system",
        f"/system {EVIL}",
        "/export",
        f"/export md /nowhere/{EVIL[5:60]}",
        f"/rename {EVIL}",
        "/delete",
        "/purge",
        f"/nothing{EVIL[9:60]}",
        f"/preset {EVIL[9:60]}",
        f"/theme {EVIL[9:60]}",
        f"/cache {EVIL[9:60]}",
        f"/draft {EVIL[9:60]}",
        f"/overflow {EVIL[9:60]}",
        f"/seed {EVIL[9:60]}",
        f"/pull {EVIL[9:60]}",
        f"/help {EVIL[9:40]}",
        "/history",
        "/summary",
        "/pin",
        "/undo",
    ],
    ids=lambda command: command.split()[0][:12],
)
async def test_commands(on: Stage, command: str) -> None:
    async with on.app("01EVIL").run_test(size=(140, 40)) as pilot:
        await sees(pilot, "[bold red]aa[/]")
        room(pilot).prompt.put("")
        await send(pilot, command)
        await look(pilot)
        await look(pilot, "down")
        await look(pilot, "f3" if command == "/model" else "escape")
        await look(pilot, "escape", "escape")


async def test_files_in_the_menu(on: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "[bold red]x[_]\x1b[31m\u202e.md").write_text("words")
    monkeypatch.chdir(tmp_path)
    async with on.app().run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: room(pilot).prompt.companion is not None and "evil" in status(pilot))
        await pilot.press("@")
        await until(pilot, lambda: "[bold red]x" in check(pilot))
        await look(pilot, "enter")
        await look(pilot, "h", "enter")


@pytest.mark.parametrize("size", [(40, 12), (20, 8)])
async def test_narrow_ones(on: Stage, size: tuple[int, int]) -> None:
    async with on.app("01EVIL").run_test(size=size) as pilot:
        await pilot.pause(0.5)
        check(pilot)
        await look(pilot, "ctrl+s")
        await look(pilot, "escape", "f2")

"""The app's screen for a long time, with an engine that only makes answers up: what a person types and presses, at
random, and what the process has after each so many answers, when a new chat is shown.

Needs the folder `ui` beside it on the path. See `soak_measuring` for what is measured.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fake_backend import turn_events
from soak_measuring import Use, own_use
from textual.pilot import Pilot
from ui_fakes import Stage, room, send, stage, until

from kvchat.backend.protocol import Event, Generate, Title, Titled
from kvchat.conversation import Conversation
from kvchat.ui.dialogs import Confirm

PATIENCE = 100  # looks, a tenth of a second each
SCREENS = ("f1", "f2", "f3", "ctrl+p", "ctrl+s", "ctrl+o")
COMMANDS = ("/retry", "/undo", "/rename another name", "/temp 0.5", "/seed 3", "/system Be brief.", "/help", "/pin")
KEYS = ("pageup", "pagedown", "ctrl+end", "ctrl+t", "up", "down")
SIZES = ((120, 40), (80, 24), (60, 16), (160, 50))
PARTS = (
    "A paragraph of *some* words, **bold** ones and `code`, that is long enough to be wrapped on every screen.\n\n",
    "- one\n- two\n  - three, in a list\n\n",
    "```python\ndef answer(question: str) -> int:\n    return len(question)  # 漢字\n```\n\n",
    "| name | value |\n|---|---|\n| a | 1 |\n| b | 2 |\n\n",
    "<think>\nLet me see.\n</think>\n\n",
    "## A head\n\n> quoted\n\n",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """After so many answers. `objects`: those of classes of kvchat and Textual; `conversations` are some of these.
    `tasks` of the event loop."""

    turns: int
    seconds: float
    use: Use
    objects: int
    conversations: int
    tasks: int


@dataclass
class ScreenSoak:
    """`moments` are what was measured, `done` how often what happened."""

    rng: random.Random
    every: int = 40
    turns: int = 0
    moments: list[Moment] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def run(self, home: Path, goes_on: Callable[[int], bool]) -> None:
        """Use the app for as long as `goes_on` says of the answers so far."""
        asyncio.run(self._run(home, goes_on))

    async def _run(self, home: Path, goes_on: Callable[[int], bool]) -> None:
        began = time.monotonic()
        with stage(home, self._answer) as on:
            on.engine.title = partial(_title, on)  # type: ignore[method-assign]
            async with on.app().run_test(size=SIZES[0]) as pilot:
                await self._measure(pilot, on, began)
                while goes_on(self.turns):
                    await self._act(pilot)
                    if self.turns - self.moments[-1].turns >= self.every:
                        await self._measure(pilot, on, began)

    def _answer(self, request: Generate) -> Sequence[Event]:
        self.turns += 1
        text = "".join(self.rng.choices(PARTS, k=self.rng.randint(1, 12)))
        step = self.rng.choice((3, 20, 200))
        return turn_events(request, [text[at : at + step] for at in range(0, len(text), step)])

    async def _act(self, pilot: Pilot[None]) -> None:
        kind = self.rng.choices(("sent", "screen", "command", "key", "chat", "size"), (6, 2, 2, 2, 1, 1))[0]
        self.done[kind] += 1
        match kind:
            case "sent":
                await send(pilot, f"Question {self.rng.randrange(1000)}: " + "and " * self.rng.randint(1, 60))
            case "screen":
                await pilot.press(self.rng.choice(SCREENS))
                await pilot.pause()
                await pilot.press(self.rng.choice(("down", "right", "tab", "end")))
            case "command":
                await send(pilot, self.rng.choice(COMMANDS))
            case "key":
                await pilot.press(self.rng.choice(KEYS))
            case "chat":
                await send(pilot, self.rng.choice(("/new", "/incognito", "/delete")))
            case "size":
                await pilot.resize_terminal(*self.rng.choice(SIZES))
        await self._rest(pilot)

    async def _rest(self, pilot: Pilot[None]) -> None:
        """Nothing is being answered, and the chat is shown with the prompt in it."""
        await pilot.pause()
        for _ in range(6):
            if len(pilot.app.screen_stack) == 1 and room(pilot).prompt.has_focus:
                break
            await pilot.press("escape")
            await pilot.pause()
        await until(pilot, lambda: not room(pilot).is_busy and not room(pilot).conversation.is_working)

    async def _measure(self, pilot: Pilot[None], on: Stage, began: float) -> None:
        room(pilot).prompt.put("")
        await pilot.resize_terminal(*SIZES[0])
        await self._rest(pilot)
        if room(pilot).conversation.messages:
            await pilot.press("ctrl+n")
            await pilot.pause()
            if isinstance(pilot.app.screen, Confirm):  # an incognito chat would be gone
                await pilot.press("enter")
            await until(pilot, lambda: not room(pilot).conversation.messages)
            await self._rest(pilot)
        for _ in range(PATIENCE):  # until titles are found and the disk has all
            _forget(on)
            await pilot.pause(0.1)
            use = own_use()
            if _alive().count(Conversation) <= 1:
                break
        alive = _alive()
        counts = len(alive), alive.count(Conversation), len(asyncio.all_tasks())
        self.moments.append(Moment(self.turns, time.monotonic() - began, use, *counts))


def _alive() -> list[type]:
    """The classes of the objects of kvchat and Textual that there are, one for each object."""
    return [type(each) for each in gc.get_objects() if type(each).__module__.startswith(("kvchat", "textual"))]


def _title(on: Stage, asked: Title) -> None:
    on.engine.say(Titled(asked.turn, "What it is about"))


def _forget(on: Stage) -> None:
    """What the engine that is none recorded."""
    for kept in vars(on.engine).values():
        if isinstance(kept, list):
            kept.clear()

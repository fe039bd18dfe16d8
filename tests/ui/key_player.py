"""Random acts in the app: keys, commands, texts, clicks and window sizes. What `benchmarks/keys.py` does for long."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_app
from textual.pilot import OutOfBounds, Pilot
from ui_fakes import FOUND, Stage

from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig
from kvchat.config import Settings
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.key_catalogue import SECTIONS, actions
from kvchat.ui.launch import EngineLink
from kvchat.ui.slash import COMMANDS

KEYS = sorted({key for section in SECTIONS for each in actions(section) for key in each.usual} - {"ctrl+z"})
USUAL = ("enter", "escape", "tab", "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "y", "n")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789/?@"
OFFLINE = sorted(name for name in COMMANDS if "pull" not in name)
ARGUMENTS = ("", "", " ", " x", " 1", " 3 0.1 0.9", " -1", " Shift")
TEXTS = (
    "hi",
    "!slow",
    "!evil",
    "!noise",
    "!die",
    "a\nb\nc",
    "@",
    "//x",
    "x" * 300,
    "日本語 👩‍👩‍👧",
    "| a |\n|---|\n| 1 |",
    "```\nx",
)


class Echo(fake_app.Engine):
    """Does nothing of what it is asked for beside the chat."""

    pid = None

    def _nothing(self, _: object) -> None:
        pass

    forget = summarize = pin = measure = _nothing


class Player:
    """One session: what was done in it, by its seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.acts: list[object] = []

    async def play(self, home: Path, acts: int) -> None:
        """Raises what ended the app."""
        stage = Stage(home, None, True, Settings(offline=True), FOUND)
        try:
            while len(self.acts) < acts:
                await self._once(stage, acts)
        finally:
            stage.store.close()

    async def _once(self, stage: Stage, acts: int) -> None:
        def engine(config: EngineConfig, post: Callable[[Event], None], *_: object) -> Echo:
            return Echo(config, post)

        link = EngineLink(Settings(offline=True), stage.paths, stage.inbox.post, engine, stage._look)
        app = KvchatApp(replace(stage.desk, engine=link), None)
        size = self._rng.randint(20, 160), self._rng.randint(6, 50)
        async with app.run_test(size=size) as pilot:
            while len(self.acts) < acts and app.is_running and not app._exit:
                await self._act(pilot)

    async def _act(self, pilot: Pilot[None]) -> None:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.68:
            pool = KEYS if kind < 0.45 else USUAL if kind < 0.6 else LETTERS
            await self._press(pilot, rng.choice(pool))
        elif kind < 0.8:
            text = rng.choice(TEXTS) if rng.random() < 0.5 else rng.choice(OFFLINE) + rng.choice(ARGUMENTS)
            self.acts.append(text)
            if isinstance(screen := pilot.app.screen, ChatScreen):
                screen.room.prompt.put(text)
                await pilot.press("enter")
        elif kind < 0.86:
            spot = tuple(rng.randrange(most) for most in pilot.app.size)
            self.acts.append(spot)
            try:
                await pilot.click(offset=spot)
            except OutOfBounds:  # the window is another one by now
                return
        elif kind < 0.9:
            size = rng.randint(1, 180), rng.randint(1, 60)
            self.acts.append(size)
            await pilot.resize_terminal(*size)
        elif kind < 0.94:
            await self._press(pilot, *rng.choices(KEYS, k=4))
        else:
            await pilot.pause(rng.random() / 10)

    async def _press(self, pilot: Pilot[None], *keys: str) -> None:
        self.acts.append(keys)
        await pilot.press(*keys)

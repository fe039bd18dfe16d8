"""The app does not use the network: nothing is connected to and no name is looked up, whatever is opened in it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_backend import turn_events
from ui_fakes import room, sees, send, stage, until


async def test_the_app(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Callable[..., None]:
        def refused(*words: object, **_: object) -> None:
            raise AssertionError(f"{name}{words}")

        return refused

    monkeypatch.setattr(socket.socket, "connect", refuse("connect"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse("getaddrinfo"))
    with stage(home, lambda request: turn_events(request, ["Hello there."])) as on:
        async with on.app().run_test(size=(110, 30)) as pilot:
            await send(pilot, "Hi.")
            await sees(pilot, "Hello there.")
            await until(pilot, lambda: not room(pilot).is_busy)
            for key in ("f2", "escape", "f3", "escape", "ctrl+p", "escape", "f1", "escape", "ctrl+s", "escape"):
                await pilot.press(key)
                await pilot.pause(0.1)
            await send(pilot, "/model")
            await pilot.pause(0.3)

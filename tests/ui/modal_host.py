"""A small app around one modal screen, and models and engines for it to talk about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.backend.protocol import Ready
from kvchat.backend.values import CacheInfo, EngineConfig, ModelInfo
from kvchat.library.find import ModelFile
from kvchat.ui.theme import INK, VARIABLES

EVIL = "⚠\ufe0fevil\x1b]0;title\x07[bold red]\u202e键"


class Host(App[None]):
    """Shows the screen that `make` gives and keeps what it ends with."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, make: Callable[[], ModalScreen[Any]]) -> None:
        super().__init__()
        self.animation_level = "none"
        self._make = make
        self.results: list[Any] = []
        self.register_theme(INK)
        self.theme = INK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def compose(self) -> ComposeResult:
        yield Static("below")

    def on_mount(self) -> None:
        self.push_screen(self._make(), self.results.append)


def text(app: App[Any]) -> str:
    """What stands on the screen, line by line."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def settled(pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    """Wait until the condition holds; other threads have work to do."""
    for _ in range(3000):  # a minute at least
        if condition():
            return
        await pilot.pause(0.02)
    raise AssertionError(f"it did not happen; on the screen:\n{text(pilot.app)}")


async def type_at_once(pilot: Pilot[Any], *keys: str) -> None:
    """All keys in one write: no pause in which the first could be handled before the last has come."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await pilot.pause(0.1)


def model(kind: str, folder: Path, name: str = "", size: int = 0, **spec: object) -> ModelFile:
    """A tiny model; `size` is what the listing says, 0: what it is."""
    path = tiny.build(kind, folder, **spec)
    return ModelFile(name or path.stem, path, size or path.stat().st_size, "models")


def broken(folder: Path, name: str = "broken") -> ModelFile:
    path = folder / "broken.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    return ModelFile(name, path, 8, "models")


def ready_with(config: EngineConfig, context: int = 4096, kv_bytes_per_token: int = 1024) -> Ready:
    """What an engine with this configuration reports."""
    info = ModelInfo("m", config.model_path, "llama", "GQA", "0" * 32, "key", "GGUF", context, kv_bytes_per_token)
    return Ready(info, CacheInfo(config.type_k, config.type_v, context, False, 1, 0, True, True), 0.1)

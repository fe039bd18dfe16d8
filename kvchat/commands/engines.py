"""What commands need of an engine: a type, so that they can be given another one. Owns no behaviour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kvchat.backend.protocol import EngineConfig, Event, Forecast, Generate, Preview, Ready, Warm


class CommandEngine(Protocol):
    """The part of kvchat.backend.local.Engine that a command uses."""

    @property
    def ready(self) -> Ready | None: ...
    def start(self) -> None: ...
    def submit(self, request: Generate) -> None: ...
    def cancel(self, turn: str) -> None: ...
    def warm(self, command: Warm) -> None: ...
    def forecast(self, command: Forecast) -> None: ...
    def preview(self, command: Preview) -> None: ...
    def close(self) -> None: ...


EngineFactory = Callable[[EngineConfig, Callable[[Event], None], Path, Path], CommandEngine]
"""Configuration, where events go (called on any thread), state folder, log file."""

"""What others need of an engine: types, so that they can be given another one. Owns no behaviour.

`kvchat.backend.local.Engine` is the one that runs on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kvchat.backend.child import GOODBYE
from kvchat.backend.fidelity import Measure
from kvchat.backend.protocol import (
    Event,
    Forecast,
    Forget,
    Generate,
    Pin,
    Preview,
    ReadAhead,
    Ready,
    Summarize,
    Title,
    Warm,
)
from kvchat.backend.values import EngineConfig


class Backend(Protocol):
    """How a conversation reaches a model.

    `ready` and `cancel` are used on the thread of the conversation, what sends a message's ids on the store thread,
    which has them: `submit` right after the commit of what it answers. So all of them must be safe to call from
    different threads, and must not wait for the engine: a send under a lock is all they do.
    """

    @property
    def ready(self) -> Ready | None:
        """The loaded model; None while there is none."""

    def submit(self, request: Generate) -> None:
        """Starts a turn. Its events go to `Conversation.apply`, by way of the thread of the conversation."""

    def cancel(self, turn: str) -> None:
        """Stops a turn that was submitted, or a summary or a pin. Its end still comes."""

    def warm(self, command: Warm) -> None:
        """Answered by Warmed, or not at all when a turn comes first."""

    def forecast(self, command: Forecast) -> None:
        """Answered by Forecasted, or not at all when a turn or a newer one comes first."""

    def read_ahead(self, command: ReadAhead) -> None:
        """Answered by ReadingAhead events, or not at all when a turn or a newer one comes first."""

    def preview(self, command: Preview) -> None:
        """Answered by Previewed, or not at all when a turn or a newer one comes first."""

    def title(self, command: Title) -> None:
        """Answered by Titled, or not at all when a turn or a newer one comes first."""

    def summarize(self, command: Summarize) -> None:
        """Answered by exactly one Summarized in the end, also when the engine is gone; `cancel` ends it."""

    def pin(self, command: Pin) -> None:
        """Answered by exactly one Pinned in the end, also when the engine is gone; `cancel` ends it."""


class EngineClient(Backend, Protocol):
    """A backend with a life: what the app and the commands start and end. Only `close` waits for it."""

    @property
    def config(self) -> EngineConfig:
        """What was asked for last."""

    def start(self) -> None:
        """Starts it; the events tell how it goes."""

    def configure(self, config: EngineConfig) -> None:
        """Goes over to another configuration; the events tell how it goes."""

    def forget(self, command: Forget) -> None:
        """Answered by Forgotten, or not at all without a model."""

    def measure(self, command: Measure) -> None:
        """Has cache types compared while nothing else is wanted; `cancel` stops it. One Measured comes in any case."""

    def close(self, patience: float = GOODBYE) -> None:
        """Ends it, and waits so many seconds for its end. If it takes longer, it is killed after GOODBYE; with less
        patience it is left to end by itself."""


EngineFactory = Callable[[EngineConfig, Callable[[Event], None], Path, Path], EngineClient]
"""Configuration, where events go (called on any thread), state folder, log file."""

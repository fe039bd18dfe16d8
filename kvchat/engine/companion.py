"""The draft model beside the model of a session: which one there is, or why there is none, and what it does while
nobody wants the engine.

Owns its lifetime, which ends before that of the target. Must not decide whether its drafts pay.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backend.protocol import Event, Loading
from kvchat.backend.values import DraftInfo, EngineConfig
from kvchat.engine.context import Aborted
from kvchat.engine.draft_loading import load_draft
from kvchat.engine.draft_model import DraftModel
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.seat import Seat
from kvchat.errors import KvchatError
from kvchat.formats.past import Past

NAME = "draft model"  # of what is done beside the chat


class Companion:
    """None or one draft model."""

    def __init__(self, interrupt: Interrupt, emit: Callable[[Event], None]) -> None:
        self._interrupt = interrupt
        self._emit = emit
        self.model: DraftModel | None = None
        self.problem: str | None = None

    @property
    def info(self) -> DraftInfo | None:
        return self.model.info() if self.model is not None else None

    def open(self, config: EngineConfig, target: Seat, *, needed: bool) -> None:
        """Load the one that the configuration names, in place of none. Where it cannot be had, `problem` says why; with
        `needed` KvchatError is raised."""
        self.problem = None
        if config.draft_path is None:
            return
        self._emit(Loading(0.0, draft=True))  # should the engine die now, this was why
        try:
            self.model = load_draft(config, target, self._interrupt)
        except KvchatError as error:
            if needed:
                raise
            self.problem = f"{error.message} ({error.hint})" if error.hint else error.message

    def close(self) -> None:
        """Write what waits to be written, and free the model."""
        if self.model is not None:
            self.model.close()
        self.model = None

    def set_threads(self, threads: int) -> None:
        if self.model is not None:
            self.model.seat.context.set_threads(threads)

    # ---------------------------------------------------------------- between turns

    @property
    def is_behind(self) -> bool:
        """Whether there is something to read that the target has read."""
        return self.model is not None and self.model.is_behind

    def keep(self, keep: bool) -> None:
        """Whether the next turn reuses and saves KV."""
        if self.model is not None:
            self.model.keep(keep)

    def forget(self) -> None:
        """Let go of all that was read."""
        if self.model is not None:
            self.model.forget()

    def follow(self, past: Past, *, read: bool) -> None:
        """The target holds `past`, all of it text that is committed. `read`: also what is not on disk."""
        if self.model is not None:
            self.model.follow(past, read=read)

    def advance(self) -> None:
        """Read a little. An interruption is no matter, and one that fails is not asked again before the next turn."""
        if self.model is None:
            return
        try:
            self.model.advance()
        except Aborted:
            return
        except KvchatError:
            self.model.rest()

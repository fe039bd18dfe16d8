"""The measurement of cache types that is going on, if there is one: its beginning, steps and its one end.

Owns that there is one at a time. Must not measure, or decide when: whoever calls does so while nothing else is wanted.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backend.fidelity import Measure, Measured
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig, Failure
from kvchat.engine.fidelity import FidelityJob
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.model import Model
from kvchat.errors import KvchatError


class Laboratory:
    """None or one measurement of a session's model."""

    def __init__(self, model: Model, interrupt: Interrupt, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._interrupt = interrupt
        self._emit = emit
        self._job: FidelityJob | None = None

    @property
    def turn(self) -> str | None:
        """The name of the measurement, None for none."""
        return self._job.turn if self._job is not None else None

    def begin(self, command: Measure, config: EngineConfig) -> None:
        """Measure, in place of a measurement that is going on. It waits while anything else is wanted, and goes on
        then."""
        self.end(None, Failure("another measurement has taken its place"))
        try:
            self._job = FidelityJob(command, self._model, config, self._interrupt.stop)
        except KvchatError as error:
            self._emit(Measured(command.turn, None, Failure(error.message, error.hint)))

    def end(self, turn: str | None = None, failure: Failure | None = None) -> None:
        """End the measurement of that name, or any, if there is one."""
        if self._job is not None and turn in (None, self._job.turn):
            self._job.close()
            self._emit(Measured(self._job.turn, None, failure))
            self._job = None

    def advance(self) -> None:
        """A step of it. A failure ends it."""
        if self._job is None:
            return
        try:
            told = self._job.advance()
        except KvchatError as error:
            self.end(None, Failure(error.message, error.hint))
            return
        if isinstance(told, Measured):
            self._job.close()
            self._job = None
        if told is not None:
            self._emit(told)

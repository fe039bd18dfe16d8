"""Which turn computes next. Owns the queue of turns and their one end; must not know what a turn does.

Turns run one after the other: the running one has the context to itself, which is what makes its cells contiguous.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvchat.backend.protocol import Event, Generate, TurnFinished
from kvchat.backend.values import Failure, FinishReason
from kvchat.engine.context import Aborted
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.session import Session
from kvchat.engine.step import Step
from kvchat.engine.turn import TooLongError
from kvchat.errors import KvchatError


class Scheduler:
    """Runs turns step by step. Every Generate that goes in comes out as exactly one TurnFinished, unless the process
    dies, in which case the client owes it."""

    def __init__(
        self,
        session: Session,
        interrupt: Interrupt,
        emit: Callable[[Event], None],
    ) -> None:
        self._session = session
        self._interrupt = interrupt
        self._emit = emit
        self._queue: deque[Generate] = deque()

    def add(self, request: Generate) -> None:
        self._queue.append(request)

    @property
    def idle(self) -> bool:
        return not self._queue

    def run_next(self) -> None:
        """Run the oldest turn to its end."""
        request = self._queue.popleft()
        self._interrupt.begin(request.turn)
        try:
            self._run(request)
        finally:
            self._interrupt.end(request.turn)

    def _run(self, request: Generate) -> None:
        turn = self._session.start_turn(request)
        failure: Failure | None = None
        reason: FinishReason
        try:
            for step in turn.steps():
                self._decode(step)
            reason = turn.reason
        except Aborted:
            reason = "cancelled"
        except TooLongError as error:
            reason, failure = "context", Failure(error.message, error.hint)
        except KvchatError as error:
            reason, failure = "error", Failure(error.message, error.hint)
        finished = TurnFinished(request.turn, reason, turn.finish(), failure, turn.ways)
        self._session.learn(finished)
        self._emit(finished)

    def _decode(self, step: Step) -> None:
        if self._interrupt():
            raise Aborted
        self._session.decode(step)

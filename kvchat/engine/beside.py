"""What is made beside the chats: a title, a summary, pinned prefixes, one after the other.

Owns which of them there is and the one end of each summary and each pin. Must not decide when: whoever calls does so
while nothing else is wanted, and says when the cells are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvchat.backend.protocol import Event, Pin, Pinned, Summarize, Summarized, Title, Titled
from kvchat.backend.values import Failure
from kvchat.engine.aside import TitleJob
from kvchat.engine.context import Aborted
from kvchat.engine.model import Model
from kvchat.engine.pinning import PinJob
from kvchat.engine.seat import Seat
from kvchat.engine.summarizing import SummaryJob
from kvchat.errors import KvchatError


class Beside:
    """At most one title, one summary, and any number of pins; the title goes first."""

    def __init__(self, model: Model, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._emit = emit
        self._title: TitleJob | None = None
        self._summary: SummaryJob | None = None
        self._pins: deque[PinJob] = deque()

    @property
    def name(self) -> str | None:
        """Of the title or summary that is being made, None for neither."""
        job = self._title or self._summary
        return None if job is None else job.turn

    @property
    def pin(self) -> str | None:
        """Name of the pin that is being made, None for none."""
        return self._pins[0].turn if self._pins else None

    def begin_title(self, command: Title, seat: Seat) -> None:
        """Make a title, in place of one that is being made."""
        self.give_way()
        try:
            self._title = TitleJob(command, self._model, seat)
        except KvchatError:  # no title is no loss
            self._emit(Titled(command.turn, ""))

    def begin_summary(self, command: Summarize) -> None:
        """Make a summary, in place of one that is being made."""
        self.end_summary(None, Failure("another summary has taken its place"))
        try:
            self._summary = SummaryJob(command, self._model)
        except KvchatError as error:
            self._emit(Summarized(command.turn, failure=Failure(error.message, error.hint)))

    def end_summary(self, turn: str | None, failure: Failure | None = None) -> None:
        """End the summary of that name, or any, if there is one."""
        if self._summary is not None and turn in (None, self._summary.turn):
            self._summary.close()
            self._emit(Summarized(self._summary.turn, failure=failure))
            self._summary = None

    def begin_pin(self, command: Pin) -> None:
        """Compute and keep a prefix, after those that were asked for before."""
        try:
            self._pins.append(PinJob(command, self._model))
        except KvchatError as error:
            self._emit(Pinned(command.turn, command.prefix, failure=Failure(error.message, error.hint)))

    def end_pin(self, turn: str, failure: Failure | None = None) -> None:
        """End the pin of that name, if there is one."""
        for job in [each for each in self._pins if each.turn == turn]:
            job.close()
            self._pins.remove(job)
            self._emit(Pinned(job.turn, job.prefix, failure=failure))

    def give_way(self) -> None:
        """The cells are wanted: a title is not made any more, a summary or a pin goes on when it is advanced again."""
        if self._title is not None:
            self._title.close()
        self._title = None
        if self._summary is not None:
            self._summary.suspend()
        if self._pins:
            self._pins[0].suspend()

    def advance(self, seat: Seat) -> None:
        """Compute a little of the title or the summary."""
        if self._title is not None:
            self._advance_title(self._title)
        elif self._summary is not None and self._is_over(self._summary, seat, self.end_summary):
            self._summary = None

    def advance_pin(self, seat: Seat) -> None:
        """Compute a little of the first pin; it is long, and everything else goes before it."""
        job = self._pins[0]
        if self._is_over(job, seat, self.end_pin):
            self._pins.remove(job)

    def _advance_title(self, job: TitleJob) -> None:
        try:
            titled = job.advance()
        except (Aborted, KvchatError):
            self.give_way()
            return
        if titled is not None:
            self.give_way()
            self._emit(titled)

    def _is_over(self, job: SummaryJob | PinJob, seat: Seat, fail: Callable[[str, Failure], object]) -> bool:
        """A step of what goes on after an interruption; whether it was the last one. `fail` ends it where it cannot go
        on."""
        try:
            told = job.advance(seat)
        except Aborted:
            job.suspend()
            return False
        except KvchatError as error:
            fail(job.turn, Failure(error.message, error.hint))
            return False
        over = isinstance(told, Summarized | Pinned)
        if over:
            job.close()
        self._emit(told)
        return over

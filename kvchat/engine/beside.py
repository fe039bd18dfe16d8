"""What is made beside the chat in the scratch sequence: a title, a summary, one after the other.

Owns which of them there is and the one end of each summary. Must not decide when: whoever calls does so while nothing
else is wanted, and says when the cells are.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backend.protocol import Event, Summarize, Summarized, Title, Titled
from kvchat.backend.values import Failure
from kvchat.engine.aside import TitleJob
from kvchat.engine.context import Aborted
from kvchat.engine.model import Model
from kvchat.engine.seat import Seat
from kvchat.engine.summarizing import SummaryJob
from kvchat.errors import KvchatError


class Beside:
    """At most one title and one summary; the title goes first."""

    def __init__(self, model: Model, emit: Callable[[Event], None]) -> None:
        self._model = model
        self._emit = emit
        self._title: TitleJob | None = None
        self._summary: SummaryJob | None = None

    @property
    def name(self) -> str | None:
        """Of what is being made, None for nothing."""
        job = self._title or self._summary
        return None if job is None else job.turn

    def begin_title(self, command: Title, seat: Seat) -> None:
        """Make a title, in place of one that is being made."""
        self.give_way()
        try:
            self._title = TitleJob(command, self._model, seat.context)
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

    def give_way(self) -> None:
        """The cells are wanted: a title is not made any more, a summary goes on when it is advanced again."""
        if self._title is not None:
            self._title.close()
        self._title = None
        if self._summary is not None:
            self._summary.suspend()

    def advance(self, seat: Seat) -> None:
        """Compute a little of what there is."""
        if self._title is not None:
            self._advance_title(self._title)
        elif self._summary is not None:
            self._advance_summary(self._summary, seat)

    def _advance_title(self, job: TitleJob) -> None:
        try:
            titled = job.advance()
        except (Aborted, KvchatError):
            self.give_way()
            return
        if titled is not None:
            self.give_way()
            self._emit(titled)

    def _advance_summary(self, job: SummaryJob, seat: Seat) -> None:
        try:
            told = job.advance(seat)
        except Aborted:
            job.suspend()
            return
        except KvchatError as error:
            self.end_summary(job.turn, Failure(error.message, error.hint))
            return
        if isinstance(told, Summarized):
            job.close()
            self._summary = None
        self._emit(told)

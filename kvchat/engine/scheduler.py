"""Which turns compute next. Owns the queue, the turns that go on, and their one end; must not know what a turn does.

Any number of turns, up to that of the places in the context, go on together: every round is one decode with the next
tokens of all answers and a part of the prompts that are being read (continuous batching, as in Orca, Yu et al. 2022). A
turn whose prompt does not fit beside the others waits; where answers outgrow the context together, the youngest gives
its cells up, as bytes in memory, and has them again when there is room.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from kvchat.backend.protocol import Event, Generate, TurnFinished, Waits
from kvchat.backend.values import Failure, FinishReason, Usage
from kvchat.engine.asked import Asked, TooLongError
from kvchat.engine.batching import Limits, compose
from kvchat.engine.context import Aborted, FullError
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.lending import best_loan
from kvchat.engine.pace import Pace
from kvchat.engine.place import Place
from kvchat.engine.running import Running
from kvchat.engine.sampling import NoNumberError
from kvchat.engine.session import Session
from kvchat.errors import KvchatError
from kvchat.kv.fit import OUTPUTS

RESERVE = 256  # cells that an answer is given beside others before it may begin


class Scheduler:
    """Runs turns round by round. Every Generate that goes in comes out as exactly one TurnFinished, unless the process
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
        self._queue: list[Generate] = []
        self._came: dict[str, float] = {}  # when those in the queue came, as time.perf_counter tells
        self._asked: dict[str, Asked] = {}  # of turns in the queue that were read, and wait
        self._told: dict[str, str] = {}  # why they wait
        self._running: list[Running] = []  # the oldest first
        self._pace = Pace()
        self._singly = 0  # rounds with one turn each, to find the one that cannot be computed

    def add(self, request: Generate) -> None:
        self._queue.append(request)
        self._came[request.turn] = time.perf_counter()

    @property
    def idle(self) -> bool:
        return not self._queue and not self._running

    def run_out(self) -> None:
        """Run everything to its end."""
        while not self.idle:
            self.advance()

    def advance(self) -> None:
        """One round: end what was cancelled, begin what can begin, compute once."""
        self._end_cancelled()
        self._unpark()
        self._admit()
        running = [each for each in self._running if not each.is_parked]
        if running:
            self._compute(running)

    # ---------------------------------------------------------------- beginning

    def _admit(self) -> None:
        """Begin turns in their order; who cannot begin holds up those behind, so that nobody waits for ever. One that
        waits for another with the same prompt does not."""
        reason = ""
        for request in [each for each in self._queue if not self._waits_for_leader(each)]:
            if any(each.is_parked for each in self._running):
                reason = "the running answers have no room themselves"
            elif reason:
                reason = "another one waits before it"
            else:
                reason = self._begin(request)
            if reason:
                self._tell(request.turn, reason)
            else:
                self._queue.remove(request)

    def _waits_for_leader(self, request: Generate) -> bool:
        leader = request.alternative_of
        before = self._queue[: self._queue.index(request)]
        return any(each.turn == leader for each in before) or any(
            each.name == leader and not each.turn.has_read for each in self._running
        )

    def _begin(self, request: Generate) -> str:
        """Begin a turn; or the reason why it cannot begin now."""
        session = self._session
        try:
            asked = self._asked.get(request.turn) or session.read(request, self._came[request.turn])
        except KvchatError as error:
            self._emit(TurnFinished(request.turn, "error", Usage(), Failure(error.message, error.hint)))
            self._forget(request.turn)
            return ""
        self._asked[request.turn] = asked
        place = session.seat.best(asked.past)
        if place is None:
            count = len(self._running)
            if count == 1:
                return "another answer is being written first"
            return f"{count} answers are being written, and more are not at once"
        if not self._has_room(asked, place) and self._running:
            cells = session.context.cells
            return f"its {asked.tokens:,} tokens have no room beside the running answers in a context of {cells:,}"
        self._forget(request.turn)
        self._interrupt.begin(request.turn)
        running = Running(session.start_turn(asked, place))
        session.seat.take(place)
        self._running.append(running)
        self._go_on(running)
        return ""

    def _has_room(self, asked: Asked, place: Place) -> bool:
        """Whether a prompt and the beginning of its answer have cells beside the others."""
        cells = self._session.context.cells
        tokens = asked.tokens
        if tokens > cells and asked.request.overflow not in ("shift", "sinks", "prune"):
            return True  # the turn will say so
        loan = best_loan(self._session.seat.lenders(place, keeps=asked.keeps), asked.past)
        shared = loan.length if loan is not None and not place.cells.memory.recurrent else 0
        reserve = min(asked.request.sampling.max_tokens or RESERVE, RESERVE, cells // 4)
        needed = min(tokens - shared + reserve, cells)
        return self._session.seat.make_room(needed - place.occupied + self._pending, place)

    @property
    def _pending(self) -> int:
        return sum(each.pending for each in self._running)

    def _tell(self, turn: str, reason: str) -> None:
        if self._told.get(turn) != reason:
            self._told[turn] = reason
            self._emit(Waits(turn, reason))

    def _forget(self, turn: str) -> None:
        self._came.pop(turn, None)
        self._asked.pop(turn, None)
        self._told.pop(turn, None)

    # ---------------------------------------------------------------- computing

    def _compute(self, running: list[Running]) -> None:
        if self._singly:
            self._singly -= 1
            running = running[self._singly % len(running) :][:1]
        seat, wants = self._session.seat, [each.want for each in running]
        answers = sum(want.is_small for want in wants)
        chunk, favour = self._session.context.chunk, self._session.config.favour
        shares = [wants[0].tokens]
        if len(running) > 1:
            free = self._session.context.cells - seat.occupied - self._pending
            quota = self._pace.quota(favour, answers, chunk)
            shares = compose(wants, Limits(chunk, OUTPUTS, free, quota))
        chosen = [(each, tokens) for each, tokens in zip(running, shares, strict=True) if tokens]
        if not chosen:
            self._make_room(running)
            return
        began = time.perf_counter()
        try:
            self._session.decode([each.task(tokens, whole=self._is_whole(each)) for each, tokens in chosen])
        except Aborted:
            if len(self._running) == 1:
                self._end(chosen[0][0], "cancelled")
            return  # the others compute it once more
        except FullError:
            self._make_room(running)
            return
        except KvchatError as error:
            if len(chosen) > 1:
                self._singly = len(running)
            else:
                self._end(chosen[0][0], "error", error)
            return
        seconds = time.perf_counter() - began
        total = sum(tokens for _, tokens in chosen)
        small = sum(each.want.is_small for each, _ in chosen)
        read = sum(tokens for each, tokens in chosen if not each.want.is_small)
        self._pace.learn(favour, small, read, seconds)
        self._share_out(chosen, seconds / total)

    def _share_out(self, chosen: list[tuple[Running, int]], seconds: float) -> None:
        """Every turn whose step is complete goes on, at `seconds` a token; first those that wait for logits, which the
        next decode of anybody takes away."""
        alone = len(chosen) == 1
        waiting = sorted(chosen, key=lambda one: not one[0].want.output)
        complete = [each for each, tokens in waiting if each.computed(tokens, tokens * seconds, alone=alone)]
        for each in complete:
            self._go_on(each)

    def _is_whole(self, running: Running) -> bool:
        """Whether a decode is not to be interrupted: others in it could not go back."""
        memory = running.place.track.memory
        return len(self._running) > 1 and (memory.recurrent or memory.window > 0)

    def _go_on(self, running: Running) -> None:
        """A step is complete, or the first is to come."""
        try:
            if running.resume():
                return
        except Aborted:
            self._end(running, "cancelled")
        except TooLongError as error:
            self._end(running, "context", error)
        except NoNumberError as error:
            self._end(running, "error", error)
            running.place.reuser.condemn()  # no past for anything, here or on disk
        except KvchatError as error:
            self._end(running, "error", error)
        else:
            self._end(running, running.turn.reason)

    # ---------------------------------------------------------------- room

    def _make_room(self, running: list[Running]) -> None:
        """Nothing can be computed: an idle chat gives its cells up, else the youngest turn does."""
        if self._session.seat.give_up_one():
            return
        youngest = running[-1]
        if len(running) == 1:
            self._end(youngest, "error", FullError())
            return
        try:
            youngest.park()
        except KvchatError as error:
            self._end(youngest, "error", error)
        else:
            self._emit(Waits(youngest.name, "the context is full of other answers; it goes on when they are done"))

    def _unpark(self) -> None:
        """The oldest turns that gave their cells up have them again, as far as there is room."""
        for each in [one for one in self._running if one.is_parked]:
            others = any(not one.is_parked for one in self._running)
            needed = each.needed + (RESERVE // 4 if others else 0) - each.place.occupied
            if not self._session.seat.make_room(needed + self._pending) and others:
                return
            try:
                each.unpark()
            except KvchatError as error:
                each.place.cells.resync()
                self._end(each, "error", error)

    # ---------------------------------------------------------------- the end

    def _end_cancelled(self) -> None:
        for each in [one for one in self._running if self._interrupt.is_cancelled(one.name)]:
            with suppress(KvchatError):
                each.unpark()
            self._end(each, "cancelled")
        for request in [one for one in self._queue if self._interrupt.is_cancelled(one.turn)]:
            self._queue.remove(request)
            self._forget(request.turn)
            self._interrupt.end(request.turn)
            self._emit(TurnFinished(request.turn, "cancelled", Usage()))

    def _end(self, running: Running, reason: FinishReason, error: KvchatError | None = None) -> None:
        turn = running.turn
        running.close()
        failure = Failure(error.message, error.hint) if error is not None else None
        finished = TurnFinished(running.name, reason, turn.finish(), failure, turn.ways)
        self._running.remove(running)
        self._session.seat.leave(running.place)
        self._interrupt.end(running.name)
        self._session.learn(finished)
        self._emit(finished)

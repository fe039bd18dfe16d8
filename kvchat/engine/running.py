"""A turn that goes on: its steps, how far the present one is computed, and its cells when others need the room.

Owns the parts that a step is computed in; must not decode or end the turn.
"""

from __future__ import annotations

from kvchat.engine.batching import Want
from kvchat.engine.context import Task
from kvchat.engine.step import Done, Step
from kvchat.engine.turn import Turn


class Running:
    """Made when the turn begins, which `resume` tells."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.place = turn.place
        self._steps = turn.steps()
        self._step: Step | None = None
        self._done = 0  # tokens of the step that are computed
        self._seconds = 0.0
        self._alone = True
        self._blob: memoryview | None = None

    @property
    def name(self) -> str:
        return self.turn.request.turn

    @property
    def pending(self) -> int:
        """Tokens that are in cells and not in the record of these yet."""
        return 0 if self.is_parked else self._done

    def resume(self) -> bool:
        """Go on to the next step, from the beginning or when one is complete. False: the turn has come to its end.
        Raises what the turn raises."""
        try:
            if self._step is None:
                self._step = next(self._steps)
            else:
                self._step = self._steps.send(Done(self._seconds, self._alone))
        except StopIteration:
            return False
        self._done, self._seconds, self._alone = 0, 0.0, True
        return True

    def close(self) -> None:
        """The turn ends, wherever it is."""
        self._steps.close()
        self._blob = None

    # ---------------------------------------------------------------- the present step

    @property
    def want(self) -> Want:
        """What is left of it."""
        step = self._now
        proves = step.witness is not None and not self._done
        return Want(len(step.tokens) - self._done, step.output, not self.turn.has_read, proves)

    def task(self, tokens: int, *, whole: bool) -> Task:
        """The next so many tokens of it. `whole`: they are not to be interrupted."""
        step, start = self._now, self._done
        end = start + tokens
        output = step.output if end == len(step.tokens) else 0
        witness = None if start else step.witness
        part = Step(step.tokens[start:end], step.position + start, output, step.whole or whole, witness)
        return Task(self.place.track, part)

    def computed(self, tokens: int, seconds: float, *, alone: bool) -> bool:
        """So many tokens of it were computed, in `seconds` of their own; whether it is complete. `alone`: nothing else
        was computed with them."""
        self._alone = alone and not self._done and tokens == len(self._now.tokens)
        self._done += tokens
        self._seconds += seconds
        return self._done == len(self._now.tokens)

    @property
    def _now(self) -> Step:
        assert self._step is not None, "a turn that goes on has a step"
        return self._step

    # ---------------------------------------------------------------- room

    @property
    def is_parked(self) -> bool:
        """Whether its cells are others' for now."""
        return self._blob is not None

    @property
    def needed(self) -> int:
        """Cells with which it could go on."""
        return self.place.cells.live + self._done + self.want.tokens

    def park(self) -> None:
        """Give the cells up for now. Raises KvchatError."""
        self._blob = self.place.track.memory.swap_out()

    def unpark(self) -> None:
        """Have them again. Raises KvchatError; nothing is left of them then."""
        blob, self._blob = self._blob, None
        if blob is not None:
            self.place.track.memory.swap_in(blob)

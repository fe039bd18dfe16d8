"""`resume`: the time to the first token, turn by turn, of a chat whose past comes from disk, stays in memory, or is
read again each time.

Owns the chat and its rows. All ways have the same words of the person, and answers of the model's own. Before a turn
that comes from disk the cells are emptied, as they are in a new process; at the end there is a new process.
"""

from __future__ import annotations

from kvchat.backend.values import PromptMessage, Usage
from kvchat.bench.pool import Pool
from kvchat.bench.report import Column, Part, PlotSpec, Row, Stat
from kvchat.bench.rig import Answered, Rig, Told
from kvchat.bench.wanted import Wanted

DISK, MEMORY, NOTHING, RESTART = "from disk", "in memory", "no cache", "new process"
WAYS = (DISK, MEMORY, NOTHING, RESTART)
TURNS, QUICK_TURNS = 10, 5
REPLY = 16  # tokens of each answer
_MOST_ROUNDS = 2  # the way without a cache takes as long as all else together


class Resume:
    """The measurement: `run`, and a `part` of what there is, at any time."""

    name = "resume"

    def __init__(self, rig: Rig, pool: Pool, wanted: Wanted, rate: float) -> None:
        """`rate`: tokens a second of prefill, about."""
        self._rig, self._pool = rig, pool
        self._turns = QUICK_TURNS if wanted.quick else TURNS
        self._rounds = 1 if wanted.quick else min(wanted.rounds, _MOST_ROUNDS)
        self._tokens = wanted.turn_tokens(rate, rig.ready.cache.context, self._turns)
        self._usages: dict[tuple[str, int], list[Usage]] = {}
        self._start: float | None = None

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises."""
        self._rig.read(self._pool.fresh(self._tokens), 2, keep=False)
        total, done = self._rounds * self._turns * 2 + 1, 0
        for _ in range(self._rounds):
            memory, disk = _Chat(self._rig), _Chat(self._rig)
            words = [self._pool.fresh(max(1, self._tokens - REPLY)) for _ in range(self._turns)]
            self._rig.forget()
            for turn, ids in enumerate(words, 1):
                tell(done, total, f"{MEMORY}, turn {turn}")
                self._note(MEMORY, turn, memory.say(ids, incognito=True))
                done += 1
            for turn, ids in enumerate(words, 1):
                tell(done, total, f"{DISK} and without a cache, turn {turn}")
                self._rig.forget()
                self._note(NOTHING, turn, disk.read_again(ids))
                self._rig.forget()
                self._note(DISK, turn, disk.say(ids))
                done += 1
        tell(done, total, "a new process")
        self._rig.close()
        self._start = self._rig.start()
        self._note(RESTART, self._turns + 1, disk.say(self._pool.fresh(max(1, self._tokens - REPLY))))

    def _note(self, way: str, turn: int, answered: Answered) -> None:
        self._usages.setdefault((way, turn), []).append(answered.usage)

    def part(self) -> Part:
        """What was measured so far."""
        return Part(
            self.name,
            "Resume",
            f"a chat of {self._turns} turns of about {self._tokens} tokens: seconds from sending to the first token, "
            f"and those of all its turns together",
            (
                Column("way", "past", names=True),
                Column("turn", "turn", "count", names=True),
                Column("prompt", "prompt, tokens", "count"),
                Column("computed", "computed", "count"),
                Column("first", "first token", "seconds", "lower"),
                Column("sum", "all together", "seconds", "lower"),
            ),
            tuple(self._rows()),
            (
                PlotSpec("first token, s by tokens of the prompt", "prompt", "first", ("way",)),
                PlotSpec("all first tokens of the chat together, s", "prompt", "sum", ("way",)),
            ),
            tuple(self._notes()),
        )

    def _rows(self) -> list[Row]:
        rows: list[Row] = []
        for way in WAYS:
            total = 0.0
            for turn in range(1, self._turns + 2):
                if usages := self._usages.get((way, turn)):
                    first = Stat.of([usage.ttft_seconds for usage in usages])
                    total += first.median if first is not None else 0.0
                    middle = sorted(usages, key=lambda usage: usage.prompt_tokens)[len(usages) // 2]
                    rows.append(
                        {
                            "way": way,
                            "turn": turn,
                            "prompt": middle.prompt_tokens,
                            "computed": middle.computed,
                            "first": first,
                            "sum": None if way == RESTART else total,
                        }
                    )
        return rows

    def _sum(self, way: str) -> float | None:
        """Of all turns; None: they were not all measured."""
        usages = [self._usages.get((way, turn)) for turn in range(1, self._turns + 1)]
        firsts = [Stat.of([usage.ttft_seconds for usage in each]) for each in usages if each]
        medians = [first.median for first in firsts if first is not None]
        return sum(medians) if len(medians) == self._turns else None

    def _notes(self) -> list[str]:
        found = []
        sums = {way: total for way in WAYS[:3] if (total := self._sum(way)) is not None}
        if len(sums) == len(WAYS[:3]) and sums[DISK] > 0:
            found.append(
                f"all first tokens of the chat together: {sums[DISK]:.2f} s from disk, {sums[MEMORY]:.2f} s in "
                f"memory, {sums[NOTHING]:.2f} s without a cache, {sums[NOTHING] / sums[DISK]:.1f} times as long"
            )
        if self._start is not None:
            found.append(
                f"the new process was ready after {self._start:.2f} s, of which loading took "
                f"{self._rig.ready.load_seconds:.2f} s; its first token comes on top"
            )
        if self._usages and not self._rig.ready.cache.pages:
            found.append("the state of this architecture cannot be kept: nothing comes from disk")
        return found


class _Chat:
    """A chat as far as it came."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._messages: list[PromptMessage] = []

    def say(self, ids: tuple[int, ...], *, incognito: bool = False) -> Answered:
        """A turn, whose answer stays."""
        self._messages.append(_said(ids))
        answered = self._rig.ask(self._messages, REPLY, incognito=incognito)
        self._messages.append(PromptMessage("assistant", "bench", answered.ids))
        return answered

    def read_again(self, ids: tuple[int, ...]) -> Answered:
        """The same turn, with nothing reused or saved, and the chat as it was before."""
        return self._rig.ask([*self._messages, _said(ids)], REPLY, keep=False)


def _said(ids: tuple[int, ...]) -> PromptMessage:
    return PromptMessage("user", "bench", ids)

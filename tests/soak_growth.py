"""Whether a process grew in a soak, told apart from what is not growth.

What goes up once and stays (caches that fill, buffers that are touched for the first time, the most that chats take)
is over in the first half. In the second half a straight line is laid through the measurements, which nothing but a rise
from turn to turn tilts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from soak_measuring import Sample, Use

Series = Sequence[tuple[int, Use]]
"""What a process had after so many turns."""

KIB = 1024
FEWEST = 4  # measurements in the second half, for a line
MOST = {"in use": 1.0 * KIB, "blocks": 8.0, "anonymous": 4.0 * KIB}
"""What stays of each turn by mistake is more than one of these. A turn held as a whole, with the ids of 150 tokens, has
1.9 KB from malloc and 187 blocks of Python's; its end alone 16 blocks; a page or a snapshot of a state 100 KB and more.
Anonymous memory has what the allocators keep for later beside what is in use, in pieces of their own size."""
SLACK = {"in use": 0.5 * KIB * KIB, "blocks": 2000.0, "anonymous": 96.0 * KIB * KIB}
"""So much in all may come and go between measurements. glibc keeps up to 64 MiB of freed memory at the end of a heap:
twice the largest block that was freed, which is copied KV here, of at most 32 MiB."""
WHAT: dict[str, Callable[[Use], int]] = {
    "in use": lambda use: use.heap,
    "blocks": lambda use: use.blocks,
    "anonymous": lambda use: use.anonymous,
}


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one process: what grew, by how much from turn to turn and in all, over so many turns."""

    process: str
    what: str
    each: float
    turns: int
    measurements: int

    @property
    def total(self) -> float:
        return self.each * self.turns

    @property
    def is_known(self) -> bool:
        """Whether there are measurements enough for a line."""
        return self.measurements >= FEWEST

    @property
    def is_too_much(self) -> bool:
        """More than MOST from turn to turn, and more than SLACK in all, which comes and goes with the chats."""
        return self.is_known and self.each > MOST[self.what] and self.total > SLACK[self.what]

    def __str__(self) -> str:
        name = f"{self.process:<24} {self.what:<10}"
        if not self.is_known:
            return f"{name} not known: {self.measurements} measurements in the second half"
        unit = "blocks" if self.what == "blocks" else "bytes "
        return f"{name} {self.each:9.1f} {unit} a turn, {self.total:10,.0f} in {self.turns} turns"


def series_of(samples: Mapping[str, Sequence[Sample]]) -> dict[str, Series]:
    """The engine of each leg, and the app, which outlives them: its turns are counted through."""
    found: dict[str, Series] = {leg: [(each.turns, each.engine) for each in own] for leg, own in samples.items()}
    app: list[tuple[int, Use]] = []
    before = 0
    for own in samples.values():
        app += [(before + each.turns, each.app) for each in own]
        before = app[-1][0]
    return found | {"the app, in all of them": app}


def growth(series: Mapping[str, Series]) -> list[Growth]:
    """That of each process in the second half of its turns."""
    return [each for name, own in series.items() for each in _growth(name, second_half(own))]


def too_much(found: Iterable[Growth]) -> list[str]:
    """Sentences about what is more than it may be."""
    return [f"it grows: {each}" for each in found if each.is_too_much]


def unsteady(series: Mapping[str, Series]) -> list[str]:
    """File descriptors and threads that a process has in the second half, and had not in the first."""
    found = []
    for name, own in series.items():
        late = second_half(own)
        early = own[: len(own) - len(late)] or own[:1]
        for what in ("descriptors", "threads"):
            before, after = (max(getattr(use, what) for _, use in part) for part in (early, late))
            if after > before:
                found.append(f"{name}: {after} {what}, in the first half at most {before}")
    return found


def second_half(series: Series) -> Series:
    """What was measured in the second half of the turns."""
    middle = (series[0][0] + series[-1][0]) / 2
    return [(turns, use) for turns, use in series if turns >= middle]


def per_turn(values: Sequence[tuple[int, float]]) -> float:
    """How much a value grows from turn to turn, of pairs of turns and value: the median of the slopes between any two
    (Theil and Sen), which single outliers do not move. 0 for fewer than two."""
    slopes = [
        (late - early) / (after - before)
        for number, (before, early) in enumerate(values)
        for after, late in values[number + 1 :]
        if after > before
    ]
    return statistics.median(slopes) if slopes else 0.0


def _growth(name: str, series: Series) -> list[Growth]:
    turns = series[-1][0] - series[0][0]
    return [
        Growth(name, what, per_turn([(at, value(use)) for at, use in series]), turns, len(series))
        for what, value in WHAT.items()
    ]

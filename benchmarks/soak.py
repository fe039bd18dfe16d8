"""Many chats with real engines for as long as asked, at random, and whether anything grows, is lost or is left behind.

    python benchmarks/soak.py [--minutes 20] [--seed N] [--json]

Tiny random models of several architectures and the built-in one take turns, each in an engine process of its own.
Memory is told at the start, the quarters and the end of each; what it grows from turn to turn is that of the second
half. Exit code 1 when anything that must hold did not. Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests" / "ui"))
import tiny
from soak_campaign import Campaign, Leg
from soak_growth import Growth, growth, series_of, too_much, unsteady
from soak_measuring import Sample, Use
from soak_screen import Moment, ScreenSoak

from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

BUDGET = 24 << 20  # bytes of the page store: it evicts all the time
MIB = 1 << 20
At = TypeVar("At", Sample, Moment)
OF_EACH = ("MiB", "in use", "sqlite", "blocks", "fds", "thr")
COLUMNS = ("leg", "at", "turns", "s", "app:", *OF_EACH, "engine:", *OF_EACH, "chats", "pages")
OF_SCREEN = ("at", "turns", "s", *OF_EACH, "objects", "chats", "tasks")


def legs_in(folder: Path) -> list[Leg]:
    """Plain, with a window, hybrid, recurrent; two whose answers are compared with those of a fresh engine."""
    built_in = next(
        each.path for each in find_models(Paths.find({"KVCHAT_HOME": str(folder)})) if each.source == BUILT_IN
    )
    switching = ("f16", "q8_0", "q4_0")
    return [
        Leg("llama", tiny.build("llama", folder), switching, share=3),
        Leg("gemma3 (window)", tiny.build("gemma3", folder), switching, share=3),
        Leg("llama, exact", tiny.build("llama", folder, weights="q4_1", name="exact", seed=5), exact=True, share=3),
        Leg("jamba (hybrid)", tiny.build("jamba", folder), share=3),
        Leg("mamba (recurrent)", tiny.build("mamba", folder), share=3),
        Leg("SmolLM2, exact", built_in, exact=True, share=5, context=512, every=15),
    ]


@dataclass(frozen=True)
class Outcome:
    """What was measured by leg, and what came of it."""

    turns: int
    done: Mapping[str, int]
    table: Sequence[Sequence[str]]
    samples: Mapping[str, Sequence[Sample | Moment]]
    growth: Sequence[Growth]
    problems: Sequence[str]
    compared: Mapping[str, int]


def soak(folder: Path, minutes: float, rng: random.Random) -> Outcome:
    """Conversations and engines, without a screen."""
    legs = legs_in(folder)
    campaign = Campaign(folder, rng, legs, BUDGET)
    seconds = {leg.name: minutes * 60 * leg.share / sum(each.share for each in legs) for leg in legs}
    begun: dict[str, float] = {}

    def goes_on(leg: Leg, _turns: int) -> bool:
        return time.monotonic() - begun.setdefault(leg.name, time.monotonic()) < seconds[leg.name]

    campaign.run(goes_on)
    series = series_of(campaign.samples)
    found = growth(series)
    problems = [*campaign.problems, *too_much(found), *unsteady(series)]
    rows = [row for leg, samples in campaign.samples.items() for row in _rows(leg, samples)]
    return Outcome(
        campaign.turns, campaign.done, [COLUMNS, *rows], campaign.samples, found, problems, campaign.compared
    )


def soak_screen(folder: Path, minutes: float, rng: random.Random) -> Outcome:
    """The screen, without an engine."""
    end = time.monotonic() + minutes * 60
    screen = ScreenSoak(rng)
    screen.run(folder, lambda _: time.monotonic() < end)
    series = {"the screen": [(each.turns, each.use) for each in screen.moments]}
    found = growth(series)
    rows = [
        [
            *(at, str(each.turns), f"{each.seconds:.0f}", *_cells(each.use)),
            *(f"{each.objects:,}", str(each.conversations), str(each.tasks)),
        ]
        for at, each in quarters(screen.moments)
    ]
    problems = [*too_much(found), *unsteady(series)]
    return Outcome(screen.turns, screen.done, [OF_SCREEN, *rows], {"screen": screen.moments}, found, problems, {})


def quarters(samples: Sequence[At]) -> list[tuple[str, At]]:
    """The first, those nearest to the quarters of the turns, the last."""
    first, last = samples[0], samples[-1]
    found = []
    for number, name in enumerate(("start", "1/4", "1/2", "3/4", "end")):
        wanted = first.turns + (last.turns - first.turns) * number / 4
        found.append((name, min(samples, key=lambda sample: abs(sample.turns - wanted))))
    return found


def _rows(leg: str, samples: Sequence[Sample]) -> list[list[str]]:
    return [
        [
            *(leg, at, str(each.turns), f"{each.seconds:.0f}", "", *_cells(each.app), "", *_cells(each.engine)),
            *(f"{each.database / MIB:.1f}", f"{each.pages / MIB:.1f}"),
        ]
        for at, each in quarters(samples)
    ]


def _cells(use: Use) -> list[str]:
    sizes = (f"{size / MIB:.2f}" for size in (use.anonymous, use.heap, use.sqlite))
    return [*sizes, f"{use.blocks:,}", str(use.descriptors), str(use.threads)]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--screen", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        kind = soak_screen if given.screen else soak
        outcome = kind(Path(folder), given.minutes, random.Random(given.seed))  # noqa: S311
    seconds = time.monotonic() - start
    if given.json:
        print(json.dumps({"seed": given.seed, "seconds": seconds, **asdict(outcome)}))
        return 1 if outcome.problems else 0
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, 1 thread")
    print_table(outcome.table)
    print("\nMiB: anonymous memory. Growth in the second half, the median of the slopes between any two measurements:")
    for each in outcome.growth:
        print(f"  {each}")
    print(f"\n{outcome.turns} turns in {seconds:.0f} s (seed {given.seed}): {dict(outcome.done)}")
    print(f"against a fresh engine: {dict(outcome.compared)}; {len(outcome.problems)} problems")
    for line in outcome.problems:
        print(line)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())

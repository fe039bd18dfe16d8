"""What leaves a full context, by policy."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from kvchat.engine.overflow import BLOCK, MARGIN, SINKS, Evicting, Full, choose, runs
from kvchat.formats.past import Range, count, dead, joined, live

SYSTEM = (0, 20)


def full(**changes: object) -> Full:
    fields: dict[str, object] = {
        "length": 512,
        "holes": (),
        "cells": 512,
        "needed": 1,
        "kept": (SYSTEM,),
        "turns": ((20, 100), (100, 230), (230, 400)),
        "budget": 384,
    }
    return Full(**(fields | changes))  # type: ignore[arg-type]


def rising(ranges: Sequence[Range]) -> npt.NDArray[np.float32]:
    """The later a token, the larger the norm of its key."""
    return np.concatenate([np.arange(start, end, dtype=np.float32) for start, end in ranges])


def test_shift_drops_whole_turns_the_oldest_first() -> None:
    """A quarter of the context shall become free: 128 cells, so two turns."""
    assert choose("shift", full(), rising) == [(20, 230)]


def test_shift_goes_on_behind_what_is_gone() -> None:
    assert choose("shift", full(length=700, holes=((20, 230),)), rising) == [(230, 400)]


def test_shift_leaves_pinned_messages() -> None:
    found = choose("shift", full(kept=(SYSTEM, (60, 100)), turns=((20, 100), (100, 230))), rising)
    assert found == [(20, 60), (100, 230)]


def test_shift_has_nothing_to_drop_in_the_first_turn() -> None:
    assert choose("shift", full(turns=()), rising) == []


def test_sinks_drops_the_oldest_tokens_after_the_first_ones() -> None:
    assert choose("sinks", full(kept=((0, SINKS),)), rising) == [(SINKS, SINKS + 128)]
    assert choose("sinks", full(), rising) == [(20, 148)]


def test_sinks_makes_room_for_all_that_is_needed_and_keeps_a_window() -> None:
    assert choose("sinks", full(needed=200), rising) == [(20, 20 + 200 + MARGIN + BLOCK)]
    assert choose("sinks", full(needed=300), rising) == [(20, 384)]  # all but the last 128
    assert choose("sinks", full(needed=400), rising) == []  # 364 may go: the last 128 stay


def test_prune_lets_go_of_large_norms_down_to_its_budget() -> None:
    """512 + 1 - 384 = 129 tokens, the largest norms in front of the last 96 tokens, the window of a budget of 384."""
    assert choose("prune", full(), rising) == [(512 - 96 - 129, 512 - 96)]


@pytest.mark.parametrize("policy", ["sinks", "prune"])
@pytest.mark.parametrize("cells", [256, 384, 512, 4096])
@pytest.mark.parametrize("needed", [1, 16, 64])
def test_what_leaves_makes_room_for_a_block_behind_what_is_needed(policy: Evicting, cells: int, needed: int) -> None:
    """Then 64 tokens more can come before the next eviction, which is made MARGIN cells ahead of need."""
    case = full(length=cells - 20, cells=cells, needed=needed, budget=cells * 3 // 4)
    left = case.used - count(choose(policy, case, rising))
    assert cells - (left + needed) >= BLOCK + MARGIN


def test_ranges_of_scattered_tokens() -> None:
    assert runs(np.array([3, 4, 5, 9, 11, 12])) == [(3, 6), (9, 10), (11, 13)]


@pytest.mark.parametrize("policy", ["shift", "sinks", "prune"])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_chat_only_what_may_leave_leaves_and_it_is_enough(policy: Evicting, seed: int) -> None:
    rng = random.Random(seed)
    cells = rng.choice([256, 512, 4096])
    at, turns = 20, []
    while at < cells * 2:
        end = at + rng.randrange(5, cells // 3)
        turns.append((at, end))
        at = end
    length = at + rng.randrange(1, 40)
    holes = [(20, length - cells + rng.randrange(0, 20))]
    pinned = rng.choice(turns)
    case = full(
        length=length,
        holes=holes,
        cells=cells,
        needed=rng.randrange(1, cells // 3),
        kept=(SYSTEM, pinned),
        turns=tuple(turns),
        budget=rng.choice([cells // 2, cells]),
    )
    norms = {position: rng.random() for position in range(length)}
    found = choose(policy, case, lambda parts: np.array([norms[i] for s, e in parts for i in range(s, e)], np.float32))
    if not found:
        return
    assert found == joined(found)
    assert count(found) >= case.lacking
    for start, end in found:
        assert live(start, end, joined([*holes, SYSTEM, pinned])) == [(start, end)]
        assert end < length
    if policy != "shift":
        assert count(found) >= min(BLOCK, case.block)
    assert dead([], length) == []

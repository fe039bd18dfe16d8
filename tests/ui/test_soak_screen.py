"""The screen in use for a while: what `benchmarks/soak.py --screen` does for long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from soak_measuring import POSSIBLE
from soak_screen import ScreenSoak

TURNS, EVERY = 18, 6

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="it looks into /proc, and asks glibc")


def test_chats_that_were_left_are_gone(home: Path) -> None:
    """Whatever was pressed meanwhile, with a new chat on the screen there is nothing of the others."""
    soak = ScreenSoak(random.Random(4), EVERY)
    soak.run(home, lambda turns: turns < TURNS)
    first, *later = soak.moments
    assert len(later) == TURNS // EVERY
    assert {moment.conversations for moment in later} == {1}
    assert {moment.use.descriptors for moment in later} == {first.use.descriptors}
    assert max(moment.tasks for moment in later[1:]) <= later[0].tasks

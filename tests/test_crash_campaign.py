"""A few kills of the campaign that `benchmarks/crash.py` runs hundreds of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crash_campaign import Campaign

KILLS = 6


@pytest.mark.usefixtures("smollm2")
@pytest.mark.timeout(900)
def test_kills_lose_no_word(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, random.Random(7))
    campaign.run(KILLS)
    assert campaign.problems == []
    assert campaign.killed.total() == KILLS
    assert campaign.found["messages"] > 0

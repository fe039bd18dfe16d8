"""A few kills of the campaign that `benchmarks/crash.py` runs hundreds of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tiny
from crash_campaign import Campaign

SESSIONS = 4


@pytest.mark.usefixtures("smollm2")
@pytest.mark.timeout(900)
def test_kills_lose_no_word(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, random.Random(7), [tiny.build("llama", tmp_path)])
    campaign.run(SESSIONS)
    assert campaign.problems == []
    assert campaign.killed.total() >= SESSIONS // 2  # an engine that had not begun yet cannot be killed
    assert campaign.found["messages"] > 0

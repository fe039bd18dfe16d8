"""A fact in what never leaves the context is still known after ten evictions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).with_name("facts_probe.py")


@pytest.mark.parametrize("policy", ["shift", "sinks", "prune"])
def test_a_pinned_message_and_the_system_prompt_are_known_after_ten_evictions(
    tmp_path: Path, smollm2: Path, policy: str
) -> None:
    """Of two names each is the likelier one where it is asked for, so neither is just the likelier name."""
    command = [sys.executable, PROBE, tmp_path, policy, smollm2]
    told = json.loads(subprocess.run(command, check=True, timeout=200, capture_output=True).stdout)
    assert told["evictions"] >= 10
    assert told["tokens"] > 3 * 256
    assert all(score > 0 for score in told["scores"])

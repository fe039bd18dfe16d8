"""A draft model beside a chat that outgrows its context: what leaves the chat leaves it, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from altered import alter

PROBE = Path(__file__).with_name("draft_eviction_probe.py")


@pytest.fixture(scope="module", params=["sinks", "prune"])
def turns(request: pytest.FixtureRequest, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The built-in model's first layers, which draft for themselves: then all that is drafted is right, as long as both
    see the same."""
    folder = tmp_path_factory.mktemp("drafted")
    model = alter(smollm2, folder / "small.gguf", layers=6)
    command = [sys.executable, PROBE, folder / "kv", request.param, model, model]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_drafts_change_neither_what_is_said_nor_what_leaves(turns: list[dict[str, Any]]) -> None:
    assert sum(turn["evictions"] for turn in turns) >= 4
    assert all(turn["same"] for turn in turns)


def test_what_is_drafted_is_as_right_as_before(turns: list[dict[str, Any]]) -> None:
    for turn in turns:
        assert turn["note"] is None
        assert 0 < 0.9 * turn["proposed"] <= turn["accepted"]


def test_what_left_is_not_read_again(turns: list[dict[str, Any]]) -> None:
    """What is drafted and stands is read, too; so is, in the turn after, the end of the answer."""
    for turn in turns:
        assert turn["read"][1] <= turn["new"] + 1

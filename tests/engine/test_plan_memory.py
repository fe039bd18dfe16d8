"""The plan against real use: resident memory of a process whose context is full, weights, code and all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).with_name("plan_memory_probe.py")


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("context", [512, 8192])
def test_the_plan_is_right_within_five_percent(smollm2: Path, context: int, kind: str) -> None:
    assert_right(smollm2, context, kind)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_with_a_window_and_a_large_vocabulary(gemma3: Path, kind: str) -> None:
    assert_right(gemma3, 2048, kind)


def assert_right(model: Path, context: int, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, PROBE, model, str(context), kind], check=True, capture_output=True, text=True, timeout=280
    )
    told = json.loads(done.stdout)
    assert told["planned"] == pytest.approx(told["resident"], rel=0.05)

"""Turns together in which anything happens in any order: see `parallel_fuzz.py`, here with fixed seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import tiny

FUZZ = Path(__file__).with_name("parallel_fuzz.py")
KINDS = ("llama", "deepseek2", "gemma3", "mamba", "jamba")
SEEDS, STEPS = 3, 60


def test_records_and_cells_agree_whatever_happens(tmp_path: Path) -> None:
    models = [tiny.build(kind, tmp_path) for kind in KINDS]
    command = [sys.executable, FUZZ, tmp_path / "kv", str(SEEDS), str(STEPS), *models]
    done = subprocess.run(command, check=False, timeout=280, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == list(KINDS)
    total: Counter[str] = sum(map(Counter, told.values()), Counter())
    happened = ("together", "shared", "waited", "alternatives", "cancelled", "edited", "looked", "proved")
    assert all(total[what] for what in happened), total

"""Chats in which anything happens in any order: see `eviction_fuzz.py`, here with fixed seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import tiny

FUZZ = Path(__file__).with_name("eviction_fuzz.py")
KINDS = ["llama", "gemma3", "qwen3vl", "deepseek2"]
SHORT = {"short-llama": "llama", "short-gemma3": "gemma3"}
STEPS = 24


def test_cells_log_and_disk_agree_whatever_happens(tmp_path: Path) -> None:
    models = [tiny.build(kind, tmp_path) for kind in KINDS]
    models += [tiny.build(kind, tmp_path, name=name, context=800) for name, kind in SHORT.items()]
    command = [sys.executable, FUZZ, tmp_path / "kv", "3", str(STEPS), *models]
    done = subprocess.run(command, check=False, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == [*KINDS, *SHORT]
    total: Counter[str] = sum(map(Counter, told.values()), Counter())
    assert all(total[what] for what in ("evictions", "cancelled", "regenerate", "resume", "edit", "reopened alike"))

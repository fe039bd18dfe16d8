"""The measurement of flash attention and threads, and somebody who wants the engine meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tiny

PROBE = Path(__file__).with_name("tuning_probe.py")


def test_broken_off_between_two_contexts(tmp_path: Path) -> None:
    command = [sys.executable, PROBE, tiny.build("llama", tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.split() == ["2", "2"]  # without and with flash attention

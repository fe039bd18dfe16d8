"""A chat of several times its context, as benchmarks/overflow_chat.py has it, in a short form: no crash, no garbage,
and memory does not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "overflow_chat.py"


def told(*models: Path, **options: object) -> list[dict[str, Any]]:
    flags = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, BENCHMARK, *models, *flags, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_built_in_model_goes_on_almost_as_if_it_saw_all(smollm2: Path) -> None:
    """A model that has lost the beginning, or reads keys at the wrong positions, is nats off: without the first four
    tokens it is 0.6 nats worse (README)."""
    whole, line = told(smollm2, cells=256, tokens=500, types="q8_0", policies="sinks")
    assert whole["policy"] == "all"
    assert line["tokens"] == whole["tokens"] > 200
    assert line["nll"] < whole["nll"] + 0.4
    assert line["evictions"] >= 3


@pytest.mark.parametrize("name", ["llama", "llama96", "stablelm128"])
def test_heads_of_any_size_and_partial_rope(name: str, tmp_path: Path) -> None:
    """A random model says noise, and so it does after evictions: log(512) is 6.2 nats."""
    lines = told(tiny.build(name, tmp_path), cells=256, tokens=1500, types="q4_0")
    for line in lines[1:]:
        assert line["evictions"] > 10
        assert line["grown"] < 4  # MiB, since the second one
        assert abs(line["nll"] - lines[0]["nll"]) < 0.2

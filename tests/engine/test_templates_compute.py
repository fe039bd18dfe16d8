"""Seventy real chat templates on a real engine: with append history, a turn computes only what is new."""

import json
import subprocess
import sys
from pathlib import Path

import tiny

HERE = Path(__file__).parent
TEMPLATES = HERE.parent / "data" / "templates"


def test_ten_turns_compute_only_new_tokens(tmp_path):
    model = tiny.build("llama", tmp_path)
    command = [sys.executable, HERE / "templates_probe.py", model, TEMPLATES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 70
    refused = {name: row for name, row in rows.items() if isinstance(row, str)}
    assert refused == {}
    for name, turns in rows.items():
        for number, (tokens, reused, new, past) in enumerate(turns):
            assert tokens == past + new, name
            # all of the past is in the cells but the reply's last token, which was sampled and not decoded
            assert reused == (past - 1 if number else 0), (name, number)

"""llama.cpp's memory of every kind: what is refused leaves nothing behind, and a cut is what it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import geometry

PROBE = Path(__file__).with_name("memory_probe.py")
PLAIN = ("llama", "mqa", "qwen3vl", "deepseek2")
WINDOWED = ("gemma3", "gemma4", "gpt-oss", "llama4")
RECURRENT = ("mamba", "mamba2", "rwkv7", "jamba", "granitehybrid", "falcon-h1", "kimi-linear", "qwen3next")
ROLLING_BACK = ("lfm2", "qwen35", "nemotron_h")
KINDS = (*PLAIN, *WINDOWED, *RECURRENT, *ROLLING_BACK, "lfm2swa")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_leaves_nothing_and_cuts_are_right(tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    other = tiny.build("mamba" if kind == "deepseek2" else "deepseek2", tmp_path)
    command = [sys.executable, PROBE, model, other]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    told = json.loads(done.stdout)
    assert told["cut"] == 40
    assert told["other model"] == 1
    assert ("other type" in told) == bool(geometry(read_header(model)).cache)
    assert told.get("append", 0) == (40 if kind in PLAIN else 0)
    assert told.get("rewind", 0) == (0 if kind in (*PLAIN, *WINDOWED) else 40)
    if kind in ROLLING_BACK:
        assert told["back"] == [1, 3, 8]  # of a batch of 12, with eight states kept
    elif kind in RECURRENT or kind == "lfm2swa":
        assert told["back"] == []
    else:
        assert told["back"] == [1, 3, 8, 11, 12, 40]
    assert told["spoilt"] == ([2, 5, 8, 9, 40] if "rewind" in told else [])

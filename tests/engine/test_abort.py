"""A decode is broken off by a flag that native code reads and by a question to Python, unless it must be whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tiny

BROKEN_OFF = """
import sys
from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Aborted, Context
from kvchat.engine.interrupt import Flag
from kvchat.engine.model import Model

llama.start(lambda text, error: None)
config = EngineConfig(sys.argv[1], context=512, threads=1, extra_buffers=False)
flag, asked = Flag(), []
question = {"flag": flag, "python": lambda: bool(asked.append(1)) or flag()}[sys.argv[2]]
context = Context(Model(config, lambda fraction: True), config, question)

def told(position, *, whole=False):
    try:
        context.decode([5] * 8, position, output=True, whole=whole)
    except Aborted:
        return "broken off"
    return "computed"

said = [told(0)]
for turn in range(2):
    flag.set(True)
    said.append(told(8))
    flag.set(False)
flag.set(True)
said.append(told(8, whole=True))
said.append(told(16))
flag.set(False)
said.append(told(16))
assert bool(asked) == (sys.argv[2] == "python")
print(*said, sep=", ")
"""


@pytest.mark.parametrize("question", ["flag", "python"])
def test_a_decode_is_broken_off(tmp_path: Path, question: str) -> None:
    command = [sys.executable, "-c", BROKEN_OFF, str(tiny.build("llama", tmp_path)), question]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    said = ["computed", "broken off", "broken off", "computed", "broken off", "computed"]
    assert done.stdout.strip().split(", ") == said

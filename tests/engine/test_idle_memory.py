"""An engine from which nothing is wanted for a while gives back what the C library keeps of the memory it freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED = """
from pathlib import Path
from kvchat.engine.llama import give_memory_back

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {key: int(rest.split()[0]) for key, rest in (line.split(":") for line in lines)}["Anonymous"] >> 10

pieces = [bytearray(100_000) for _ in range(1_000)]
del pieces[:-1]  # the last one is the end of the heap, which keeps all before it
before = anonymous()
give_memory_back()
print(before - anonymous())
"""

WAITS = """
import queue
from kvchat.engine import llama, process

given = []
engine = process.EngineProcess(None)
inbox = engine._inbox
process.IDLE = 0.01

def give():
    given.append(1)
    inbox.put(None)

llama.give_memory_back = give
inbox.put("at once")
assert engine._next(wait=True, at_most=None) == "at once" and not given
assert engine._next(wait=False, at_most=None) is None and not given
try:
    engine._next(wait=True, at_most=0.01)
except queue.Empty:
    assert not given
assert engine._next(wait=True, at_most=None) is None and given == [1]
print("fine")
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps nothing, or cannot be asked")
def test_freed_memory_goes_back() -> None:
    assert int(run(FREED)) > 80  # of 100 MB


def test_it_goes_back_when_nothing_is_wanted_and_not_before() -> None:
    assert run(WAITS) == "fine"

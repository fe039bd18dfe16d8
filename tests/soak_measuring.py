"""What a process has of the machine, and whether that grows.

`anonymous` is memory that no file backs: heap, stacks, the cells of a context. It goes up and down with what the C
library keeps of what was freed, so what is in use is counted beside it, where the process itself can tell: bytes that
`malloc` has given out and not got back (to ggml and numpy, too), what of it SQLite has, whose caches fill up to 2 MB a
connection, and blocks of Python's own allocator.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

KIB = 1024
PATIENCE = 60.0  # seconds that a process may take to tell of its heap
POSSIBLE = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallinfo2")
FOLDER = "SOAK_FOLDER"  # environment variable: where an engine writes what it has in use
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


@dataclass(frozen=True, slots=True)
class Use:
    """`anonymous`, `pss`, `heap` and `sqlite` in bytes; `heap`, `sqlite` and `blocks` are in use, see the module."""

    anonymous: int
    pss: int
    heap: int
    sqlite: int
    blocks: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """After so many turns of a leg and seconds of all, with nothing going on: the app's side, the engine, and what lies
    on disk."""

    turns: int
    seconds: float
    app: Use
    engine: Use
    database: int
    pages: int


def in_use() -> tuple[int, int, int]:
    """Of this process: bytes from malloc without those of SQLite, these, and blocks of Python's allocator. Garbage is
    collected first."""
    gc.collect()
    told = ctypes.CDLL(None).mallinfo2
    told.restype = _Mallinfo
    of_sqlite = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    of_sqlite.restype = ctypes.c_int64
    found, sqlite = told(), of_sqlite()
    return found.uordblks + found.hblkhd - sqlite, sqlite, sys.getallocatedblocks()


def own_use() -> Use:
    """What this process has. Threads that only wait for a moment to pass end by themselves and do not count."""
    found = _use(os.getpid(), *in_use())
    waiting = sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    return replace(found, threads=found.threads - waiting)


def engine_use(pid: int, folder: Path) -> Use:
    """What an engine has that was started by `soak_engine.py`, asked while it waits for a command."""
    file = folder / f"{pid}.json"
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"engine {pid} does not tell what it has in use")
        time.sleep(0.005)
    return _use(pid, *json.loads(file.read_text()))


def answer_signals() -> None:
    """Have this process write what it has in use whenever `engine_use` asks for it."""
    folder = Path(os.environ[FOLDER])

    def tell(_number: int, _frame: object) -> None:
        unfinished = folder / f"{os.getpid()}.unfinished"
        unfinished.write_text(json.dumps(in_use()))
        unfinished.replace(folder / f"{os.getpid()}.json")

    signal.signal(signal.SIGUSR1, tell)


def _use(pid: int, heap: int, sqlite: int, blocks: int) -> Use:
    process = Path(f"/proc/{pid}")
    lines = (process / "smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * KIB for line in lines if line.endswith(" kB")}
    threads = len(list((process / "task").iterdir()))
    descriptors = 0
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            link.readlink()
            descriptors += 1
    return Use(sizes["Anonymous"], sizes["Pss"], heap, sqlite, blocks, descriptors, threads)


def children() -> set[int]:
    """Process ids of all below this one that are not gone, those that wait to be reaped too."""
    return {int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}

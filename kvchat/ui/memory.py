"""The memory that a model could have: what is free, and what the running engine gives back. Owns that reading.

Linux tells both. Elsewhere, and where a GPU does the work, it is not known, and nobody is asked or warned.
"""

from __future__ import annotations

from pathlib import Path

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.machine import built_for_gpu, free_memory

_PRIVATE = "RssAnon:"


def memory_for_engine(config: EngineConfig, ready: Ready | None, pid: int | None) -> Memory:
    """Free memory for an engine in place of the one that was asked for `config`, reported `ready` and runs as process
    `pid`; None: none does."""
    on_gpu = built_for_gpu() if ready is None else ready.cache.gpu_layers > 0
    free = free_memory()
    if free is None or (on_gpu and config.gpu_layers != 0):
        return Memory()
    return Memory(ram=free + (private_memory(pid) if pid is not None else 0))


def private_memory(pid: int) -> int:
    """Bytes that come back when the process ends and that nobody else has: its cache, its computations, and weights
    that are not mapped from the file. 0 where it is not told."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE)), 0)

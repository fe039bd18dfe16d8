"""On what and with what a benchmark ran: machine, versions, model, context. Owns the names of these facts in JSON.

Must not measure.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kvchat
from kvchat import machine
from kvchat.backend.protocol import Ready
from kvchat.bench.wanted import Wanted, pair_name

Facts = dict[str, Any]


def machine_facts() -> Facts:
    """This machine, and the programs on it."""
    return {
        "cpu": machine.processor(),
        "cpu_features": list(machine.features()),
        "cores_physical": machine.physical_cores(),
        "cores_logical": machine.logical_cores(),
        "ram_bytes": machine.total_memory(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "kvchat": kvchat.__version__,
        "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
    }


def setup_facts(ready: Ready, wanted: Wanted, flags: Mapping[str, Any]) -> Facts:
    """All of it. `flags`: settings that are not at their default, by their names."""
    model, cache = ready.model, ready.cache
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": machine_facts(),
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "attention": model.attention,
            "fingerprint": model.fingerprint,
            "bytes": _size(model.path),
            "context_trained": model.context_trained,
            "adapters": list(model.adapters),
            "draft": ready.draft.name if ready.draft is not None else None,
        },
        "engine": {
            "context": cache.context,
            "threads": cache.threads,
            "flash_attention": cache.flash_attention,
            "gpu_layers": cache.gpu_layers,
            "extra_buffers": cache.extra_buffers,
            "notes": list(ready.notes),
        },
        "wanted": {
            "parts": list(wanted.parts),
            "cache_types": [pair_name(pair) for pair in wanted.pairs],
            "threads": list(wanted.threads),
            "depths": list(wanted.depths) if wanted.depths is not None else None,
            "rounds": wanted.rounds,
            "quick": wanted.quick,
        },
        "flags": dict(flags),
        "load_average": load_average(),
    }


def load_average() -> float | None:
    """Programs that wanted a processor in the last minute, on average; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except OSError:
        return None

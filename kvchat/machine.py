"""What this machine has: processor, cores, memory. Owns the reading of the system's own files; chooses nothing.

Linux tells all of it in /proc and /sys; elsewhere what is not told is None or empty.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")
_CPU_INFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/proc/meminfo")
# The instruction sets that llama.cpp has kernels for, as Linux spells them.
_FEATURES = (
    "avx",
    "avx2",
    "f16c",
    "fma",
    "avx512",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx",
    "asimd",
    "sve",
    "i8mm",
)


def processor() -> str:
    """The name of the CPU, for a person."""
    return _cpu_info().get("model name") or platform.processor() or platform.machine()


def features() -> tuple[str, ...]:
    """Instruction sets that matter here; "amx" and "avx512" where there is any part of them."""
    info = _cpu_info()
    flags = (info.get("flags") or info.get("Features") or "").split()
    families = {"amx" for flag in flags if flag.startswith("amx_")} | {"avx512" for flag in flags if flag == "avx512f"}
    return tuple(name for name in _FEATURES if name in families or name in flags)


def logical_cores() -> int:
    """Hardware threads that this process may use."""
    return len(_usable())


def physical_cores() -> int:
    """Physical cores that this process may use: siblings of one core count once, a cgroup quota counts whole cores."""
    cores = {_core_of(cpu) for cpu in _usable()}
    return max(1, min(len(cores), _quota(len(cores))))


def total_memory() -> int | None:
    """Bytes of RAM."""
    return _memory("MemTotal")


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping."""
    return _memory("MemAvailable")


def _usable() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _core_of(cpu: int) -> tuple[str, str]:
    topology = _CPU / f"cpu{cpu}" / "topology"
    try:
        package = (topology / "physical_package_id").read_text().strip()
        return package, (topology / "core_id").read_text().strip()
    except OSError:
        return "", str(cpu)


def _quota(default: int) -> int:
    try:
        limit, period = _QUOTA.read_text().split()
    except (OSError, ValueError):
        return default
    return default if limit == "max" else max(1, int(limit) // int(period))


def _cpu_info() -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor."""
    try:
        lines = _CPU_INFO.read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _memory(name: str) -> int | None:
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)

"""What this machine has: processor, cores, memory. Owns the reading of the system's own files; chooses nothing.

Linux tells all of it in /proc and /sys; elsewhere what is not told is None or empty. Free VRAM is asked of `nvidia-smi`
where the installed llama.cpp has CUDA; other GPUs do not tell without llama.cpp.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")
_CPU_INFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/proc/meminfo")
_GPU_LIBRARIES = ("cuda", "hip", "metal", "musa", "sycl", "vulkan")
_SMI = ("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits")
_SMI_SECONDS = 5
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


def built_for_gpu(*names: str) -> bool:
    """Whether the installed llama.cpp was built for a GPU of one of these kinds, or of any, which is all that can be
    told without loading it."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = [Path(folder) / "lib" for folder in (spec.submodule_search_locations or ())] if spec else []
    kinds = names or _GPU_LIBRARIES
    return any(next(folder.glob(f"*ggml-{kind}*"), None) for folder in folders for kind in kinds)


def free_vram() -> int | None:
    """Bytes on all GPUs that the engine can use; None: there are none, or it is not known. Takes a moment."""
    if not built_for_gpu("cuda"):
        return None
    try:
        asked = subprocess.run(_SMI, capture_output=True, text=True, check=True, timeout=_SMI_SECONDS)
        return sum(int(line) for line in asked.stdout.split()) << 20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


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

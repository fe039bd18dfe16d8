"""Whether a machine can do what was asked of it: devices, memory that is not swapped out. Owns the words for what it
cannot. Must not change what was asked."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from kvchat.backend.values import UNMET, EngineConfig, Hardware
from kvchat.engine.llama import has_gpu, lock_was_refused
from kvchat.engine.llama_devices import gpus
from kvchat.errors import KvchatError

_DEVICES = "`kvchat doctor` lists the devices"


def check_placement(hardware: Hardware) -> None:
    """Before a model is loaded. KvchatError for devices that are not there, on a machine with others; without any,
    `placement_notes` says so."""
    wanted = max(hardware.main_gpu + 1, len(hardware.tensor_split))
    if not wanted or not has_gpu():
        return
    there = gpus()
    if hardware.main_gpu >= there:
        raise KvchatError(f"there is no GPU {hardware.main_gpu}: llama.cpp finds {there}, from 0", _DEVICES)
    if len(hardware.tensor_split) > there:
        shares = ",".join(f"{share:g}" for share in hardware.tensor_split)
        raise KvchatError(f"the tensor split {shares} is for more GPUs than llama.cpp finds, {there}", _DEVICES)


def placement_notes(config: EngineConfig) -> Iterator[str]:
    """After a model is loaded: sentences about what was asked and has no effect."""
    yield from (f"{UNMET}: {what}" for what in _unmet(config))


def _unmet(config: EngineConfig) -> Iterator[str]:
    hardware = config.hardware
    if not has_gpu():
        named = [name for name, asked in _of_gpus(config) if asked]
        if named:
            verb = "has" if len(named) == 1 else "have"
            yield f"{' and '.join(named)} {verb} no effect, as this build of llama.cpp uses no GPU (see kvchat doctor)"
    elif hardware.main_gpu >= 0 and hardware.split_mode == "layer" and gpus() > 1:
        yield "the main GPU has no effect with split mode layer; with none it has everything"
    elif hardware.tensor_split and hardware.split_mode == "none":
        yield "the tensor split has no effect with split mode none"
    if hardware.mlock and lock_was_refused():
        yield f"the weights are not all locked in memory, as the system {_allowed()}"


def _of_gpus(config: EngineConfig) -> Iterator[tuple[str, bool]]:
    hardware = config.hardware
    yield "the number of layers on a GPU", config.gpu_layers > 0
    yield "the main GPU", hardware.main_gpu >= 0
    yield "the split mode", hardware.split_mode != "layer"
    yield "the tensor split", bool(hardware.tensor_split)
    yield "where the cache lies", not hardware.kv_offload


def _allowed() -> str:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return "has not enough memory for that"
    return f"allows {limit / 2**20:,.0f} MiB (`ulimit -l`, RLIMIT_MEMLOCK)"

"""What a person asks of llama.cpp beyond the usual, as its parameters: placement, memory, positions, adapters.

One of the modules that import llama_cpp or ctypes, see `llama`. Owns the translation; must not check whether it makes
sense for a model, and loads nothing but adapters, which belong to the model that they were loaded for and are freed
with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib

from kvchat.backend.values import Hardware, Rope

SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
}
ROPE_SCALINGS = {
    None: lib.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
    "none": lib.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": lib.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": lib.LLAMA_ROPE_SCALING_TYPE_YARN,
}
_LOAD_MODES = {
    (True, True): lib.LLAMA_LOAD_MODE_MMAP_MLOCK,
    (True, False): lib.LLAMA_LOAD_MODE_MMAP,
    (False, True): lib.LLAMA_LOAD_MODE_MLOCK,
    (False, False): lib.LLAMA_LOAD_MODE_NONE,
}


def place_model(params: Any, hardware: Hardware) -> None:
    """Fill the parameters of a model. What is left open stays as llama.cpp has it."""
    if (hardware.mmap, hardware.mlock) != (True, False):
        params.load_mode = _LOAD_MODES[hardware.mmap, hardware.mlock]
    params.split_mode = SPLIT_MODES[hardware.split_mode]
    params.main_gpu = max(0, hardware.main_gpu)
    if hardware.tensor_split:
        shares = (ctypes.c_float * lib.llama_max_devices())(*hardware.tensor_split[: lib.llama_max_devices()])
        params.tensor_split = shares  # the structure keeps the array, and llama.cpp copies it


def place_context(params: Any, hardware: Hardware, rope: Rope) -> None:
    """Fill the parameters of a context whose `n_batch` and `n_threads` are there."""
    params.n_ubatch = min(hardware.ubatch or params.n_batch, params.n_batch)
    params.n_threads_batch = hardware.threads_batch or params.n_threads
    params.offload_kqv = hardware.kv_offload
    params.rope_scaling_type = ROPE_SCALINGS[rope.scaling]
    for field, value in (
        ("rope_freq_base", rope.freq_base),
        ("rope_freq_scale", rope.freq_scale),
        ("yarn_orig_ctx", rope.yarn_orig_ctx),
        ("yarn_ext_factor", rope.yarn_ext_factor),
        ("yarn_attn_factor", rope.yarn_attn_factor),
        ("yarn_beta_slow", rope.yarn_beta_slow),
        ("yarn_beta_fast", rope.yarn_beta_fast),
    ):
        if value is not None:
            setattr(params, field, value)


class NativeAdapters:
    """LoRA adapters of one model, each with its scale."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._scales: list[float] = []

    def load(self, model: Any, path: str, scale: float) -> None:
        """Before a context of the model is made. Raises ValueError when llama.cpp refuses."""
        handle = lib.llama_adapter_lora_init(model, path.encode())
        if not handle:
            raise ValueError(path)
        self._handles.append(handle)
        self._scales.append(scale)

    def apply(self, context: Any) -> None:
        """Let all of them act in a context."""
        if not self._handles:
            return
        count = len(self._handles)
        handles = (lib.llama_adapter_lora_p_ctypes * count)(*self._handles)
        if lib.llama_set_adapters_lora(context, handles, count, _floats(self._scales)) != 0:
            raise ValueError("llama.cpp could not set the adapters")


def _floats(values: Sequence[float]) -> Any:
    return (ctypes.c_float * len(values))(*values)

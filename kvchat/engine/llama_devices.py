"""The devices that ggml's backends offer, and what the build can do, as ggml itself says.

One of the modules that import llama_cpp or ctypes, see `llama`. Owns the way to ggml's registry; loads no model.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as lib
from llama_cpp import _ggml

from kvchat.backend.inspection import Build, Device

_KINDS = {0: "CPU", 1: "GPU", 2: "integrated GPU", 3: "accelerator", 4: "group"}  # enum ggml_backend_dev_type


def build() -> Build:
    """Ask all backends, which takes a moment where one must start a driver."""
    return Build(
        devices=tuple(_devices()),
        features=_text(lib.llama_print_system_info()),
        offloads=bool(lib.llama_supports_gpu_offload()),
        most_devices=int(lib.llama_max_devices()),
        mmap=bool(lib.llama_supports_mmap()),
        mlock=bool(lib.llama_supports_mlock()),
    )


def gpus() -> int:
    """Devices over which a model can be split."""
    return sum(device.kind in ("GPU", "integrated GPU") for device in _devices())


def _devices() -> list[Device]:
    ggml = _registry()
    return [_device(ggml, ggml.ggml_backend_dev_get(index)) for index in range(ggml.ggml_backend_dev_count())]


def _device(ggml: Any, handle: Any) -> Device:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=_text(ggml.ggml_backend_dev_name(handle)),
        backend=_text(ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(handle))),
        description=_text(ggml.ggml_backend_dev_description(handle)),
        kind=_KINDS.get(ggml.ggml_backend_dev_type(handle), "other"),
        free_bytes=free.value,
        total_bytes=total.value,
    )


def _registry() -> Any:
    ggml = _ggml.libggml
    for name, result, arguments in (
        ("ggml_backend_dev_count", ctypes.c_size_t, ()),
        ("ggml_backend_dev_get", ctypes.c_void_p, (ctypes.c_size_t,)),
        ("ggml_backend_dev_name", ctypes.c_char_p, (ctypes.c_void_p,)),
        ("ggml_backend_dev_description", ctypes.c_char_p, (ctypes.c_void_p,)),
        ("ggml_backend_dev_type", ctypes.c_int, (ctypes.c_void_p,)),
        ("ggml_backend_dev_backend_reg", ctypes.c_void_p, (ctypes.c_void_p,)),
        ("ggml_backend_reg_name", ctypes.c_char_p, (ctypes.c_void_p,)),
        ("ggml_backend_dev_memory", None, (ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2)),
    ):
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace").strip()

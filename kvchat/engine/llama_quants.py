"""ggml's own conversions between the types of a cache and float32.

One of the modules that import llama_cpp or ctypes, see `llama`. Owns the way to the functions; must not know rows,
rotations or pages. They are pure: any thread may call them, and no model is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from kvchat.errors import KvchatError
from kvchat.formats.ggml import GGML_NUMBERS, type_named
from kvchat.kv.transcode import Bytes, Floats

_Convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Traits(ctypes.Structure):
    """struct ggml_type_traits (ggml.h)."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", _Convert),
        ("from_float_ref", _Convert),
    )


class _CpuTraits(ctypes.Structure):
    """The beginning of struct ggml_type_traits_cpu (ggml-cpu.h)."""

    _fields_ = (("from_float", _Convert),)


class NativeQuants:
    """Rows of a ggml type <-> float32, as llama.cpp itself writes and reads them (see `kv.transcode.Quants`)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}

    def decode(self, type_name: str, raw: Bytes, out: Floats) -> None:
        """Fill `out`, float32 (n,), from n elements of the type, uint8. Raises KvchatError for a type without."""
        self._functions(type_name, raw, out)[0](raw.ctypes.data, out.ctypes.data, out.size)

    def encode(self, type_name: str, values: Floats, out: Bytes) -> None:
        """Fill `out`, uint8, with n elements of the type, from float32 (n,). Raises KvchatError for a type without."""
        self._functions(type_name, out, values)[1](values.ctypes.data, out.ctypes.data, values.size)

    def _functions(self, type_name: str, raw: Bytes, floats: Floats) -> tuple[Callable[..., Any], Callable[..., Any]]:
        kind = type_named(type_name)
        if raw.nbytes * kind.block != floats.size * kind.bytes or floats.dtype != np.float32:
            raise ValueError(f"{raw.nbytes} bytes of {type_name} are not {floats.size} elements")
        if not (raw.flags.c_contiguous and floats.flags.c_contiguous):
            raise ValueError("the rows are not contiguous")
        if type_name not in self._known:
            self._known[type_name] = _find(type_name)
        return self._known[type_name]


def _find(type_name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """To float and from float. The one of the CPU's backend is what fills a cache there, and up to ten times as fast;
    where backends are loaded as plugins it cannot be reached, and ggml's reference gives the same but for rounding."""
    number = GGML_NUMBERS[type_name]
    library = lib._lib  # ggml's functions lie beside llama.cpp's, and nobody binds them
    library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
    traits = library.ggml_get_type_traits(number).contents
    if traits.type_name != type_name.encode() or not (traits.to_float and traits.from_float_ref):
        raise KvchatError(f"this build of ggml cannot convert {type_name}", "use the cache type f16")
    read, write = traits.to_float, traits.from_float_ref
    if hasattr(library, "ggml_get_type_traits_cpu"):
        library.ggml_cpu_init()  # fills its tables once
        library.ggml_get_type_traits_cpu.restype = ctypes.POINTER(_CpuTraits)
        write = library.ggml_get_type_traits_cpu(number).contents.from_float or write
        if type_name == "f16":
            read = _Convert(("ggml_cpu_fp16_to_fp32", library))
    return read, write

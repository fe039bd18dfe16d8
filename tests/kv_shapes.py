"""Headers of models that need no file, and the geometry of one."""

from __future__ import annotations

from typing import Any

from kvchat.formats.gguf import Array, GgufHeader, Number, Value
from kvchat.kv.geometry import Geometry, geometry


def header(architecture: str, **values: Value | list[Number]) -> GgufHeader:
    """A header with these keys of the architecture; `__` stands for a dot. Lists become arrays."""
    defaults: dict[str, Any] = {"context_length": 4096, "embedding_length": 2048}
    metadata: dict[str, Value] = {}
    for key, value in {**defaults, **values}.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        metadata[name] = Array("int32", len(value), tuple(value)) if isinstance(value, list) else value
    return GgufHeader(3, architecture, metadata, (), 0, 0, 0)


def shape(architecture: str, layers: int, heads: Any, kv_heads: Any, size: int, **values: Any) -> Geometry:
    attention = {"attention__head_count": heads, "attention__head_count_kv": kv_heads}
    sizes = {"attention__key_length": size, "attention__value_length": size} if size else {}
    return geometry(header(architecture, block_count=layers, **attention, **sizes, **values))

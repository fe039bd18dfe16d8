"""What must be equal for saved KV to be valid here. Owns the mapping from model and context to a page namespace."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from kvchat.backend.values import EngineConfig
from kvchat.engine.context import Context
from kvchat.engine.llama import package_version
from kvchat.engine.model import Model
from kvchat.formats.gguf import model_name
from kvchat.kv.geometry import Geometry
from kvchat.kv.namespace import Namespace


def page_namespace(model: Model, cells: int, config: EngineConfig) -> Namespace:
    """The namespace of pages that a context of so many cells writes and may read."""
    return Namespace(
        fingerprint=model.fingerprint,
        model=model_name(model.path),
        lora=model.adapters.identity,
        rope=(("factors", _rope_factors(model, cells)), *model.rope.identity),
        type_k=config.type_k,
        type_v=config.type_v,
        rotation=rotates(model.geometry, config.type_k, config.type_v),
        backend_version=package_version(),
    )


def saved_namespace(model: Model, cells: int, config: EngineConfig) -> Namespace:
    """The namespace in which pages of such a context are saved: its own, but for the cache types on disk."""
    own = page_namespace(model, cells, config)
    type_k, type_v = model.geometry.saved_types(own.type_k, own.type_v, config.kv_type_disk)
    return replace(own, type_k=type_k, type_v=type_v, rotation=rotates(model.geometry, type_k, type_v))


def page_labels(context: Context) -> dict[str, str]:
    """What may differ between pages of one namespace, kept for the curious."""
    return {
        "flash_attention": "on" if context.flash else "off",
        "threads": str(context.threads),
        "backend": "gpu" if context.on_gpu else "cpu",
    }


def _rope_factors(model: Model, cells: int) -> str:
    """Long or short factors, as llama.cpp picks them by the context size (llama-model.cpp, get_rope_factors)."""
    if not any(tensor.name == "rope_factors_long.weight" for tensor in model.header.tensors):
        return "fixed"
    arch = model.header.architecture
    original = model.header.get(f"{arch}.rope.scaling.original_context_length", 0)
    trained = original if isinstance(original, int) and original else model.geometry.context_trained
    return "long" if cells > trained else "short"


def rotates(geometry: Geometry, type_k: str, type_v: str) -> bool:
    """Whether llama.cpp rotates quantized rows: where the heads allow it, unless its own variable forbids it
    (llama-kv-cache.cpp)."""
    digits = re.match(r"\s*[+-]?\d+", os.environ.get("LLAMA_ATTN_ROT_DISABLE", ""))  # as atoi reads it
    forbidden = digits is not None and int(digits.group()) != 0
    return any(geometry.rotated(type_k, type_v)) and not forbidden

"""What must be equal for saved KV to be valid here. Owns the mapping from model and context to a page namespace."""

from __future__ import annotations

import os
import re

from kvchat.backend.values import EngineConfig
from kvchat.engine.context import Context
from kvchat.engine.llama import package_version
from kvchat.engine.model import Model
from kvchat.kv.namespace import Namespace


def page_namespace(model: Model, cells: int, config: EngineConfig) -> Namespace:
    """The namespace of pages that a context of so many cells writes and may read."""
    return Namespace(
        fingerprint=model.fingerprint,
        model=model.path.stem,
        lora="",
        rope=(("factors", _rope_factors(model, cells)),),
        type_k=config.type_k,
        type_v=config.type_v,
        rotation=_rotation(model, config),
        backend_version=package_version(),
    )


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


def _rotation(model: Model, config: EngineConfig) -> bool:
    """Whether llama.cpp rotates quantized rows: where the heads allow it, unless its own variable forbids it
    (llama-kv-cache.cpp)."""
    digits = re.match(r"\s*[+-]?\d+", os.environ.get("LLAMA_ATTN_ROT_DISABLE", ""))  # as atoi reads it
    forbidden = digits is not None and int(digits.group()) != 0
    return any(model.geometry.rotated(config.type_k, config.type_v)) and not forbidden

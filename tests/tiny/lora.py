"""Tiny LoRA adapters for any model, and models into which one is merged: what an adapter must come to."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from kvchat.formats.gguf import read_header

TARGETS = ("attn_q", "attn_k", "attn_v", "ffn_down")


def factors(
    model: Path, *, rank: int = 4, seed: int = 1, size: float = 0.1, targets: Sequence[str] = TARGETS
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A, float32 (rank, inputs), and B, float32 (outputs, rank), of each matrix of these kinds."""
    source = np.random.default_rng(seed)
    found = {}
    for tensor in read_header(model).tensors:
        if any(f".{target}.weight" in tensor.name for target in targets):
            inputs, outputs = tensor.shape
            a, b = source.normal(0, size, (rank, inputs)), source.normal(0, size, (outputs, rank))
            found[tensor.name] = a.astype(np.float32), b.astype(np.float32)
    assert found
    return found


def write(
    path: Path,
    pairs: dict[str, tuple[np.ndarray, np.ndarray]],
    *,
    architecture: str = "llama",
    alpha: float = 8.0,
    kind: str = "lora",
    invocation: Sequence[int] = (),
) -> Path:
    """As llama.cpp's converter writes an adapter."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", alpha)
    if invocation:
        writer.add_key_value(
            "adapter.alora.invocation_tokens",
            list(invocation),
            gguf.GGUFValueType.ARRAY,
            sub_type=gguf.GGUFValueType.UINT32,
        )
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def merge(
    model: Path, target: Path, pairs: dict[str, tuple[np.ndarray, np.ndarray]], *, alpha: float, scale: float
) -> Path:
    """A copy of a float32 model with W + scale * alpha / rank * B A in the place of W."""
    shutil.copy(model, target)
    header = read_header(model)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    for name, (a, b) in pairs.items():
        tensor = tensors[name]
        assert tensor.type.name == "f32"
        where = {"dtype": np.float32, "offset": header.data_offset + tensor.offset, "shape": b.shape[:1] + a.shape[1:]}
        weights = np.memmap(target, mode="r+", **where)
        weights += scale * alpha / len(a) * (b.astype(np.float64) @ a.astype(np.float64))
        weights.flush()
    return target

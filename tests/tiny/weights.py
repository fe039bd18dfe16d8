"""Puts random tensors into a file, and the pieces that many architectures share: attention, feed-forward, head sizes.

Source of names and shapes: `load_arch_tensors` of each model in llama.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf import quants
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tiny import Spec

Floats = NDArray[np.float32]


class Weights:
    """Puts tensors into a file: matrices in the wanted type, vectors and small ones in f32."""

    def __init__(self, writer: gguf.GGUFWriter, kind: str, random: np.random.Generator) -> None:
        self.writer = writer
        self._kind = gguf.GGMLQuantizationType[kind.upper()]
        self._random = random

    def matrix(self, *shape: int, scale: float | None = None) -> Floats:
        """Normal numbers; by default such that a product keeps the size of its input."""
        factor = shape[-1] ** -0.5 if scale is None else scale
        return (self._random.standard_normal(shape) * factor).astype(np.float32)

    def put(self, name: str, data: Floats) -> None:
        """A matrix, stored in the wanted type."""
        self.writer.add_tensor(name, quants.quantize(data, self._kind), raw_dtype=self._kind)

    def add(self, name: str, *shape: int, scale: float | None = None) -> None:
        self.put(name, self.matrix(*shape, scale=scale))

    def add_f32(self, name: str, data: Floats) -> None:
        self.writer.add_tensor(name, np.ascontiguousarray(data, np.float32))

    def ones(self, name: str, *shape: int) -> None:
        self.add_f32(name, np.ones(shape, np.float32))

    def zeros(self, name: str, *shape: int) -> None:
        self.add_f32(name, np.zeros(shape, np.float32))

    def bias(self, name: str, *shape: int) -> None:
        self.add_f32(name, self.matrix(*shape, scale=0.1))


def head_lengths(weights: Weights, spec: Spec) -> None:
    """Head size and the part of it that is rotated."""
    weights.writer.add_key_length(spec.head_size)
    weights.writer.add_value_length(spec.head_size)
    weights.writer.add_rope_dimension_count(spec.rotary or spec.head_size)


def kv_heads(spec: Spec) -> list[int]:
    """KV heads of each layer that has tensors: draft layers have none."""
    every = [spec.kv_heads] * spec.layers if isinstance(spec.kv_heads, int) else list(spec.kv_heads)
    return every[: spec.layers - spec.draft_layers]


def attention(weights: Weights, spec: Spec, prefix: str, count: int, *, gated: bool = False) -> None:
    """Projections of a layer with so many KV heads. `gated`: Q brings a gate of its own size."""
    rows = spec.heads * spec.head_size
    weights.add(prefix + "attn_q.weight", rows * 2 if gated else rows, spec.width)
    weights.add(prefix + "attn_k.weight", count * spec.head_size, spec.width)
    weights.add(prefix + "attn_v.weight", count * spec.head_size, spec.width)
    weights.add(prefix + "attn_output.weight", spec.width, rows)


def qkv_biases(weights: Weights, spec: Spec, prefix: str, count: int) -> None:
    weights.bias(prefix + "attn_q.bias", spec.heads * spec.head_size)
    weights.bias(prefix + "attn_k.bias", count * spec.head_size)
    weights.bias(prefix + "attn_v.bias", count * spec.head_size)


def head_norms(weights: Weights, spec: Spec, prefix: str) -> None:
    """Norms of Q and K inside each head."""
    weights.ones(prefix + "attn_q_norm.weight", spec.head_size)
    weights.ones(prefix + "attn_k_norm.weight", spec.head_size)


def feed_forward(weights: Weights, spec: Spec, prefix: str) -> None:
    """The gated feed-forward part and the norm before it."""
    weights.ones(prefix + "ffn_norm.weight", spec.width)
    feed_forward_matrices(weights, spec, prefix)


def feed_forward_matrices(weights: Weights, spec: Spec, prefix: str, suffix: str = "") -> None:
    size = spec.hidden
    weights.add(f"{prefix}ffn_gate{suffix}.weight", size, spec.width)
    weights.add(f"{prefix}ffn_up{suffix}.weight", size, spec.width)
    weights.add(f"{prefix}ffn_down{suffix}.weight", spec.width, size)

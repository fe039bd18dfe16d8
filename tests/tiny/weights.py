"""The tensors that each architecture wants, filled with random numbers. Source: `load_arch_tensors` in llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf import quants
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tiny import Spec

Floats = NDArray[np.float32]
STATE, TIME_RANK, KERNEL, SHORT_CACHE = 16, 16, 4, 3


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

    def ones(self, name: str, size: int) -> None:
        self.add_f32(name, np.ones(size, np.float32))

    def zeros(self, name: str, size: int) -> None:
        self.add_f32(name, np.zeros(size, np.float32))


def _attention(weights: Weights, spec: Spec, prefix: str, kv_heads: int) -> None:
    rows = spec.heads * spec.head_size
    weights.add(prefix + "attn_q.weight", rows, spec.width)
    weights.add(prefix + "attn_k.weight", kv_heads * spec.head_size, spec.width)
    weights.add(prefix + "attn_v.weight", kv_heads * spec.head_size, spec.width)
    weights.add(prefix + "attn_output.weight", spec.width, rows)


def _feed_forward(weights: Weights, spec: Spec, prefix: str) -> None:
    weights.ones(prefix + "ffn_norm.weight", spec.width)
    weights.add(prefix + "ffn_gate.weight", spec.feed_forward, spec.width)
    weights.add(prefix + "ffn_up.weight", spec.feed_forward, spec.width)
    weights.add(prefix + "ffn_down.weight", spec.width, spec.feed_forward)


def _head_lengths(weights: Weights, spec: Spec, rotary: int) -> None:
    weights.writer.add_key_length(spec.head_size)
    weights.writer.add_value_length(spec.head_size)
    weights.writer.add_rope_dimension_count(rotary or spec.head_size)


def _kv_heads(spec: Spec) -> list[int]:
    return [spec.kv_heads] * spec.layers if isinstance(spec.kv_heads, int) else list(spec.kv_heads)


def _llama(weights: Weights, spec: Spec) -> None:
    _head_lengths(weights, spec, 0)
    weights.ones("output_norm.weight", spec.width)
    for layer, kv_heads in enumerate(_kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        _attention(weights, spec, prefix, kv_heads)
        _feed_forward(weights, spec, prefix)


def _gemma3(weights: Weights, spec: Spec) -> None:
    _llama(weights, spec)
    for layer in range(spec.layers):
        prefix = f"blk.{layer}."
        for name, size in (
            ("attn_q_norm", spec.head_size),
            ("attn_k_norm", spec.head_size),
            ("post_attention_norm", spec.width),
            ("post_ffw_norm", spec.width),
        ):
            weights.ones(f"{prefix}{name}.weight", size)


def _stablelm(weights: Weights, spec: Spec) -> None:
    _head_lengths(weights, spec, spec.rotary)
    weights.writer.add_layer_norm_eps(1e-5)
    weights.writer.add_parallel_residual(False)
    weights.ones("output_norm.weight", spec.width)
    weights.zeros("output_norm.bias", spec.width)
    for layer, kv_heads in enumerate(_kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        weights.zeros(prefix + "attn_norm.bias", spec.width)
        _attention(weights, spec, prefix, kv_heads)
        _feed_forward(weights, spec, prefix)
        weights.zeros(prefix + "ffn_norm.bias", spec.width)


def _state_space(weights: Weights, spec: Spec) -> None:
    writer = weights.writer
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(2 * spec.width)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(TIME_RANK)


def _mamba_layer(weights: Weights, spec: Spec, prefix: str) -> None:
    inner = 2 * spec.width
    decay = -np.tile(np.arange(1, STATE + 1, dtype=np.float32) * 0.05, (inner, 1))
    weights.ones(prefix + "attn_norm.weight", spec.width)
    weights.add(prefix + "ssm_in.weight", 2 * inner, spec.width)
    weights.add_f32(prefix + "ssm_conv1d.weight", weights.matrix(inner, KERNEL))
    weights.add_f32(prefix + "ssm_conv1d.bias", weights.matrix(inner, scale=0.1))
    weights.add(prefix + "ssm_x.weight", TIME_RANK + 2 * STATE, inner)
    weights.add_f32(prefix + "ssm_dt.weight", weights.matrix(inner, TIME_RANK))
    weights.add_f32(prefix + "ssm_dt.bias", weights.matrix(inner, scale=0.1))
    weights.add_f32(prefix + "ssm_a", decay)
    weights.ones(prefix + "ssm_d", inner)
    weights.add(prefix + "ssm_out.weight", spec.width, inner)


def _mamba(weights: Weights, spec: Spec) -> None:
    _state_space(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer in range(spec.layers):
        _mamba_layer(weights, spec, f"blk.{layer}.")


def _jamba(weights: Weights, spec: Spec) -> None:
    _state_space(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, kv_heads in enumerate(_kv_heads(spec)):
        prefix = f"blk.{layer}."
        if kv_heads:
            weights.ones(prefix + "attn_norm.weight", spec.width)
            _attention(weights, spec, prefix, kv_heads)
        else:
            _mamba_layer(weights, spec, prefix)
            for name, size in (("ssm_dt_norm", TIME_RANK), ("ssm_b_norm", STATE), ("ssm_c_norm", STATE)):
                weights.ones(f"{prefix}{name}.weight", size)
        _feed_forward(weights, spec, prefix)


def _lfm2(weights: Weights, spec: Spec) -> None:
    weights.writer.add_uint32("lfm2.shortconv.l_cache", SHORT_CACHE)
    weights.ones("token_embd_norm.weight", spec.width)
    for layer, kv_heads in enumerate(_kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        if kv_heads:
            weights.ones(prefix + "attn_q_norm.weight", spec.head_size)
            weights.ones(prefix + "attn_k_norm.weight", spec.head_size)
            _attention(weights, spec, prefix, kv_heads)
        else:
            weights.add_f32(prefix + "shortconv.conv.weight", weights.matrix(spec.width, SHORT_CACHE))
            weights.add(prefix + "shortconv.in_proj.weight", 3 * spec.width, spec.width)
            weights.add(prefix + "shortconv.out_proj.weight", spec.width, spec.width)
        _feed_forward(weights, spec, prefix)


def _deepseek2(weights: Weights, spec: Spec) -> None:
    """MLA without experts. The cache holds, per token, the latent and the rotated part: `lora + rope` elements of K."""
    writer, head = weights.writer, spec.nope + spec.rope
    writer.add_key_length(spec.lora + spec.rope)
    writer.add_value_length(spec.lora)
    writer.add_key_length_mla(head)
    writer.add_value_length_mla(spec.nope)
    writer.add_rope_dimension_count(spec.rope)
    writer.add_q_lora_rank(spec.lora)
    writer.add_kv_lora_rank(spec.lora)
    writer.add_leading_dense_block_count(spec.layers)
    writer.add_expert_feed_forward_length(spec.feed_forward)
    writer.add_expert_shared_count(0)
    weights.ones("output_norm.weight", spec.width)
    for layer in range(spec.layers):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        weights.ones(prefix + "attn_q_a_norm.weight", spec.lora)
        weights.ones(prefix + "attn_kv_a_norm.weight", spec.lora)
        weights.add(prefix + "attn_q_a.weight", spec.lora, spec.width)
        weights.add(prefix + "attn_q_b.weight", spec.heads * head, spec.lora)
        weights.add(prefix + "attn_kv_a_mqa.weight", spec.lora + spec.rope, spec.width)
        weights.add(prefix + "attn_k_b.weight", spec.heads, spec.lora, spec.nope)
        weights.add(prefix + "attn_v_b.weight", spec.heads, spec.nope, spec.lora)
        weights.add(prefix + "attn_output.weight", spec.width, spec.heads * spec.nope)
        _feed_forward(weights, spec, prefix)


TENSORS: dict[str, Callable[[Weights, Spec], None]] = {
    "llama": _llama,
    "gemma3": _gemma3,
    "stablelm": _stablelm,
    "mamba": _mamba,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "deepseek2": _deepseek2,
}

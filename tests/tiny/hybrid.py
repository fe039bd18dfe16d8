"""Models that mix attention with recurrent layers: jamba, lfm2, granitehybrid, falcon-h1, nemotron_h, qwen35, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

from tiny.attention import mla_attention, mla_header
from tiny.experts import experts, experts_header, shared_expert
from tiny.recurrent import KERNEL, STATE, TIME_RANK, mamba2_header, mamba2_mixer, mamba_header, mamba_layer
from tiny.weights import Weights, attention, feed_forward, feed_forward_matrices, head_lengths, head_norms, kv_heads

if TYPE_CHECKING:
    from tiny import Spec

SHORT_CACHE = 3
DELTA_HEAD, DELTA_KEYS, DELTA_VALUES = 64, 1, 2  # gated delta net: head size, heads of K and of V
INTERVAL = 4  # of so many layers the last attends


def jamba(weights: Weights, spec: Spec) -> None:
    mamba_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        if count:
            weights.ones(prefix + "attn_norm.weight", spec.width)
            attention(weights, spec, prefix, count)
        else:
            mamba_layer(weights, spec, prefix)
            for name, size in (("ssm_dt_norm", TIME_RANK), ("ssm_b_norm", STATE), ("ssm_c_norm", STATE)):
                weights.ones(f"{prefix}{name}.weight", size)
        feed_forward(weights, spec, prefix)


def lfm2(weights: Weights, spec: Spec) -> None:
    weights.writer.add_shortconv_l_cache(SHORT_CACHE)
    weights.ones("token_embd_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        if count:
            head_norms(weights, spec, prefix)
            attention(weights, spec, prefix, count)
        else:
            weights.add_f32(prefix + "shortconv.conv.weight", weights.matrix(spec.width, SHORT_CACHE))
            weights.add(prefix + "shortconv.in_proj.weight", 3 * spec.width, spec.width)
            weights.add(prefix + "shortconv.out_proj.weight", spec.width, spec.width)
        feed_forward(weights, spec, prefix)


def granitehybrid(weights: Weights, spec: Spec) -> None:
    head_lengths(weights, spec)
    mamba2_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        if count:
            attention(weights, spec, prefix, count)
        else:
            mamba2_mixer(weights, spec, prefix)
        feed_forward(weights, spec, prefix)


def falcon_h1(weights: Weights, spec: Spec) -> None:
    """Attention and mamba2 side by side in every layer."""
    head_lengths(weights, spec)
    mamba2_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        attention(weights, spec, prefix, count)
        mamba2_mixer(weights, spec, prefix)
        weights.ones(prefix + "ffn_norm", spec.width)
        feed_forward_matrices(weights, spec, prefix)


def nemotron_h(weights: Weights, spec: Spec) -> None:
    """A layer is one thing only: attention, mamba2, or feed-forward."""
    head_lengths(weights, spec)
    mamba2_header(weights, spec)
    weights.writer.add_layer_norm_eps(1e-5)
    weights.ones("output_norm.weight", spec.width)
    assert isinstance(spec.feed_forward, tuple)
    for layer, (count, hidden) in enumerate(zip(kv_heads(spec), spec.feed_forward, strict=True)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        if hidden:
            weights.add(prefix + "ffn_up.weight", hidden, spec.width)
            weights.add(prefix + "ffn_down.weight", spec.width, hidden)
        elif count:
            attention(weights, spec, prefix, count)
        else:
            mamba2_mixer(weights, spec, prefix)


def kimi_linear(weights: Weights, spec: Spec) -> None:
    """Latent attention, without compressed queries, and delta nets with a gate for each channel."""
    mla_header(weights, spec)
    experts_header(weights, spec)
    writer = weights.writer
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_kda_head_dim(spec.head_size)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        if count:
            mla_attention(weights, spec, prefix, compressed=False)
        else:
            _channel_delta_net(weights, spec, prefix)
        weights.ones(prefix + "ffn_norm.weight", spec.width)
        if layer:
            experts(weights, spec, prefix)
            shared_expert(weights, spec, prefix)
            weights.zeros(prefix + "exp_probs_b.bias", spec.experts)
        else:
            feed_forward_matrices(weights, spec, prefix)


def _channel_delta_net(weights: Weights, spec: Spec, prefix: str) -> None:
    inner = spec.heads * spec.head_size
    decay = -np.linspace(0.05, 0.5, spec.heads, dtype=np.float32)[:, None]
    weights.ones(prefix + "attn_norm.weight", spec.width)
    attention(weights, spec, prefix, spec.heads)
    for name in "qkv":
        weights.add_f32(f"{prefix}ssm_conv1d_{name}.weight", weights.matrix(inner, 1, KERNEL))
    for name in ("ssm_f", "ssm_g"):
        weights.add(f"{prefix}{name}_a.weight", spec.head_size, spec.width)
        weights.add(f"{prefix}{name}_b.weight", inner, spec.head_size)
    weights.add(prefix + "ssm_beta.weight", spec.heads, spec.width)
    weights.add_f32(prefix + "ssm_a", decay)
    weights.bias(prefix + "ssm_dt.bias", inner)
    weights.ones(prefix + "ssm_norm.weight", spec.head_size)


def qwen35(weights: Weights, spec: Spec) -> None:
    weights.writer.add_rope_dimension_sections(list(spec.sections))
    _delta_header(weights, spec)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _mixer(weights, spec, layer, count)
        if layer % INTERVAL != INTERVAL - 1:
            for name in ("ssm_alpha", "ssm_beta"):
                weights.add(f"{prefix}{name}.weight", DELTA_VALUES, spec.width)
        feed_forward_matrices(weights, spec, prefix)


def qwen3next(weights: Weights, spec: Spec) -> None:
    _delta_header(weights, spec)
    experts_header(weights, spec)
    weights.writer.add_expert_shared_feed_forward_length(spec.hidden)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _mixer(weights, spec, layer, count)
        if layer % INTERVAL != INTERVAL - 1:
            weights.add(prefix + "ssm_ba.weight", 2 * DELTA_VALUES, spec.width)
        experts(weights, spec, prefix)
        shared_expert(weights, spec, prefix)
        weights.add_f32(prefix + "ffn_gate_inp_shexp.weight", weights.matrix(spec.width))


def _delta_header(weights: Weights, spec: Spec) -> None:
    writer = weights.writer
    head_lengths(weights, spec)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(DELTA_VALUES * DELTA_HEAD)
    writer.add_ssm_state_size(DELTA_HEAD)
    writer.add_ssm_time_step_rank(DELTA_VALUES)
    writer.add_ssm_group_count(DELTA_KEYS)
    weights.ones("output_norm.weight", spec.width)


def _mixer(weights: Weights, spec: Spec, layer: int, count: int) -> None:
    """Gated attention in every fourth layer, a gated delta net in the others."""
    prefix = f"blk.{layer}."
    weights.ones(prefix + "attn_norm.weight", spec.width)
    weights.ones(prefix + "post_attention_norm.weight", spec.width)
    if layer % INTERVAL == INTERVAL - 1:
        attention(weights, spec, prefix, count, gated=True)
        head_norms(weights, spec, prefix)
        return
    values = DELTA_VALUES * DELTA_HEAD
    mixed = 2 * DELTA_KEYS * DELTA_HEAD + values
    weights.add(prefix + "attn_qkv.weight", mixed, spec.width)
    weights.add(prefix + "attn_gate.weight", values, spec.width)
    weights.add_f32(prefix + "ssm_conv1d.weight", weights.matrix(mixed, KERNEL))
    weights.bias(prefix + "ssm_dt.bias", DELTA_VALUES)
    weights.add_f32(prefix + "ssm_a", -np.linspace(0.05, 0.5, DELTA_VALUES, dtype=np.float32))
    weights.ones(prefix + "ssm_norm.weight", DELTA_HEAD)
    weights.add(prefix + "ssm_out.weight", spec.width, values)

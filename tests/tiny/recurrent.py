"""Models without attention: mamba, mamba2, rwkv7; and their layers, which hybrid models use too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tiny.weights import Weights

if TYPE_CHECKING:
    from tiny import Spec

STATE, TIME_RANK, KERNEL = 16, 16, 4
SSM_STATE, SSM_HEADS, SSM_GROUPS = 32, 4, 1
RANK = 32  # of rwkv7's small matrices


def mamba_header(weights: Weights, spec: Spec) -> None:
    writer = weights.writer
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(2 * spec.width)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(TIME_RANK)


def mamba_layer(weights: Weights, spec: Spec, prefix: str) -> None:
    inner = 2 * spec.width
    decay = -np.tile(np.arange(1, STATE + 1, dtype=np.float32) * 0.05, (inner, 1))
    weights.ones(prefix + "attn_norm.weight", spec.width)
    weights.add(prefix + "ssm_in.weight", 2 * inner, spec.width)
    weights.add_f32(prefix + "ssm_conv1d.weight", weights.matrix(inner, KERNEL))
    weights.bias(prefix + "ssm_conv1d.bias", inner)
    weights.add(prefix + "ssm_x.weight", TIME_RANK + 2 * STATE, inner)
    weights.add_f32(prefix + "ssm_dt.weight", weights.matrix(inner, TIME_RANK))
    weights.bias(prefix + "ssm_dt.bias", inner)
    weights.add_f32(prefix + "ssm_a", decay)
    weights.ones(prefix + "ssm_d", inner)
    weights.add(prefix + "ssm_out.weight", spec.width, inner)


def mamba(weights: Weights, spec: Spec) -> None:
    mamba_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer in range(spec.layers):
        mamba_layer(weights, spec, f"blk.{layer}.")


def mamba2_header(weights: Weights, spec: Spec) -> None:
    writer = weights.writer
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(2 * spec.width)
    writer.add_ssm_state_size(SSM_STATE)
    writer.add_ssm_time_step_rank(SSM_HEADS)
    writer.add_ssm_group_count(SSM_GROUPS)


def mamba2_mixer(weights: Weights, spec: Spec, prefix: str) -> None:
    """The layer without the norm before it."""
    inner = 2 * spec.width
    mixed = inner + 2 * SSM_GROUPS * SSM_STATE
    decay = -np.linspace(0.05, 0.5, SSM_HEADS, dtype=np.float32)[:, None]
    weights.add(prefix + "ssm_in.weight", inner + mixed + SSM_HEADS, spec.width)
    weights.add_f32(prefix + "ssm_conv1d.weight", weights.matrix(mixed, KERNEL))
    weights.bias(prefix + "ssm_conv1d.bias", mixed)
    weights.bias(prefix + "ssm_dt.bias", SSM_HEADS)
    weights.add_f32(prefix + "ssm_a", decay)
    weights.ones(prefix + "ssm_d", SSM_HEADS, 1)
    weights.ones(prefix + "ssm_norm.weight", SSM_GROUPS, inner // SSM_GROUPS)
    weights.add(prefix + "ssm_out.weight", spec.width, inner)


def mamba2(weights: Weights, spec: Spec) -> None:
    mamba2_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer in range(spec.layers):
        weights.ones(f"blk.{layer}.attn_norm.weight", spec.width)
        mamba2_mixer(weights, spec, f"blk.{layer}.")


def rwkv7(weights: Weights, spec: Spec) -> None:
    writer = weights.writer
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(spec.head_size)
    writer.add_decay_lora_rank(RANK)
    writer.add_iclr_lora_rank(RANK)
    writer.add_value_residual_mix_lora_rank(RANK)
    writer.add_gate_lora_rank(RANK)
    _norm(weights, "token_embd_norm", spec.width)
    _norm(weights, "output_norm", spec.width)
    for layer in range(spec.layers):
        prefix = f"blk.{layer}."
        _norm(weights, prefix + "attn_norm", spec.width)
        _norm(weights, prefix + "attn_norm_2", spec.width)
        _time_mix(weights, spec, prefix)
        _channel_mix(weights, spec, prefix)


def _norm(weights: Weights, name: str, size: int) -> None:
    weights.ones(name + ".weight", size)
    weights.zeros(name + ".bias", size)


def _time_mix(weights: Weights, spec: Spec, prefix: str) -> None:
    width, prefix = spec.width, prefix + "time_mix_"
    for name, start in (("w", -2.0), ("a", 0.0), ("v", 0.0)):
        weights.add_f32(f"{prefix}{name}0.weight", weights.matrix(width, scale=0.1) + np.float32(start))
    for name in "wavg":
        weights.add(f"{prefix}{name}1.weight", RANK, width)
        weights.add(f"{prefix}{name}2.weight", width, RANK)
    weights.add_f32(prefix + "lerp_fused.weight", np.full((6, 1, 1, width), 0.5, np.float32))
    for name in ("k_k", "k_a"):
        weights.ones(f"{prefix}{name}.weight", width)
    weights.bias(prefix + "r_k.weight", width)
    for name in ("key", "value", "receptance", "output"):
        weights.add(f"{prefix}{name}.weight", width, width)
    _norm(weights, prefix + "ln", width)


def _channel_mix(weights: Weights, spec: Spec, prefix: str) -> None:
    weights.add_f32(prefix + "channel_mix_lerp_k.weight", np.full((1, 1, spec.width), 0.5, np.float32))
    weights.add(prefix + "channel_mix_key.weight", spec.hidden, spec.width)
    weights.add(prefix + "channel_mix_value.weight", spec.width, spec.hidden)

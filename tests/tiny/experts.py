"""Models with experts: mixtral, qwen3moe, gpt-oss, llama4, glm4moe, deepseek2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny.attention import llama, mla_attention, mla_header
from tiny.weights import (
    Weights,
    attention,
    feed_forward,
    feed_forward_matrices,
    head_lengths,
    head_norms,
    kv_heads,
    qkv_biases,
)

if TYPE_CHECKING:
    from tiny import Spec

USED = 2  # experts that each token goes through


def experts_header(weights: Weights, spec: Spec) -> None:
    weights.writer.add_expert_feed_forward_length(spec.hidden)
    if spec.experts:
        weights.writer.add_expert_count(spec.experts)
        weights.writer.add_expert_used_count(USED)


def experts(weights: Weights, spec: Spec, prefix: str) -> None:
    """The router and the matrices of all experts."""
    size = spec.hidden
    weights.add_f32(prefix + "ffn_gate_inp.weight", weights.matrix(spec.experts, spec.width))
    weights.add(prefix + "ffn_gate_exps.weight", spec.experts, size, spec.width)
    weights.add(prefix + "ffn_up_exps.weight", spec.experts, size, spec.width)
    weights.add(prefix + "ffn_down_exps.weight", spec.experts, spec.width, size)


def shared_expert(weights: Weights, spec: Spec, prefix: str) -> None:
    """The expert that every token goes through."""
    feed_forward_matrices(weights, spec, prefix, "_shexp")


def _attending_layer(weights: Weights, spec: Spec, prefix: str, count: int) -> None:
    weights.ones(prefix + "attn_norm.weight", spec.width)
    attention(weights, spec, prefix, count)


def llama_or_mixtral(weights: Weights, spec: Spec) -> None:
    if not spec.experts:
        llama(weights, spec)
        return
    head_lengths(weights, spec)
    experts_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _attending_layer(weights, spec, prefix, count)
        weights.ones(prefix + "ffn_norm.weight", spec.width)
        experts(weights, spec, prefix)


def qwen3moe(weights: Weights, spec: Spec) -> None:
    llama_or_mixtral(weights, spec)
    for layer in range(spec.layers):
        head_norms(weights, spec, f"blk.{layer}.")


def gpt_oss(weights: Weights, spec: Spec) -> None:
    """Attention sinks: one more logit per head that takes attention away and gives nothing."""
    head_lengths(weights, spec)
    experts_header(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _attending_layer(weights, spec, prefix, count)
        qkv_biases(weights, spec, prefix, count)
        weights.bias(prefix + "attn_output.bias", spec.width)
        weights.bias(prefix + "attn_sinks.weight", spec.heads)
        weights.ones(prefix + "post_attention_norm.weight", spec.width)
        experts(weights, spec, prefix)
        weights.bias(prefix + "ffn_gate_inp.bias", spec.experts)
        weights.bias(prefix + "ffn_gate_exps.bias", spec.experts, spec.hidden)
        weights.bias(prefix + "ffn_up_exps.bias", spec.experts, spec.hidden)
        weights.bias(prefix + "ffn_down_exps.bias", spec.experts, spec.width)


def llama4(weights: Weights, spec: Spec) -> None:
    """Every second layer has experts. llama.cpp looks back over chunks of 8,192 tokens, whatever the file says."""
    head_lengths(weights, spec)
    experts_header(weights, spec)
    weights.writer.add_interleave_moe_layer_step(2)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _attending_layer(weights, spec, prefix, count)
        if layer % 2:
            weights.ones(prefix + "ffn_norm.weight", spec.width)
            experts(weights, spec, prefix)
            shared_expert(weights, spec, prefix)
        else:
            feed_forward(weights, spec, prefix)


def glm4moe(weights: Weights, spec: Spec) -> None:
    """The first layer is dense; the last ones, which draft, are in the header only."""
    head_lengths(weights, spec)
    experts_header(weights, spec)
    weights.writer.add_expert_shared_count(1)
    weights.writer.add_leading_dense_block_count(1)
    weights.writer.add_nextn_predict_layers(spec.draft_layers)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        _attending_layer(weights, spec, prefix, count)
        qkv_biases(weights, spec, prefix, count)
        weights.ones(prefix + "post_attention_norm.weight", spec.width)
        if layer:
            experts(weights, spec, prefix)
            shared_expert(weights, spec, prefix)
            weights.zeros(prefix + "exp_probs_b.bias", spec.experts)
        else:
            feed_forward_matrices(weights, spec, prefix)


def deepseek2(weights: Weights, spec: Spec) -> None:
    """Multi-head latent attention. The first layer is dense; the others have experts if there are any."""
    dense = 1 if spec.experts else spec.layers
    mla_header(weights, spec)
    experts_header(weights, spec)
    weights.writer.add_leading_dense_block_count(dense)
    weights.writer.add_expert_shared_count(1 if spec.experts else 0)
    weights.ones("output_norm.weight", spec.width)
    for layer in range(spec.layers):
        prefix = f"blk.{layer}."
        mla_attention(weights, spec, prefix)
        weights.ones(prefix + "ffn_norm.weight", spec.width)
        if layer < dense:
            feed_forward_matrices(weights, spec, prefix)
        else:
            experts(weights, spec, prefix)
            shared_expert(weights, spec, prefix)

"""Models whose layers all attend, without experts: llama, phi3, qwen, glm4, gemma, cohere2, stablelm; and
multi-head latent attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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


def llama(weights: Weights, spec: Spec) -> None:
    head_lengths(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        attention(weights, spec, prefix, count)
        feed_forward(weights, spec, prefix)


def qwen2(weights: Weights, spec: Spec) -> None:
    llama(weights, spec)
    for layer, count in enumerate(kv_heads(spec)):
        qkv_biases(weights, spec, f"blk.{layer}.", count)


def qwen3(weights: Weights, spec: Spec) -> None:
    llama(weights, spec)
    for layer in range(spec.layers):
        head_norms(weights, spec, f"blk.{layer}.")


def qwen3vl(weights: Weights, spec: Spec) -> None:
    """The text part alone: positions of four numbers each, all equal for text."""
    weights.writer.add_rope_dimension_sections(list(spec.sections))
    qwen3(weights, spec)


def phi3(weights: Weights, spec: Spec) -> None:
    """Q, K and V in one matrix, gate and up in another."""
    head_lengths(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        weights.add(prefix + "attn_qkv.weight", (spec.heads + 2 * count) * spec.head_size, spec.width)
        weights.add(prefix + "attn_output.weight", spec.width, spec.heads * spec.head_size)
        _feed_forward_in_one(weights, spec, prefix)


def _feed_forward_in_one(weights: Weights, spec: Spec, prefix: str) -> None:
    weights.ones(prefix + "ffn_norm.weight", spec.width)
    weights.add(prefix + "ffn_up.weight", 2 * spec.hidden, spec.width)
    weights.add(prefix + "ffn_down.weight", spec.width, spec.hidden)


def _post_norms(weights: Weights, spec: Spec, prefix: str) -> None:
    weights.ones(prefix + "post_attention_norm.weight", spec.width)
    weights.ones(prefix + "post_ffw_norm.weight", spec.width)


def glm4(weights: Weights, spec: Spec) -> None:
    head_lengths(weights, spec)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        attention(weights, spec, prefix, count)
        qkv_biases(weights, spec, prefix, count)
        _feed_forward_in_one(weights, spec, prefix)
        _post_norms(weights, spec, prefix)


def gemma2(weights: Weights, spec: Spec) -> None:
    llama(weights, spec)
    weights.writer.add_attn_logit_softcapping(50.0)
    weights.writer.add_final_logit_softcapping(30.0)
    for layer in range(spec.layers):
        _post_norms(weights, spec, f"blk.{layer}.")


def gemma3(weights: Weights, spec: Spec) -> None:
    llama(weights, spec)
    for layer in range(spec.layers):
        head_norms(weights, spec, f"blk.{layer}.")
        _post_norms(weights, spec, f"blk.{layer}.")


def gemma4(weights: Weights, spec: Spec) -> None:
    """Full layers have heads twice as large as window layers; the last two use the cache of the two before them."""
    writer, small = weights.writer, replace(spec, head_size=spec.head_size // 2)
    head_lengths(weights, spec)
    writer.add_key_length_swa(small.head_size)
    writer.add_value_length_swa(small.head_size)
    writer.add_rope_dimension_count_swa(small.head_size)
    writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(spec.layers)])
    writer.add_shared_kv_layers(2)
    writer.add_embedding_length_per_layer_input(0)
    weights.ones("output_norm.weight", spec.width)
    weights.ones("rope_freqs.weight", spec.head_size // 2)
    for layer, count in enumerate(kv_heads(spec)):
        prefix, sized = f"blk.{layer}.", spec if layer % 2 else small
        weights.ones(prefix + "attn_norm.weight", spec.width)
        attention(weights, sized, prefix, count)
        head_norms(weights, sized, prefix)
        feed_forward(weights, spec, prefix)
        _post_norms(weights, spec, prefix)


def cohere2(weights: Weights, spec: Spec) -> None:
    """Attention and feed-forward side by side, after one norm; full layers without positions."""
    head_lengths(weights, spec)
    weights.writer.add_layer_norm_eps(1e-5)
    weights.writer.add_logit_scale(1.0)
    weights.ones("output_norm.weight", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        attention(weights, spec, prefix, count)
        feed_forward_matrices(weights, spec, prefix)


def stablelm(weights: Weights, spec: Spec) -> None:
    head_lengths(weights, spec)
    weights.writer.add_layer_norm_eps(1e-5)
    weights.writer.add_parallel_residual(False)
    weights.ones("output_norm.weight", spec.width)
    weights.zeros("output_norm.bias", spec.width)
    for layer, count in enumerate(kv_heads(spec)):
        prefix = f"blk.{layer}."
        weights.ones(prefix + "attn_norm.weight", spec.width)
        weights.zeros(prefix + "attn_norm.bias", spec.width)
        attention(weights, spec, prefix, count)
        feed_forward(weights, spec, prefix)
        weights.zeros(prefix + "ffn_norm.bias", spec.width)


def mla_header(weights: Weights, spec: Spec) -> None:
    """The cache holds, per token, the latent and the rotated part: `lora + rope` elements of K."""
    writer = weights.writer
    writer.add_key_length(spec.lora + spec.rope)
    writer.add_value_length(spec.lora)
    writer.add_key_length_mla(spec.nope + spec.rope)
    writer.add_value_length_mla(spec.nope)
    writer.add_rope_dimension_count(spec.rope)
    writer.add_q_lora_rank(spec.lora)
    writer.add_kv_lora_rank(spec.lora)


def mla_attention(weights: Weights, spec: Spec, prefix: str, *, compressed: bool = True) -> None:
    """`compressed`: queries go through a latent too."""
    head = spec.nope + spec.rope
    weights.ones(prefix + "attn_norm.weight", spec.width)
    weights.ones(prefix + "attn_kv_a_norm.weight", spec.lora)
    if compressed:
        weights.ones(prefix + "attn_q_a_norm.weight", spec.lora)
        weights.add(prefix + "attn_q_a.weight", spec.lora, spec.width)
        weights.add(prefix + "attn_q_b.weight", spec.heads * head, spec.lora)
    else:
        weights.add(prefix + "attn_q.weight", spec.heads * head, spec.width)
    weights.add(prefix + "attn_kv_a_mqa.weight", spec.lora + spec.rope, spec.width)
    weights.add(prefix + "attn_k_b.weight", spec.heads, spec.lora, spec.nope)
    weights.add(prefix + "attn_v_b.weight", spec.heads, spec.nope, spec.lora)
    weights.add(prefix + "attn_output.weight", spec.width, spec.heads * spec.nope)

"""Tiny random models of many architectures that llama.cpp really loads: a few hundred KB each, built in a moment.

`build("llama", folder)` writes one. All have the same small tokenizer (GPT-2 style byte pairs, 512 tokens, ChatML
markers), so that the engine can chat with them; what they say is noise, but always the same noise. The rows of the
control tokens in the output matrix are zero: greedy decoding never ends a reply by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from tiny import tokenizer
from tiny.weights import TENSORS, Weights

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Spec:
    """Everything that a model is built from. `kv_heads` may be a list, one per layer (0: a recurrent layer).

    `rotary` 0: the whole head is rotated. `window` 0: none. `period`: of so many layers one is full.
    `weights`: "f32", "f16" or a quantized type of the gguf package ("q8_0", "q4_1").
    """

    architecture: str
    heads: int = 4
    kv_heads: int | tuple[int, ...] = 2
    head_size: int = 64
    layers: int = 2
    width: int = 128
    feed_forward: int = 128
    rotary: int = 0
    window: int = 0
    period: int = 0
    context: int = 4096
    weights: str = "f16"
    seed: int = 0
    name: str = "tiny"
    chat_template: str | None = CHATML
    add_bos: bool = False
    lora: int = 64  # MLA: elements of the latent
    nope: int = 64  # MLA: elements of a head without and with rotation
    rope: int = 32


_SPECS: dict[str, Spec] = {
    "llama": Spec("llama"),
    "mqa": Spec("llama", kv_heads=1),
    "mha": Spec("llama", heads=2, kv_heads=2),
    "gemma3": Spec("gemma3", layers=4, window=128, period=2),
    "mamba": Spec("mamba", heads=0, kv_heads=0),
    "jamba": Spec("jamba", heads=2, layers=4, kv_heads=(0, 1, 0, 1)),
    "lfm2": Spec("lfm2", heads=2, layers=4, kv_heads=(0, 1, 0, 1)),
    "lfm2swa": Spec("lfm2", heads=2, layers=4, kv_heads=(0, 1, 0, 1), window=128),
    "deepseek2": Spec("deepseek2", kv_heads=1),
    "stablelm32": Spec("stablelm", heads=4, kv_heads=4, head_size=32),
    "stablelm96": Spec("stablelm", heads=2, kv_heads=2, head_size=96, width=192),
    "stablelm128": Spec("stablelm", heads=2, kv_heads=2, head_size=128, width=256, rotary=32),
}
KINDS = tuple(_SPECS)


def build(kind: str, folder: Path, **overrides: object) -> Path:
    """Write `<kind>.gguf` (or `<name>.gguf` with that override) into the folder. Overrides are fields of Spec."""
    spec = replace(_SPECS[kind], **overrides)  # type: ignore[arg-type]
    path = folder / f"{kind if spec.name == 'tiny' else spec.name}.gguf"
    writer = gguf.GGUFWriter(path, spec.architecture)
    _header(writer, spec, kind)
    weights = Weights(writer, spec.weights, np.random.default_rng(spec.seed))
    weights.add("token_embd.weight", tokenizer.SIZE, spec.width, scale=1.0)
    output = weights.matrix(tokenizer.SIZE, spec.width)
    output[tokenizer.CONTROL] = 0
    weights.put("output.weight", output)
    TENSORS[spec.architecture](weights, spec)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _header(writer: gguf.GGUFWriter, spec: Spec, kind: str) -> None:
    writer.add_name(f"{spec.name} {kind}")
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.width)
    writer.add_feed_forward_length(spec.feed_forward)
    writer.add_head_count(spec.heads)
    if spec.heads:
        writer.add_head_count_kv(spec.kv_heads if isinstance(spec.kv_heads, int) else list(spec.kv_heads))
        writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if spec.window:
        writer.add_sliding_window(spec.window)
    if spec.period:
        writer.add_uint32(f"{spec.architecture}.attention.sliding_window_pattern", spec.period)
    tokenizer.add(writer, spec.chat_template, spec.add_bos)


__all__ = ["CHATML", "KINDS", "Spec", "build"]

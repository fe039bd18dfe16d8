"""Tiny random models of many architectures that llama.cpp really loads: a few hundred KB each, built in a moment.

`build("llama", folder)` writes one. All have the same small tokenizer (GPT-2 style byte pairs, 512 tokens, ChatML
markers), so that the engine can chat with them; what they say is noise, but always the same noise. The rows of the
control tokens in the output matrix are zero: greedy decoding never ends a reply by itself.

Not here, or not in full:
- llama4: its window is 8,192 tokens whatever the file says, so a test that leaves a chunk decodes more than that.
- gemma3n: many tensors of its own; its memory is that of gemma4, with the first 20 layers fixed in llama.cpp.
- rwkv6, plamo2, minimax-01, bailingmoe3, lfm2moe, qwen35moe: their memory is of a kind that another one here has.
- Sparse attention with an indexer (deepseek32, glm-dsa, ...): kvchat does not keep such caches.
- Files with draft layers (MTP) that have tensors: the layers are in glm4moe's header only, as in files without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from tiny import attention, experts, hybrid, recurrent, tokenizer
from tiny.weights import Weights

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_TEMPLATES = Path(__file__).parents[1] / "data" / "templates"
_TIED_SCALE = 0.05  # small enough that a token does not vote for itself


@dataclass(frozen=True)
class Spec:
    """Everything that a model is built from. `kv_heads` may be a list, one per layer (0: a recurrent layer).

    `feed_forward` too, where a layer is one thing only (nemotron_h). `rotary` 0: the whole head is rotated; `sections`:
    how M-RoPE shares it out. `window` 0: none. `period`: of so many layers one is full. `draft_layers`: of the layers,
    the last ones, which have no tensors. `tied`: the embeddings are the output matrix. `template`: a file of
    tests/data/templates, goes before `chat_template`. `weights`: "f32", "f16" or a quantized type of the gguf package
    ("q8_0", "q4_1").
    """

    architecture: str
    heads: int = 4
    kv_heads: int | tuple[int, ...] = 2
    head_size: int = 64
    layers: int = 2
    width: int = 128
    feed_forward: int | tuple[int, ...] = 128
    rotary: int = 0
    sections: tuple[int, ...] = ()
    window: int = 0
    period: int = 0
    draft_layers: int = 0
    experts: int = 0
    tied: bool = False
    context: int = 4096
    weights: str = "f16"
    seed: int = 0
    name: str = "tiny"
    chat_template: str | None = CHATML
    template: str | None = None
    add_bos: bool = False
    lora: int = 64  # MLA: elements of the latent
    nope: int = 64  # MLA: elements of a head without and with rotation
    rope: int = 32

    @property
    def hidden(self) -> int:
        """Width inside the feed-forward part."""
        return self.feed_forward if isinstance(self.feed_forward, int) else max(self.feed_forward)


_QWEN3 = "Qwen-Qwen3-0.6B.jinja"
_ALTERNATING = (0, 1, 0, 1)

_SPECS: dict[str, Spec] = {
    "llama": Spec("llama"),
    "llama80": Spec("llama", heads=2, kv_heads=2, head_size=80),
    "llama96": Spec("llama", heads=2, kv_heads=1, head_size=96),
    "llama128": Spec("llama", heads=2, kv_heads=1, head_size=128),
    "mqa": Spec("llama", kv_heads=1),
    "mha": Spec("llama", heads=2, kv_heads=2),
    "mixtral": Spec("llama", heads=2, kv_heads=1, experts=4, feed_forward=64),
    "phi3": Spec("phi3", heads=2, kv_heads=2),
    "qwen2": Spec("qwen2", heads=2, kv_heads=1),
    "qwen3": Spec("qwen3", heads=2, kv_heads=1, template=_QWEN3),
    "qwen3moe": Spec("qwen3moe", heads=2, kv_heads=1, experts=4, feed_forward=64),
    "qwen3vl": Spec("qwen3vl", heads=2, kv_heads=1, sections=(12, 10, 10, 0)),
    "glm4": Spec("glm4", heads=2, kv_heads=1, rotary=32),
    "glm4moe": Spec("glm4moe", heads=2, kv_heads=1, layers=3, draft_layers=1, experts=4, feed_forward=64, rotary=32),
    "stablelm32": Spec("stablelm", heads=4, kv_heads=4, head_size=32),
    "stablelm96": Spec("stablelm", heads=2, kv_heads=2, head_size=96, width=192),
    "stablelm128": Spec("stablelm", heads=2, kv_heads=2, head_size=128, width=256, rotary=32),
    "deepseek2": Spec("deepseek2", kv_heads=1),
    "deepseek2moe": Spec("deepseek2", kv_heads=1, experts=4, feed_forward=64),
    "gemma2": Spec("gemma2", heads=2, kv_heads=1, layers=4, window=128, tied=True),
    "gemma3": Spec("gemma3", layers=4, window=128, period=2),
    "gemma4": Spec("gemma4", heads=2, kv_heads=1, head_size=128, layers=4, window=128),
    "cohere2": Spec("cohere2", heads=2, kv_heads=1, layers=4, window=128, tied=True),
    "gpt-oss": Spec("gpt-oss", heads=2, kv_heads=1, layers=4, window=128, experts=4, feed_forward=64),
    "llama4": Spec("llama4", heads=2, kv_heads=1, layers=4, experts=4, feed_forward=64, context=16384),
    "mamba": Spec("mamba", heads=0, kv_heads=0),
    "mamba2": Spec("mamba2", heads=0, kv_heads=0),
    "rwkv7": Spec("rwkv7", heads=0, kv_heads=0),
    "jamba": Spec("jamba", heads=2, layers=4, kv_heads=_ALTERNATING),
    "lfm2": Spec("lfm2", heads=2, layers=4, kv_heads=_ALTERNATING),
    "lfm2swa": Spec("lfm2", heads=2, layers=4, kv_heads=_ALTERNATING, window=128),
    "granitehybrid": Spec("granitehybrid", heads=2, layers=4, kv_heads=_ALTERNATING),
    "falcon-h1": Spec("falcon-h1", heads=2, kv_heads=1),
    "nemotron_h": Spec("nemotron_h", heads=2, layers=4, kv_heads=(0, 1, 0, 0), feed_forward=(0, 0, 128, 0)),
    "kimi-linear": Spec("kimi-linear", heads=2, layers=4, kv_heads=_ALTERNATING, experts=4, feed_forward=64),
    "qwen35": Spec(
        "qwen35", heads=2, kv_heads=1, layers=4, rotary=32, sections=(6, 5, 5, 0), template="Qwen3.5-4B.jinja"
    ),
    "qwen3next": Spec("qwen3next", heads=2, kv_heads=1, layers=4, rotary=32, experts=4, feed_forward=64),
}
KINDS = tuple(_SPECS)

_TENSORS: dict[str, Callable[[Weights, Spec], None]] = {
    "llama": experts.llama_or_mixtral,
    "phi3": attention.phi3,
    "qwen2": attention.qwen2,
    "qwen3": attention.qwen3,
    "qwen3moe": experts.qwen3moe,
    "qwen3vl": attention.qwen3vl,
    "glm4": attention.glm4,
    "glm4moe": experts.glm4moe,
    "stablelm": attention.stablelm,
    "deepseek2": experts.deepseek2,
    "gemma2": attention.gemma2,
    "gemma3": attention.gemma3,
    "gemma4": attention.gemma4,
    "cohere2": attention.cohere2,
    "gpt-oss": experts.gpt_oss,
    "llama4": experts.llama4,
    "mamba": recurrent.mamba,
    "mamba2": recurrent.mamba2,
    "rwkv7": recurrent.rwkv7,
    "jamba": hybrid.jamba,
    "lfm2": hybrid.lfm2,
    "granitehybrid": hybrid.granitehybrid,
    "falcon-h1": hybrid.falcon_h1,
    "nemotron_h": hybrid.nemotron_h,
    "kimi-linear": hybrid.kimi_linear,
    "qwen35": hybrid.qwen35,
    "qwen3next": hybrid.qwen3next,
}


def build(kind: str, folder: Path, **overrides: object) -> Path:
    """Write `<kind>.gguf` (or `<name>.gguf` with that override) into the folder. Overrides are fields of Spec."""
    spec = replace(_SPECS[kind], **overrides)  # type: ignore[arg-type]
    path = folder / f"{kind if spec.name == 'tiny' else spec.name}.gguf"
    writer = gguf.GGUFWriter(path, spec.architecture)
    _header(writer, spec, kind)
    weights = Weights(writer, spec.weights, np.random.default_rng(spec.seed))
    _vocabulary(weights, spec)
    _TENSORS[spec.architecture](weights, spec)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _vocabulary(weights: Weights, spec: Spec) -> None:
    if spec.tied:
        embeddings = weights.matrix(tokenizer.SIZE, spec.width, scale=_TIED_SCALE)
        embeddings[tokenizer.CONTROL] = 0
        weights.put("token_embd.weight", embeddings)
        return
    weights.add("token_embd.weight", tokenizer.SIZE, spec.width, scale=1.0)
    output = weights.matrix(tokenizer.SIZE, spec.width)
    output[tokenizer.CONTROL] = 0
    weights.put("output.weight", output)


def _header(writer: gguf.GGUFWriter, spec: Spec, kind: str) -> None:
    # By the name "phi3" llama.cpp looks for tokens of Phi's own vocabulary.
    writer.add_name(f"{spec.name} {kind}".replace("phi3", "phi 3"))
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.width)
    writer.add_feed_forward_length(spec.feed_forward if isinstance(spec.feed_forward, int) else list(spec.feed_forward))
    writer.add_head_count(spec.heads)
    if spec.heads:
        writer.add_head_count_kv(spec.kv_heads if isinstance(spec.kv_heads, int) else list(spec.kv_heads))
        writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if spec.window:
        writer.add_sliding_window(spec.window)
    if spec.period:
        writer.add_uint32(f"{spec.architecture}.attention.sliding_window_pattern", spec.period)
    tokenizer.add(writer, _template(spec), spec.add_bos)


def _template(spec: Spec) -> str | None:
    return (_TEMPLATES / spec.template).read_text() if spec.template else spec.chat_template


__all__ = ["CHATML", "KINDS", "Spec", "build"]

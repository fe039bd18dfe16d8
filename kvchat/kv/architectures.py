"""Which memory llama.cpp builds for which architecture. Owns the tables; must not read files.

Source: llama.cpp as in llama-cpp-python 0.3.36: `llama_model::create_memory`, `llm_arch_is_recurrent`,
`llm_arch_is_hybrid` and `load_arch_hparams` of each model. An architecture that is not named here has plain KV.
"""

from __future__ import annotations

from dataclasses import dataclass


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Encoders, encoder-decoders, diffusion and speech models, parts of other models: no causal text generation.
NO_CHAT = _names(
    "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding "
    "llama-embed t5 t5encoder wavtokenizer-dec qwen3tts pockettts dream llada llada-moe rnd1 clip eagle3 dflash "
    "gemma4-assistant"
)

RECURRENT = _names("mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7")

HYBRID = _names(
    "jamba falcon-h1 plamo2 granitehybrid lfm2 lfm2moe nemotron_h nemotron_h_moe qwen3next kimi-linear bailingmoe3 "
    "kimi-k3 glm5-next qwen35 qwen35moe qwen4exp deepseek4 minimax-01"
)

# Every n-th layer keeps KV, the others are recurrent, unless the file lists `attention.recurrent_layers`.
ATTENTION_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}

# K only, whatever the head counts say; with `attention.key_length_mla` any architecture is like that.
KEYS_ONLY = _names("deepseek4")

# A second cache beside the first, for the keys of a sparse-attention indexer: one head of `indexer.key_length`.
INDEXED = _names("glm-dsa deepseek32 glm5-next hy_v4 dots3note minimax-m3 qwen4exp deepseek4")

# A second recurrent row per layer (the history of n-gram embeddings), which kvchat does not take apart.
OTHER_STATE = _names("qwen4exp")

# `llm_arch_supports_rs_rollback`: with `n_rs_seq` the recurrent states of the last tokens of a batch are kept too.
ROLLBACK = _names(
    "kimi-k3 qwen35 qwen35moe qwen4exp deepseek4 glm5-next nemotron_h nemotron_h_moe lfm2 lfm2moe bailingmoe3"
)

# Cells with two-dimensional positions (M-RoPE): always, or when the file has `rope.dimension_sections`.
PLANE_POSITIONS = _names("qwen2vl paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe qwen4exp")
PLANE_POSITIONS_BY_SECTIONS = _names("glm4 glm4moe hunyuan_vl bailingmoe3")

FLASH_ATTENTION_NEVER = _names("grok")


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Which layers look back only over a window.

    `period` n: of n layers one is full, the last, or the first with `full_first`; 0: the file must list the layers.
    `default` is the window of a file that names none; 0: then there is no window if `optional`, else the file is wrong.
    `fixed` replaces the window that the file names. `chunked`: layers look back to the last multiple of the window.
    `layers`: only models with so many layers.
    """

    period: int
    full_first: bool = False
    optional: bool = False
    default: int = 0
    fixed: int = 0
    chunked: bool = False
    layers: int = 0


WINDOWED: dict[str, WindowRule] = {
    "afmoe": WindowRule(4, optional=True),
    "cohere2": WindowRule(4),
    "cohere2moe": WindowRule(4, full_first=True),
    "dots3note": WindowRule(0),
    "exaone-moe": WindowRule(4),
    "exaone4": WindowRule(4, default=4096, layers=64),
    "gemma2": WindowRule(2, default=4096),
    "gemma3": WindowRule(6, optional=True),
    "gemma3n": WindowRule(5),
    "gemma4": WindowRule(0),
    "gpt-oss": WindowRule(2),
    "granite_swa": WindowRule(0),
    "laguna": WindowRule(4, full_first=True, optional=True),
    "llama4": WindowRule(4, optional=True, default=8192, fixed=8192, chunked=True),
    "maple": WindowRule(0),
    "mellum": WindowRule(4, optional=True),
    "mimo2": WindowRule(0),
    "muse-glimmer": WindowRule(4),
    "olmo2": WindowRule(4, optional=True),
    "plamo3": WindowRule(8, optional=True),
    "smallthinker": WindowRule(4, full_first=True, optional=True, fixed=4096),
    "spark2_5": WindowRule(0),
    "step35": WindowRule(0),
}

# All attention layers look back over the window, if there is one.
WINDOWED_WHOLE = _names("lfm2")

"""What commands and events are made of: messages, sampling, configurations, what a model is, what a turn cost.

Frozen and plain. Times are seconds, sizes are bytes, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CacheType = Literal["f16", "bf16", "q8_0", "q4_0"]
CACHE_TYPES: tuple[CacheType, ...] = ("f16", "bf16", "q8_0", "q4_0")
FlashAttention = Literal["on", "off", "auto"]
History = Literal["append", "exact"]
Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "context", "cancelled", "error", "died"]


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of the conversation as the engine sees it.

    `ids` are the token ids that stood in the context for it: for an assistant message the ids of the reply
    without its end-of-generation token; for a user message everything between the previous reply and its own
    (end of turn, BOS and system prompt for the first one, the user turn, the generation prompt); for a system
    message the empty tuple. None: not known for this vocabulary and template.
    """

    role: Role
    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. `temperature` 0 is greedy. `max_tokens` None: until the context is full."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that an engine process is started with. Zero or -1 means: chosen by the engine's rules."""

    model_path: str
    context: int = 0
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"
    flash_attention: FlashAttention = "auto"
    threads: int = 0
    gpu_layers: int = -1
    extra_buffers: bool = True
    kv_folder: str | None = None
    kv_budget: int = 0
    tune: bool = False  # measure flash attention and threads while idle


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is.

    `attention`: MHA, GQA, MQA, MLA, SWA, recurrent or hybrid. `text_key` names vocabulary and chat template: token
    ids stored under one key are meaningless under another. `template` is "GGUF" or the name of the fallback.
    `kv_bytes_per_token` is that of the current cache types.
    """

    name: str
    path: str
    architecture: str
    attention: str
    fingerprint: str
    text_key: str
    template: str
    context_trained: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The context as it was really built."""

    type_k: CacheType
    type_v: CacheType
    context: int
    flash_attention: bool
    threads: int
    gpu_layers: int
    extra_buffers: bool
    pages: bool  # the state of this architecture can be kept on disk


@dataclass(frozen=True, slots=True)
class Usage:
    """What one turn cost, and what reuse saved it. Token counts, seconds, bytes.

    `prompt_tokens == reused + computed` unless the turn ended before its prompt was read; `reused == resident + pages
    + checkpoint`. `cut` says why reuse ended before the end of what the chat had: "edited", "template", "system",
    "model", "cache type", "version", "architecture" (its state cannot be kept), "corrupt page", "missing page",
    "checkpoint" (no recurrent state was kept nearer), "window" (its rows are gone), "refused" (by llama.cpp),
    "no-kv"; None when nothing was lost. `cells` are those in use at the end of the turn. `saved_seconds` is the time
    that the reused tokens took when they were computed.
    """

    prompt_tokens: int = 0
    reused: int = 0
    computed: int = 0
    resident: int = 0
    pages: int = 0
    checkpoint: int = 0
    cut: str | None = None
    restore_seconds: float = 0.0
    prefill_seconds: float = 0.0
    saved_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    ttft_seconds: float = 0.0
    cells: int = 0
    cache_bytes: int = 0
    pages_saved: int = 0
    bytes_saved: int = 0
    save_problem: str | None = None
    overflow: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A KvchatError that crosses the pipe."""

    message: str
    hint: str = ""

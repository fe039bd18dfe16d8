"""What commands and events are made of: messages, sampling, configurations, what a model is, what a turn cost.

Frozen and plain. Times are seconds, sizes are bytes, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvchat.backend.choices import (
    CACHE_TYPES,
    DISK_TYPES,
    DRAFT_MODES,
    OVERFLOW_POLICIES,
    Adapter,
    CacheType,
    DiskType,
    DraftMode,
    EngineConfig,
    Favour,
    FlashAttention,
    Hardware,
    History,
    OverflowPolicy,
    Remote,
    Rope,
    Sampling,
)

__all__ = [
    "CACHE_TYPES",
    "DISK_TYPES",
    "DRAFT_MODES",
    "OVERFLOW_POLICIES",
    "UNMET",
    "Adapter",
    "CacheInfo",
    "CacheType",
    "DiskType",
    "DraftInfo",
    "DraftMode",
    "EngineConfig",
    "Failure",
    "Favour",
    "FinishReason",
    "FlashAttention",
    "Hardware",
    "History",
    "ModelInfo",
    "OverflowPolicy",
    "PromptMessage",
    "Remote",
    "Role",
    "Rope",
    "Sampling",
    "Usage",
]

UNMET = "not as asked"  # begins a note of Ready about what was asked for and has no effect
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
class ModelInfo:
    """What a loaded model is.

    `attention`: MHA, GQA, MQA, MLA, SWA, recurrent or hybrid. `text_key` names vocabulary and chat template: token
    ids stored under one key are meaningless under another. `template` is "GGUF" or the name of the fallback.
    `kv_bytes_per_token` is that of the current cache types. `adapters`: LoRA adapters that act, for a person.
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
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftInfo:
    """The draft model that is loaded beside the model. Bytes of its weights and of its cache."""

    name: str
    path: str
    weights_bytes: int
    cache_bytes: int


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
    namespace: str = ""  # in which its pages are kept; "" where none are


@dataclass(frozen=True, slots=True)
class Usage:
    """What one turn cost, and what reuse saved it. Token counts, seconds, bytes.

    `prompt_tokens == reused + computed` unless the turn ended before its prompt was read; `reused == resident + shared
    + pages + checkpoint`; `shared` tokens have their cells in common with another turn. Of the resident ones `ahead`
    were read while the person typed; `ahead_wasted` more were read so since the last turn, and are of no use. `beside`:
    the most other turns that were computed together with this one.
    `cut` says why reuse ended before the end of what the chat had: "edited", "template", "system",
    "summary" (one stands for the oldest messages, or does no more), "model", "cache type", "adapter", "positions"
    (RoPE), "version", "architecture" (its state cannot be kept), "corrupt page", "missing page", "checkpoint" (no
    recurrent state was kept nearer), "window" (its rows are gone), "refused" (by llama.cpp), "check" (what was restored
    did not do what it did when it was saved), "eviction taken back" (what is kept was computed after it), "no-kv"; None
    when nothing was lost. `cells` are those in use at the end of the turn. `save_seconds`: what copying rows out of the
    cells and writing their pages took; the turn waits for the first only. `saved_seconds` is the time that the reused
    tokens but those read ahead took when they were computed. `transcoded` names the cache types ("q8_0", "q8_0/q4_0")
    of pages that were of others than the context's, and from which `transcoded_tokens` of the reused tokens came into
    its cells since the last turn.

    `draft_kind` is what drafted in this turn: "off" (nothing), "ngram", "model" or "both". Of `draft_proposed` drafted
    tokens `draft_accepted` stood, in `draft_steps` verifications; making the drafts took `draft_seconds`.
    `draft_speedup` is the net decode speed against plain decoding, as measured in this session; 0: not known.
    `draft_note` says why drafting paused or cannot be, `draft_memory` is what the next turn of the chat is to be told.

    Of the prompt, the first `system_tokens` are BOS, the system prompt and what the template puts before it; 0: not
    told apart. Of the reply, also of what was written of it in earlier turns, `reasoning_tokens` are the reasoning
    between its tags; this turn wrote them in `reasoning_seconds`. `excess`: the prompt has so many tokens too many for
    the context, and was not read.

    `overflow` is the policy that acted, "stop" when a full context ended the reply, None when it was not full. In this
    turn `evicted` tokens left the context for it, in `evictions` blocks, and `reasoning_evicted` tokens because they
    were reasoning of earlier replies. `prompt_tokens` counts what was in the context or computed.

    `remote` is the host of the server that answered, None for an engine of this machine. Then tokens are as the server
    counts them and times as they passed here; `reused` are those that it says it had kept, from none of the places
    above. Where it does not say so, both `reused` and `computed` are 0. `cut` may be "reasoning": that of the last
    reply was not sent back.
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
    save_seconds: float = 0.0
    save_problem: str | None = None
    transcoded: str | None = None
    transcoded_tokens: int = 0
    overflow: str | None = None
    evicted: int = 0
    evictions: int = 0
    reasoning_evicted: int = 0
    draft_kind: str = "off"
    draft_proposed: int = 0
    draft_accepted: int = 0
    draft_steps: int = 0
    draft_seconds: float = 0.0
    draft_speedup: float = 0.0
    draft_note: str | None = None
    draft_memory: str | None = None
    system_tokens: int = 0
    reasoning_tokens: int = 0
    reasoning_seconds: float = 0.0
    excess: int = 0
    shared: int = 0
    ahead: int = 0
    ahead_wasted: int = 0
    beside: int = 0
    remote: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A KvchatError that crosses the pipe."""

    message: str
    hint: str = ""

"""What a person chooses: how a model is run, and how its answers are sampled. See `values`, of which this is the part
that the settings need: the first frame of the app does without the rest.

Frozen and plain. Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

CacheType = Literal["f16", "bf16", "q8_0", "q4_0"]
CACHE_TYPES: tuple[CacheType, ...] = ("f16", "bf16", "q8_0", "q4_0")
DiskType = Literal["same", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
DISK_TYPES: tuple[DiskType, ...] = ("same", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
FlashAttention = Literal["on", "off", "auto"]
History = Literal["append", "exact"]
OverflowPolicy = Literal["stop", "shift", "sinks", "prune", "summarize"]
OVERFLOW_POLICIES: tuple[OverflowPolicy, ...] = ("stop", "shift", "sinks", "prune", "summarize")
DraftMode = Literal["off", "model", "ngram", "auto"]
DRAFT_MODES: tuple[DraftMode, ...] = ("auto", "ngram", "model", "off")
Favour = Literal["answers", "balanced", "prompts"]
FAVOURS: tuple[Favour, ...] = ("answers", "balanced", "prompts")
MOST_PARALLEL = 16
SplitMode = Literal["none", "layer", "row"]
SPLIT_MODES: tuple[SplitMode, ...] = ("none", "layer", "row")
RopeScaling = Literal["none", "linear", "yarn"]
ROPE_SCALINGS: tuple[RopeScaling, ...] = ("none", "linear", "yarn")
REMOTE = "remote:"  # begins what stands in place of a model's path where a server answers


@dataclass(frozen=True, slots=True)
class Hardware:
    """How a machine runs a model; nothing of it changes what is computed, beyond rounding.

    `main_gpu` is the device that has everything with `split_mode` "none", -1: the first. `tensor_split`: shares of the
    devices, empty: by their free memory. `kv_offload`: the cache lies where its layers do. `mmap`: the weights are
    mapped, not read; `mlock`: they are kept from being swapped out. `batch`: tokens of one call, `ubatch` of one
    computation, `threads_batch` for more than one token; 0: chosen by the engine's rules.
    """

    main_gpu: int = -1
    split_mode: SplitMode = "layer"
    tensor_split: tuple[float, ...] = ()
    kv_offload: bool = True
    mmap: bool = True
    mlock: bool = False
    batch: int = 0
    ubatch: int = 0
    threads_batch: int = 0


@dataclass(frozen=True, slots=True)
class Rope:
    """Positions otherwise than the model file says, by llama.cpp's names. None: as the file says. Keys depend on it."""

    scaling: RopeScaling | None = None
    freq_base: float | None = None
    freq_scale: float | None = None
    yarn_orig_ctx: int | None = None
    yarn_ext_factor: float | None = None
    yarn_attn_factor: float | None = None
    yarn_beta_slow: float | None = None
    yarn_beta_fast: float | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: a GGUF file, and how strongly it acts. Keys and values depend on both."""

    path: str
    scale: float = 1.0


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
class Remote:
    """A server that answers in place of an engine of this machine, by an OpenAI-compatible chat API.

    `name` is that of the settings, else its host; `url` the base of its API, without a password in it; `model` is what
    it calls the model, "" for the only one that it serves. The key itself is never here: `key_env` names the variable
    that holds it, `keyring` the service of the system's keyring that keeps it for the user `name`; "": there is none.
    """

    name: str
    url: str
    model: str = ""
    key_env: str = ""
    keyring: str = ""

    @property
    def reference(self) -> str:
        """What stands for it where a model of this machine has its path."""
        return f"{REMOTE}{self.name}" + (f"#{self.model}" if self.model else "")

    @property
    def host(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    @property
    def leaves(self) -> bool:
        """Whether what is sent to it leaves this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return not ip_address(host).is_loopback
        except ValueError:
            return host != "localhost"

    @property
    def bare(self) -> bool:
        """Whether it leaves it without encryption."""
        return self.leaves and not self.url.startswith("https:")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that an engine process is started with. Zero or -1 means: chosen by the engine's rules. With `remote`
    there is no process: that server answers, `model_path` is its reference, and the rest is for when it does no more.
    """

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
    kv_type_disk: DiskType = "same"  # pages are saved in this cache type where it takes less room
    tune: bool = False  # measure flash attention and threads while idle
    guard: bool = False  # check speed and quality of the cache types while idle, after an answer
    noise: float = 0.0  # nats, what the guard found with these types (see Verdict); 0: not known
    draft_path: str | None = None  # a smaller model of the same vocabulary, that drafts for this one
    draft_costs: tuple[float, ...] = ()  # of decoding 1, 2, ... tokens at once against one; empty: not measured
    hardware: Hardware = field(default_factory=Hardware)
    rope: Rope = field(default_factory=Rope)
    lora: tuple[Adapter, ...] = ()
    parallel: int = 0  # turns that are computed together at most
    favour: Favour = "balanced"  # what a prompt that is read beside running answers may slow down
    read_ahead: bool = True  # prefill what is written, ahead of its turn
    remote: Remote | None = None
    incognito_leaves: bool = False  # the person wants an incognito chat to be read by a server on another machine

    def of_model(self, path: str) -> EngineConfig:
        """This for another model. Adapters and positions belong to the one that they were chosen for."""
        if self.model_path in ("", path):
            return replace(self, model_path=path)
        return replace(self, model_path=path, rope=Rope(), lora=(), remote=None, incognito_leaves=False)

    def on(self, remote: Remote) -> EngineConfig:
        """This with a server that answers; nothing is loaded here beside it."""
        return replace(self.of_model(remote.reference), remote=remote, draft_path=None)

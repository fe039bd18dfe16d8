"""The commands and events that cross the pipe between the app and the engine process.

Owns the vocabulary that both sides share: frozen values, nothing else. Must not hold behaviour, state or
anything that is not plain data. Times are seconds, sizes are bytes, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvchat.backend.fidelity import Guarded, Measure, Measured, Measuring
from kvchat.backend.outlooks import (
    Forecast,
    Forecasted,
    Forget,
    Forgotten,
    Preview,
    Previewed,
    Title,
    Titled,
    Warm,
    Warmed,
    Way,
)
from kvchat.backend.pins import Pin, Pinned, Pinning
from kvchat.backend.summaries import Summarize, Summarized, Summarizing
from kvchat.backend.typing_ahead import ReadAhead, ReadingAhead
from kvchat.backend.values import (
    CacheInfo,
    DraftInfo,
    DraftMode,
    EngineConfig,
    Failure,
    FinishReason,
    History,
    ModelInfo,
    OverflowPolicy,
    PromptMessage,
    Remote,
    Sampling,
    Usage,
)
from kvchat.formats.past import Eviction

__all__ = [
    "Cancel",
    "Command",
    "Configure",
    "ConfigureFailed",
    "Drafted",
    "EngineDied",
    "Event",
    "Evicted",
    "Fidelity",
    "Forecast",
    "Forecasted",
    "Forget",
    "Forgotten",
    "Generate",
    "Load",
    "LoadFailed",
    "Loading",
    "Outlook",
    "Pin",
    "Pinned",
    "Pinning",
    "Preview",
    "Previewed",
    "PromptProgress",
    "PromptReady",
    "ReadAhead",
    "ReadingAhead",
    "Ready",
    "Restored",
    "Summarize",
    "Summarized",
    "Summarizing",
    "TextDelta",
    "Title",
    "Titled",
    "Transcode",
    "Transcoded",
    "Tuned",
    "TurnEvent",
    "TurnFinished",
    "Waits",
    "Warm",
    "Warmed",
    "Way",
]

# ------------------------------------------------------------------ commands: app -> engine


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model and build the context. Sent once, first."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Generate:
    """One turn. `messages` go from the system prompt to the last user message, or, with `continue_reply`, to the
    partial assistant message that is to be continued.

    `clock` is the time (seconds since the epoch) that the template sees, frozen for the chat. `keep_kv` False:
    neither restore nor save nor reuse. `incognito`: what is in the cells is reused, the disk is neither read nor
    written. `past_cut` says why the ids of the past end where they do, for `Usage.cut`.
    `draft_memory` is that of the chat's last turn, see `Usage`; None: nothing is known.

    `evictions` are those that were told of the chat (see `Evicted`), with the ids of the messages joined as its tokens.
    `overflow`: what happens when the context is full. `pinned`: messages, by their number, that never leave it.
    `alternative_of`: another turn with the same prompt, whose cells this one shares; it begins when that has read it.
    """

    turn: str
    messages: tuple[PromptMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    history: History = "append"
    clock: float = 0.0
    keep_kv: bool = True
    incognito: bool = False
    continue_reply: bool = False
    past_cut: str | None = None
    draft: DraftMode = "auto"
    draft_memory: str | None = None
    evictions: tuple[Eviction, ...] = ()
    overflow: OverflowPolicy = "stop"
    pinned: tuple[int, ...] = ()
    alternative_of: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a turn, queued or running, or a summary, a pin or a measurement. Its end still comes."""

    turn: str


@dataclass(frozen=True, slots=True)
class Configure:
    """Build the context anew with another cache type, size, flash attention or thread count; the model stays loaded.
    Answered by Ready, or by ConfigureFailed and then the Ready of the configuration from before."""

    config: EngineConfig


Question = Warm | Forecast | ReadAhead | Title | Preview
Command = Load | Generate | Cancel | Question | Summarize | Pin | Forget | Configure | Measure


@dataclass(frozen=True, slots=True)
class Transcode:
    """Write the chain of pages that ends with the page `last` of a namespace once more in other cache types. Answered
    by Transcoded or a Failure; for a process of its own, see `backend.errands`."""

    kv_folder: str
    kv_budget: int
    namespace: str
    last: bytes
    model_path: str
    type_k: str
    type_v: str


@dataclass(frozen=True, slots=True)
class Transcoded:
    """All `pages` pages of the chain, with its `tokens`, are there, and end with the page `last`; `written` pages and
    checkpoints of `written_bytes` are new."""

    tokens: int
    pages: int
    written: int
    written_bytes: int
    last: bytes


# ------------------------------------------------------------------ events: engine -> app


@dataclass(frozen=True, slots=True)
class Loading:
    """Part of the model that is loaded, 0 to 1. `draft`: the model itself stands, and now a draft model is loaded."""

    fraction: float
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and has decoded its first token. `notes` are sentences for the person: what was chosen
    otherwise than asked, and why. `draft`: the draft model beside it, None without one. `remote`: the server that will
    answer; then nothing is loaded here, of the model only name and path are known, and of the cache at most its size,
    0: not told."""

    model: ModelInfo
    cache: CacheInfo
    load_seconds: float
    notes: tuple[str, ...] = ()
    draft: DraftInfo | None = None
    remote: Remote | None = None


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model cannot be loaded in any configuration. The engine process is gone."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The engine process ended by itself. Made by the client. `cause` is a sentence ("killed by SIGILL, ..."),
    `log` the last lines of its log, `restarting` whether a new one is being started, `note` in which configuration."""

    cause: str
    log: tuple[str, ...]
    restarting: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """A turn cannot begin beside those that run: `reason` says why, in words for a person. It begins when it can."""

    turn: str
    reason: str


@dataclass(frozen=True, slots=True)
class PromptReady:
    """The prompt is tokenized. `segments[i]` are the ids of `messages[i]`, see PromptMessage: to be kept.
    `system_tokens`: see `Usage`."""

    turn: str
    segments: tuple[tuple[int, ...], ...]
    tokens: int
    system_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """The reuse plan is carried out: so many tokens need not be computed. Comes before prefill, and once more, with
    nothing reused, where the check on resume refutes what was restored.
    `transcoded`, `transcoded_tokens`: see `Usage`."""

    turn: str
    reused: int
    resident: int
    pages: int
    checkpoint: int
    computed: int
    seconds: float
    cut: str | None
    transcoded: str | None = None
    transcoded_tokens: int = 0
    shared: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Tokens of the prompt that are computed, of those that must be."""

    turn: str
    done: int
    total: int
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of the reply and the ids that make it: all deltas of a turn joined are the reply, in text and in ids.
    `thought`: so many tokens of the reply up to here are reasoning, see `Usage.reasoning_tokens`."""

    turn: str
    text: str
    ids: tuple[int, ...]
    thought: int = 0


@dataclass(frozen=True, slots=True)
class Evicted:
    """Tokens of the chat left the context: to be kept, and handed back with the chat's next commands. `why` is the
    policy that chose them, or "reasoning"; letting them go took `seconds`."""

    turn: str
    eviction: Eviction
    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Drafted:
    """How drafting goes so far in this turn, see `Usage`. Comes with the text, as often as that."""

    turn: str
    kind: str
    proposed: int
    accepted: int
    speedup: float


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """Exactly one per Generate, on every path. All text and ids have gone out in TextDelta before it. `ways`: where a
    full context ended the reply, what the policies that could go on would let go."""

    turn: str
    reason: FinishReason
    usage: Usage
    failure: Failure | None = None
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigureFailed:
    """The context cannot be built so. The one from before is built again."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Tuned:
    """Flash attention and threads were measured while the engine was idle, and these are in use from now on.
    `sentences` say for the person how fast each setting decodes at depth 1,024. `draft_costs`: see EngineConfig."""

    flash_attention: bool
    threads: int
    sentences: tuple[str, ...]
    draft_costs: tuple[float, ...] = ()


TurnEvent = Waits | PromptReady | Restored | PromptProgress | TextDelta | Drafted | Evicted | TurnFinished
Outlook = Warmed | Forecasted | Previewed | ReadingAhead
Fidelity = Measuring | Measured | Guarded
Aside = Titled | Summarizing | Summarized | Pinning | Pinned | Forgotten
Event = Loading | Ready | LoadFailed | EngineDied | ConfigureFailed | Tuned | TurnEvent | Outlook | Aside | Fidelity

"""The commands and events that cross the pipe between the app and the engine process.

Owns the vocabulary that both sides share: frozen values, nothing else. Must not hold behaviour, state or
anything that is not plain data. Times are seconds, sizes are bytes, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvchat.backend.values import (
    CacheInfo,
    EngineConfig,
    Failure,
    FinishReason,
    History,
    ModelInfo,
    PromptMessage,
    Sampling,
    Usage,
)

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
    neither restore nor save nor reuse. `past_cut` says why the ids of the past end where they do, for `Usage.cut`.
    """

    turn: str
    messages: tuple[PromptMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    history: History = "append"
    clock: float = 0.0
    keep_kv: bool = True
    continue_reply: bool = False
    past_cut: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a turn, queued or running. Its TurnFinished still comes."""

    turn: str


@dataclass(frozen=True, slots=True)
class Warm:
    """Bring the KV of a chat into the cells ahead of its turn; nothing is computed. `ids` are those of its past."""

    turn: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a send would reuse and cost. As Generate, with the draft as last user message; nothing is changed."""

    turn: str
    messages: tuple[PromptMessage, ...]
    history: History = "append"
    clock: float = 0.0
    past_cut: str | None = None


@dataclass(frozen=True, slots=True)
class Title:
    """A title for a conversation, made beside the chat's cells while nothing else is wanted. Answered by Titled, or not
    at all when a turn, a Warm or another configuration comes first."""

    turn: str
    messages: tuple[PromptMessage, ...]
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Preview:
    """What a chat with these past ids would find on disk if the context were built with `config` (same model)."""

    turn: str
    ids: tuple[int, ...]
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Configure:
    """Build the context anew with another cache type, size, flash attention or thread count; the model stays loaded.
    Answered by Ready, or by ConfigureFailed and then the Ready of the configuration from before."""

    config: EngineConfig


Command = Load | Generate | Cancel | Warm | Forecast | Title | Preview | Configure


# ------------------------------------------------------------------ events: engine -> app


@dataclass(frozen=True, slots=True)
class Loading:
    """Part of the model that is loaded, 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and has decoded its first token. `notes` are sentences for the person: what was chosen
    otherwise than asked, and why."""

    model: ModelInfo
    cache: CacheInfo
    load_seconds: float
    notes: tuple[str, ...] = ()


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
class PromptReady:
    """The prompt is tokenized. `segments[i]` are the ids of `messages[i]`, see PromptMessage: to be kept."""

    turn: str
    segments: tuple[tuple[int, ...], ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The reuse plan is carried out: so many tokens need not be computed. Comes once per turn, before prefill."""

    turn: str
    reused: int
    resident: int
    pages: int
    checkpoint: int
    computed: int
    seconds: float
    cut: str | None


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Tokens of the prompt that are computed, of those that must be."""

    turn: str
    done: int
    total: int
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of the reply and the ids that make it: all deltas of a turn joined are the reply, in text and in ids."""

    turn: str
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """Exactly one per Generate, on every path. All text and ids have gone out in TextDelta before it."""

    turn: str
    reason: FinishReason
    usage: Usage
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Warmed:
    """`reused` of `tokens` past tokens are in the cells, `pages` of them were read from disk in `seconds`; or as many
    as `checkpoint` says came back with the recurrent state after them."""

    turn: str
    tokens: int
    reused: int
    pages: int
    seconds: float
    cut: str | None
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Forecasted:
    """The prompt would have `tokens`, of which `resident`, `pages` and `checkpoint` need not be computed. `seconds`
    to the first token, by the speeds measured on this engine; None before anything was measured."""

    turn: str
    tokens: int
    resident: int
    pages: int
    computed: int
    seconds: float | None
    cut: str | None
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Previewed:
    """Of `tokens` past tokens, `restored` would come from pages of that configuration; computing the others would take
    `seconds` (None: not known yet)."""

    turn: str
    tokens: int
    restored: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Titled:
    """The title that the model wrote; "" where it wrote none that can be used."""

    turn: str
    text: str


@dataclass(frozen=True, slots=True)
class ConfigureFailed:
    """The context cannot be built so. The one from before is built again."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Tuned:
    """Flash attention and threads were measured while the engine was idle, and these are in use from now on.
    `sentences` say for the person how fast each setting decodes at depth 1,024."""

    flash_attention: bool
    threads: int
    sentences: tuple[str, ...]


TurnEvent = PromptReady | Restored | PromptProgress | TextDelta | TurnFinished
Outlook = Warmed | Forecasted | Previewed
Event = Loading | Ready | LoadFailed | EngineDied | ConfigureFailed | Tuned | TurnEvent | Outlook | Titled

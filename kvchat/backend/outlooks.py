"""What is asked of the engine ahead of a turn or beside one, and what it answers: a part of `protocol`.

Frozen and plain. Times are seconds, sizes are bytes, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backend.values import EngineConfig, History, OverflowPolicy, PromptMessage
from kvchat.formats.past import Eviction, Range

# ------------------------------------------------------------------ commands: app -> engine


@dataclass(frozen=True, slots=True)
class Warm:
    """Bring the KV of a chat into the cells ahead of its turn; nothing is computed. `ids` are those of its past, which
    begins with the prompt `system`; `clock` as in Generate."""

    turn: str
    ids: tuple[int, ...]
    system: str = ""
    clock: float = 0.0
    evictions: tuple[Eviction, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a send would reuse and cost. As Generate, with the draft as last user message; nothing is changed."""

    turn: str
    messages: tuple[PromptMessage, ...]
    history: History = "append"
    clock: float = 0.0
    past_cut: str | None = None
    evictions: tuple[Eviction, ...] = ()
    incognito: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Empty all cells in which no turn goes on, so that nothing of them can be written any more. Answered by Forgotten
    when what was being written is on disk."""

    turn: str


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
    evictions: tuple[Eviction, ...] = ()


# ------------------------------------------------------------------ events: engine -> app


@dataclass(frozen=True, slots=True)
class Warmed:
    """`reused` of `tokens` past tokens are in the cells, `pages` of them were read from disk in `seconds`; or as many
    as `checkpoint` says came back with the recurrent state after them. The rest: see `Usage`."""

    turn: str
    tokens: int
    reused: int
    pages: int
    seconds: float
    cut: str | None
    checkpoint: int = 0
    system_tokens: int = 0
    transcoded: str | None = None
    transcoded_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Way:
    """What a policy would let go of a context that is full: so many tokens, those of the chat's log at the positions
    [start, end) of each range; no ranges where only their number is known before they are chosen."""

    policy: OverflowPolicy
    tokens: int
    ranges: tuple[Range, ...] = ()


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
    """Of `tokens` past tokens, `restored` would come from pages, `transcoded` of them from those of other cache types
    than that configuration's; that and computing the others would take `seconds` (None: not known yet)."""

    turn: str
    tokens: int
    restored: int
    seconds: float | None
    transcoded: int = 0


@dataclass(frozen=True, slots=True)
class Titled:
    """The title that the model wrote; "" where it wrote none that can be used."""

    turn: str
    text: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The answer to Forget."""

    turn: str

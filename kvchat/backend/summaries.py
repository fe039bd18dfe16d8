"""What is asked of the engine for a summary of the beginning of a chat, and what it tells: a part of `protocol`.

Frozen and plain. Times are seconds, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backend.values import Failure, History, PromptMessage
from kvchat.formats.past import Eviction


@dataclass(frozen=True, slots=True)
class Summarize:
    """A summary of `messages`, made beside the chat's cells while nothing else is wanted, in at most `most` tokens.

    `messages` are the first of the chat, as in Generate, and end with a reply; `history`, `clock` and `evictions` as
    there. A turn goes first, and the summary goes on after it. Where there is no room beside the chat, cells of what
    comes after these messages are given up; the next turn brings them back from disk, or computes them. Answered by
    Summarizing, as often as there is something to tell, and by exactly one Summarized, on every path; `Cancel` ends it.
    """

    turn: str
    messages: tuple[PromptMessage, ...]
    most: int
    history: History = "append"
    clock: float = 0.0
    evictions: tuple[Eviction, ...] = ()


@dataclass(frozen=True, slots=True)
class Summarizing:
    """So many tokens of those that must be computed for a summary are computed; `total` is the most that it can be."""

    turn: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Summarized:
    """A summary of `tokens`, which took `seconds`; of the tokens before it `shared` did not have to be computed. "" and
    no failure: it was cancelled."""

    turn: str
    text: str = ""
    tokens: int = 0
    shared: int = 0
    seconds: float = 0.0
    failure: Failure | None = None

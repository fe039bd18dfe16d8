"""What is asked of the engine while the person types, and what it answers: a part of `protocol`.

Frozen and plain. Times are seconds, ids are vocabulary token ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backend.values import History, OverflowPolicy, PromptMessage
from kvchat.formats.past import Eviction


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Prefill the stable part of a prompt whose last message is still being written. As Generate, with the draft as
    last user message; a newer one takes its place, and a turn ends it: what is read stays in the cells for that turn.

    `done`: the draft has rested, so its last word counts as finished, and little that is new is read, too; else words
    are read in groups. Nothing that is read so is written to disk before a turn has the message. The answers are
    ReadingAhead events: one at least, or none when something more important was asked.
    """

    turn: str
    messages: tuple[PromptMessage, ...]
    history: History = "append"
    clock: float = 0.0
    keep_kv: bool = True
    evictions: tuple[Eviction, ...] = ()
    overflow: OverflowPolicy = "stop"
    incognito: bool = False
    done: bool = False


@dataclass(frozen=True, slots=True)
class ReadingAhead:
    """The stable part of the prompt has `tokens`, of which `there` are in the cells by now: `restored` came from pages
    for this draft, `read` were computed while the person typed, for this draft or those before it, and the others had
    stayed from before. `wasted` tokens were read so since the last turn and are of no use. `why`: the reason why no
    more is read, in words for a person; "" while there is none."""

    turn: str
    tokens: int
    there: int
    restored: int = 0
    read: int = 0
    wasted: int = 0
    why: str = ""

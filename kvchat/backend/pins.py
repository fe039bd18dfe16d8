"""What is asked of the engine for a pinned prefix, and what it tells: a part of `protocol`.

Frozen and plain. Times are seconds, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backend.values import Failure


@dataclass(frozen=True, slots=True)
class Pin:
    """Compute what every chat with the system prompt `system` and this `clock` (see Generate) begins with, and keep its
    pages on disk for the prefix with the id `prefix`, whatever the budget of the store; what it had in the same
    namespace before is let go.

    It is made while nothing else is wanted: a turn goes first, and the rest is computed after it. Answered by Pinning,
    as often as there is something to tell, and by exactly one Pinned, on every path; `Cancel` ends it, and then nothing
    is pinned.
    """

    turn: str
    prefix: str
    system: str
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Pinning:
    """`done` of the prefix's `total` tokens are there, of which `reused` did not have to be computed."""

    turn: str
    done: int
    total: int
    reused: int = 0


@dataclass(frozen=True, slots=True)
class Pinned:
    """The prefix has `tokens`, and its pages, `size` bytes with `last_key` the key of the last one, are kept in
    `namespace`. `seconds` is what computing all of it took, whenever that was; `computed` tokens were computed now.

    `model`, `model_path`, `fingerprint`, `type_k` and `type_v` are those of the engine, as in ModelInfo and CacheInfo.
    No tokens and no failure: it was cancelled.
    """

    turn: str
    prefix: str
    tokens: int = 0
    computed: int = 0
    size: int = 0
    seconds: float = 0.0
    namespace: str = ""
    last_key: bytes = b""
    model: str = ""
    model_path: str = ""
    fingerprint: str = ""
    type_k: str = ""
    type_v: str = ""
    failure: Failure | None = None

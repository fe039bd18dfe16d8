"""What the fidelity lab and the guard find out about cache types, and the commands and events about it.

Frozen and plain; must not measure or decide.

Divergences are in nats, against an f16 cache, of the next-token distribution at one position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvchat.backend.values import CacheType, Failure

Way = Literal["native", "transcoded", "batch", "flash"]
Pair = tuple[CacheType, CacheType]  # of K and V


@dataclass(frozen=True, slots=True)
class DepthFidelity:
    """What was found over the last `positions` positions before `depth` tokens.

    `kl` and `kl_99`: mean and 99th percentile of the divergence. `agreement`: part of the positions at which the
    likeliest token is the same. `perplexity` of the text there, `reference_perplexity` that with f16.
    """

    depth: int
    positions: int
    kl: float
    kl_99: float
    agreement: float
    perplexity: float
    reference_perplexity: float


@dataclass(frozen=True, slots=True)
class FidelityRow:
    """One way to have the cache, against f16.

    `way`: "native" computes all of the text with these types; "transcoded" takes the cells of f16, converted, up to
    the positions that count, and goes on from there. The others are f16 once more, and say what is noise: "batch"
    computes the positions that count one token at a time, "flash" everything with flash attention the other way.
    `curve`: the mean divergence of each stretch of `FidelityReport.stretch` tokens, for ways that compute all of them.
    """

    way: Way
    type_k: CacheType
    type_v: CacheType
    flash: bool
    depths: tuple[DepthFidelity, ...]
    curve: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """A text of `tokens` tokens, computed in batches of `batch`. `reference_flash`: flash attention of the reference.
    `refused`: sentences about types that cannot be measured here."""

    model: str
    tokens: int
    batch: int
    reference_flash: bool
    stretch: int
    rows: tuple[FidelityRow, ...]
    refused: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the guard found about a pair of cache types. Speeds are decode speeds at depth 1,024 in tokens per second,
    None where there was no time. `positions` 0: there was no time for the quality, or it is f16 itself.

    `noise`: the 99th percentile of the divergence between a token alone and the same in a batch, with these types; None
    where there was no time.
    """

    type_k: CacheType
    type_v: CacheType
    speed: float | None
    f16_speed: float | None
    positions: int
    kl: float
    agreement: float
    noise: float | None


# ------------------------------------------------------------------ across the pipe


@dataclass(frozen=True, slots=True)
class Measure:
    """What the cache types `pairs` do to the model, compared with f16, on the tokens `ids` of a chat or, without any,
    on `text`; told at each of `depths`, as far as the text goes. `transcode`: also for cells converted from f16.

    Made in contexts of its own while nothing else is wanted. Answered by Measuring, again and again, and one Measured;
    Cancel ends it. A newer one takes its place.
    """

    turn: str
    ids: tuple[int, ...]
    text: str
    depths: tuple[int, ...]
    pairs: tuple[Pair, ...]
    transcode: bool = False


@dataclass(frozen=True, slots=True)
class Measuring:
    """Tokens that the measurement has computed, of those that it computes, over all cache types."""

    turn: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The end of a measurement. `report` None: it was cancelled or, with a `failure`, could not be made."""

    turn: str
    report: FidelityReport | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Guarded:
    """The cache types in use were checked while the engine was idle."""

    verdict: Verdict

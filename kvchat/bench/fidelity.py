"""What can be asked of the fidelity lab: cache types, depths, a text; and the wait for its answer.

Owns the questions and their limits. Must not compute: that is done by an engine, in contexts of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from kvchat.backend.fidelity import FidelityReport, Measured, Measuring, Pair
from kvchat.backend.protocol import EngineDied, Event, LoadFailed
from kvchat.backend.values import CACHE_TYPES, CacheType, Failure
from kvchat.errors import KvchatError, UsageError
from kvchat.kv.compute import compute_bytes
from kvchat.kv.fit import LARGEST_CHUNK, uses_flash
from kvchat.kv.ledger import CacheConfig, ledger
from kvchat.kv.needs import Subject

DEPTHS = (256, 1024, 4096)
PAIRS: tuple[Pair, ...] = (
    ("bf16", "bf16"),
    ("q8_0", "q8_0"),
    ("q8_0", "f16"),
    ("f16", "q8_0"),
    ("q8_0", "q4_0"),
    ("q4_0", "q4_0"),
    ("q4_0", "f16"),
    ("f16", "q4_0"),
)
SHALLOWEST, DEEPEST = 32, 1 << 17

Reported = Callable[[int, int], object]  # tokens computed, of those that are


def passage() -> str:
    """The text that is measured on where nobody gives one: 3,500 words of English prose."""
    return (files("kvchat.bench") / "passage.txt").read_text("utf-8")


def read_depths(text: str) -> tuple[int, ...]:
    """ "256,1024" as numbers, ascending. UsageError."""
    found = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and SHALLOWEST <= int(part) <= DEEPEST for part in found):
        raise UsageError(
            f"--depths {text!r}: each is a number of tokens from {SHALLOWEST} to {DEEPEST:,}",
            "for example --depths 256,1024",
        )
    return tuple(sorted({int(part) for part in found}))


def read_pairs(text: str) -> tuple[Pair, ...]:
    """ "q8_0,q8_0/q4_0" as pairs of types of K and V. UsageError."""
    return tuple(_read_pair(part.strip()) for part in text.split(","))


def _read_pair(text: str) -> Pair:
    types = [_type_named(name) for name in text.split("/")]
    if len(types) > 2:
        raise UsageError(f"--types: {text!r} names more than a type of K and one of V", "for example q8_0/q4_0")
    return types[0], types[-1]


def _type_named(name: str) -> CacheType:
    for known in CACHE_TYPES:
        if known == name:
            return known
    raise UsageError(f"--types: there is no cache type {name!r}", f"there are: {', '.join(CACHE_TYPES)}")


def lab_bytes(subject: Subject, tokens: int, pairs: Sequence[Pair]) -> int:
    """Bytes that a measurement takes when all types are computed side by side, about: contexts of f16, for reference
    and noise, and one for each pair. KvchatError when the model cannot have them."""
    total = 0
    for type_k, type_v in (("f16", "f16"), ("f16", "f16"), *pairs):
        flash = uses_flash(subject.geometry, type_v, "auto", on_gpu=False)
        config = CacheConfig(tokens, type_k, type_v, flash, 1, LARGEST_CHUNK, 0, LARGEST_CHUNK)
        total += ledger(subject.geometry, config).bytes + compute_bytes(subject.work, subject.geometry, config)
    return total


class Watch:
    """Follows one measurement by the events of its engine."""

    def __init__(self, turn: str, told: Reported) -> None:
        self._turn = turn
        self._told = told
        self.report: FidelityReport | None = None
        self.over = False

    def take(self, event: Event) -> None:
        """Take over what an event changes. Raises KvchatError when there will be no report."""
        match event:
            case Measuring(turn=self._turn, done=done, total=total):
                self._told(done, total)
            case Measured(turn=self._turn, report=report, failure=failure):
                self.over = True
                self.report = report
                if failure is not None:
                    raise _error(failure)
            case LoadFailed(failure=failure):
                raise _error(failure)
            case EngineDied(cause=cause, restarting=False):
                raise KvchatError(cause, "the log (see kvchat paths) says more")


def _error(failure: Failure) -> KvchatError:
    return KvchatError(failure.message, failure.hint)

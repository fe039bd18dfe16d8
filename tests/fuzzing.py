"""Mutated input for what reads what others wrote, and the rules that hold for all of it; the readers: `fuzz_targets`.

A reader returns, or raises KvchatError. Nothing else comes out, within bounded processor time and memory. The generator
is seeded: a run can be had again. Inputs that led to an outcome that was not seen before are mutated further.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvchat.errors import KvchatError

MOST_SECONDS = 5.0  # of the processor, for one input of a few KB
MOST_MEMORY = 1 << 30  # address space beyond what the process has
MOST_BYTES = 1 << 16  # of an input

_NUMBERS = [0, 1, 2, 127, 128, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
_WORDS = [
    *(b"null", b"true", b"NaN", b"Infinity", b"-1", b"1e999", b'""', b"[]", b"{}", b"[[[[[[[[", b'{"a":' * 50),
    *(b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\x1b[2J", b"9" * 400, b"\n", b"=", b"[a.b]"),
    *(
        b"GGUF",
        b"KVCHATPG",
        b"PK\x03\x04",
        "\N{RIGHT-TO-LEFT OVERRIDE}".encode(),
        b'"mapping"',
        b'"messages"',
        b"'''",
        b"+++",
    ),
]


class TooSlow(Exception):
    """An input took more of the processor than any reader may need."""


# ------------------------------------------------------------------ mutations


def mutated(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """`raw` after one to four changes; `other` lends pieces."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_CHANGES)(rng, data, other)
    return bytes(data[:MOST_BYTES])


def _flip(rng: random.Random, data: bytearray, _: bytes) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray, _: bytes) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 32, 34, 44, 127, 128, 255, rng.randrange(256)))


def _cut(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _drop(rng: random.Random, data: bytearray, _: bytes) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randrange(1, 64)]


def _repeat(rng: random.Random, data: bytearray, _: bytes) -> None:
    start = rng.randrange(len(data) + 1)
    piece = bytes(data[start : start + rng.randrange(1, 64)])
    data[start:start] = piece * rng.choice((1, 2, 50))


def _number(rng: random.Random, data: bytearray, _: bytes) -> None:
    size, value = rng.choice((4, 8)), rng.choice(_NUMBERS)
    at = rng.randrange(len(data) + 1) & ~3
    data[at : at + size] = struct.pack("<Q", value)[:size]


def _word(rng: random.Random, data: bytearray, _: bytes) -> None:
    start = rng.randrange(len(data) + 1)
    data[start : start + rng.choice((0, 0, 4, 20))] = rng.choice(_WORDS)


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    start, piece = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    data[start:] = other[piece:]


_CHANGES = (_flip, _byte, _byte, _cut, _drop, _repeat, _number, _number, _word, _word, _splice)


# ------------------------------------------------------------------ what is read


@dataclass(frozen=True)
class Target:
    """A reader: `seeds` are sound inputs, `read` takes one input and a folder to put it into. What it returns says in
    words what it made of it."""

    seeds: Callable[[Path], list[bytes]]
    read: Callable[[bytes, Path], str | None]


# ------------------------------------------------------------------ a run


@dataclass
class Run:
    """What a run found. `bad`: inputs that broke a rule, with what came out; `corpus`: what is mutated."""

    inputs: int = 0
    refused: int = 0
    corpus: list[bytes] = field(default_factory=list)
    bad: list[tuple[bytes, str]] = field(default_factory=list)


def fuzz(target: Target, folder: Path, inputs: int, seed: int, corpus: list[bytes] | None = None) -> Run:
    """Read the seeds, then `inputs` mutated ones."""
    rng = random.Random(seed)
    seeds = target.seeds(folder)
    run = Run(corpus=[*seeds, *(corpus or [])])
    seen = set()
    for raw in seeds:
        seen.add(_outcome(run, target, raw, folder))
    with _bounded():
        for _ in range(inputs):
            raw = mutated(rng, rng.choice(run.corpus), rng.choice(run.corpus))
            outcome = _outcome(run, target, raw, folder)
            run.inputs += 1
            if outcome not in seen and len(run.corpus) < 500:
                seen.add(outcome)
                run.corpus.append(raw)
    return run


def _outcome(run: Run, target: Target, raw: bytes, folder: Path) -> str:
    """What an input led to, without numbers and names."""
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        said = target.read(raw, folder)
    except KvchatError as error:
        run.refused += 1
        said = error.message
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what is looked for)
        run.bad.append((raw, f"{type(error).__name__}: {error}"))
        said = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return re.sub(r"/\S+|'[^']*'|\d\d+", "", said or "")[:300]


@contextmanager
def _bounded() -> Iterator[None]:
    """No more memory and processor time than a few KB of input may take."""

    def stop(_signal: int, _frame: object) -> None:
        raise TooSlow

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    handler = signal.signal(signal.SIGVTALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, handler)

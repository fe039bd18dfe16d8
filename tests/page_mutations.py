"""Damage to page files, drawn by a seeded generator: what a bad disk, a crash or somebody's hand may leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Mutation = Callable[[random.Random, Path, Sequence[Path]], None]
"""Changes one file of a store, given all of them."""

_PAYLOAD_OFFSET = slice(20, 24)  # u32, see kvchat.formats.page
_VERSION = range(8, 12)


def _rewrite(path: Path, raw: bytes | bytearray) -> None:
    path.write_bytes(raw)


def _payload(raw: bytes | bytearray) -> int:
    return int.from_bytes(raw[_PAYLOAD_OFFSET], "little")


def _flip(rng: random.Random, path: Path, first: int, last: int) -> None:
    raw = bytearray(path.read_bytes())
    at = rng.choice([offset for offset in range(first, min(last, len(raw))) if offset not in _VERSION])
    raw[at] ^= 1 << rng.randrange(8)
    _rewrite(path, raw)


def flip_in_header(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    _flip(rng, path, 0, _payload(path.read_bytes()))


def flip_in_payload(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(_payload(raw), len(raw))] ^= 1 << rng.randrange(8)
    _rewrite(path, raw)


def cut(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    raw = path.read_bytes()
    _rewrite(path, raw[: rng.randrange(len(raw))])


def grow(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    _rewrite(path, path.read_bytes() + rng.randbytes(rng.randrange(1, 200)))


def hole(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    """A run of zeros, as a block that was never written."""
    raw = bytearray(path.read_bytes())
    start = rng.randrange(len(raw) // 2)
    end = min(len(raw), start + rng.randrange(64, 4096))
    if not any(raw[start:end]):
        raw[start] ^= 1
    else:
        raw[start:end] = bytes(end - start)
    _rewrite(path, raw)


def shuffle_rows(rng: random.Random, path: Path, _: Sequence[Path]) -> None:
    """Two runs of the payload change places."""
    raw = bytearray(path.read_bytes())
    start, size = _payload(raw), rng.randrange(1, 33)
    while True:
        one, other = sorted(rng.sample(range(start, len(raw) - size), 2))
        left, right = raw[one : one + size], raw[other : other + size]
        if other - one >= size and left != right:
            break
    raw[one : one + size], raw[other : other + size] = right, left
    _rewrite(path, raw)


def _another(rng: random.Random, path: Path, everything: Sequence[Path]) -> Path:
    return rng.choice([other for other in everything if other.name != path.name and other.exists()])


def replace_by_another(rng: random.Random, path: Path, everything: Sequence[Path]) -> None:
    """The page of another place, chat, model or cache type stands in its place."""
    _rewrite(path, _another(rng, path, everything).read_bytes())


def header_of_another(rng: random.Random, path: Path, everything: Sequence[Path]) -> None:
    """A header that is sound, before rows that it does not describe."""
    other = _another(rng, path, everything).read_bytes()
    raw = path.read_bytes()
    _rewrite(path, other[: _payload(other)] + raw[_payload(raw) :])


MUTATIONS: Mapping[str, Mutation] = {
    "flip in the header": flip_in_header,
    "flip in the payload": flip_in_payload,
    "cut": cut,
    "grown": grow,
    "hole": hole,
    "rows swapped": shuffle_rows,
    "another page": replace_by_another,
    "header of another page": header_of_another,
}

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from dataclasses import replace

import pytest
import xxhash

from kvchat.errors import FormatError
from kvchat.formats.page import (
    LayerGroup,
    PageHeader,
    chain_evict,
    chain_tokens,
    decode_header,
    encode_header,
    payload_checksum,
)
from kvchat.formats.state import LayerShape

ROOT = bytes(32)
OTHER = b"\x01" * 32
GQA = (LayerShape(1, 8, 1, 4), LayerShape(1, 6, 1, 12))
MLA = (LayerShape(1, 10, 0, 0),)


def header(**changes: object) -> PageHeader:
    made = PageHeader(
        namespace="0123456789abcdef",
        parent=OTHER,
        tag="",
        ids=(1, 2, 300_000, 0),
        position=128,
        groups=(LayerGroup("full", (0, 1), GQA, 128, 4),),
        labels={"flash_attention": "on", "threads": "1"},
        seconds=1.25,
        checksum=bytes(range(16)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------ keys


def test_key_is_blake2b_over_fields_with_their_lengths() -> None:
    def field(raw: bytes) -> bytes:
        return struct.pack("<Q", len(raw)) + raw

    raw = field(OTHER) + field(b"tokens") + field(b"f16") + field(struct.pack("<3i", 5, 0, 70_000))
    assert chain_tokens(OTHER, "f16", [5, 0, 70_000]) == hashlib.blake2b(raw, digest_size=32).digest()
    raw = field(OTHER) + field(b"evict") + field(struct.pack("<4q", 1, 2, 10, 20))
    assert chain_evict(OTHER, [(1, 2), (10, 20)]) == hashlib.blake2b(raw, digest_size=32).digest()


def test_equal_histories_have_equal_keys() -> None:
    assert chain_tokens(ROOT, "", (1, 2, 3)) == chain_tokens(ROOT, "", [1, 2, 3])
    assert chain_evict(ROOT, [(4, 8)]) == chain_evict(ROOT, ((4, 8),))


def test_different_histories_have_different_keys() -> None:
    keys = [
        chain_tokens(ROOT, "", [1, 2, 3]),
        chain_tokens(OTHER, "", [1, 2, 3]),  # parent
        chain_tokens(ROOT, "f16", [1, 2, 3]),  # tag
        chain_tokens(ROOT, "", [1, 2, 4]),
        chain_tokens(ROOT, "", [1, 2]),
        chain_tokens(ROOT, "", [1, 2, 3, 0]),
        chain_tokens(chain_tokens(ROOT, "", [1]), "", [2, 3]),  # the same tokens, cut elsewhere
        chain_tokens(chain_tokens(ROOT, "", [1, 2]), "", [3]),
        chain_tokens(chain_evict(ROOT, [(0, 1)]), "", [1, 2, 3]),  # after an eviction
        chain_evict(ROOT, []),
        chain_evict(ROOT, [(1, 2)]),
        chain_evict(ROOT, [(1, 2), (2, 3)]),
        chain_evict(ROOT, [(1, 3)]),
        chain_evict(chain_evict(ROOT, [(1, 2)]), [(2, 3)]),
        ROOT,
    ]
    assert all(len(key) == 32 for key in keys)
    assert len(set(keys)) == len(keys)


def test_tag_and_ids_cannot_be_mistaken_for_each_other() -> None:
    assert chain_tokens(ROOT, "abcd", []) != chain_tokens(ROOT, "", [int.from_bytes(b"abcd", "little")])


# ------------------------------------------------------------------ header


@pytest.mark.parametrize(
    "made",
    [
        header(),
        header(tag="f16→q8_0", labels={}, seconds=0.0),
        header(position=0, groups=(LayerGroup("full", (0,), MLA, 0, 4),)),
        header(groups=(LayerGroup("full", (1,), GQA[:1], 128, 4), LayerGroup("window", (0, 2), GQA, 130, 2))),
        header(ids=tuple(range(-3, 125)), groups=(LayerGroup("full", tuple(range(400)), GQA * 200, 128, 128),)),
    ],
)
def test_header_round_trip(made: PageHeader) -> None:
    raw = encode_header(made)
    assert len(raw) % 64 == 0
    read = decode_header(raw + b"payload")
    assert read == replace(made, payload_offset=len(raw))
    assert read.key == chain_tokens(made.parent, made.tag, made.ids)


def test_payload_bytes() -> None:
    assert header().payload_bytes == 4 * (8 + 4 + 6 + 12)
    window = LayerGroup("window", (0,), MLA, 130, 2)
    assert header(groups=(window,)).payload_bytes == 2 * 10


def test_spans_are_rows_of_all_k_then_all_v() -> None:
    # K rows of 8 and 6 bytes, V rows of 4 and 12; four tokens, the middle two are wanted
    assert header().spans(1, 3) == [(8, 16), (4 * 8 + 6, 12), (4 * 14 + 4, 8), (4 * 18 + 12, 24)]
    assert header().spans(0, 4) == [(0, 32), (32, 24), (56, 16), (72, 48)]
    assert header().spans(2, 2) == [(16, 0), (44, 0), (64, 0), (96, 0)]


def test_spans_of_a_window_group() -> None:
    """A group that has the cells of the last two of four tokens only."""
    made = header(groups=(LayerGroup("full", (0,), MLA, 128, 4), LayerGroup("window", (1,), MLA, 130, 2)))
    assert made.spans(0, 4) == [(0, 40), (40, 20)]
    assert made.spans(0, 3) == [(0, 30), (40, 10)]
    assert made.spans(3, 4) == [(30, 10), (50, 10)]
    assert made.spans(0, 2) == [(0, 20), (40, 0)]


def test_checksum_does_not_depend_on_the_cuts() -> None:
    raw = bytes(range(200))
    assert payload_checksum([memoryview(raw)]) == xxhash.xxh3_128_digest(raw)
    assert payload_checksum([memoryview(raw)[:7], memoryview(raw)[7:]]) == xxhash.xxh3_128_digest(raw)


def test_every_flipped_bit_is_seen() -> None:
    raw = encode_header(header())
    for offset, bit in itertools.product(range(len(raw)), (0, 7)):
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << bit
        with pytest.raises(FormatError):
            decode_header(bytes(damaged))


def test_every_truncation_is_seen() -> None:
    raw = encode_header(header())
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            decode_header(raw[:size])


def sealed(fields: object, **sizes: int) -> bytes:
    """A header whose checksum is right, whatever it says."""
    text = json.dumps(fields).encode() if not isinstance(fields, bytes) else fields
    numbers = {"version": 1, "ids": 2, "text": len(text), "offset": 1024, "payload": 2 * 30} | sizes
    raw = bytearray(struct.pack("<8s4IQ16s16s", b"KVCHATPG", *numbers.values(), bytes(16), bytes(16)))
    raw += bytes(32) + struct.pack("<2i", 1, 2) + text
    raw += bytes(1024 - len(raw))
    raw[48:64] = hashlib.blake2b(raw[: min(numbers["offset"], 1024)], digest_size=16).digest()
    return bytes(raw)


GROUP = {"name": "full", "start": 0, "cells": 2, "layers": [0, 1], "shapes": [[1, 8, 1, 4], [1, 6, 1, 12]]}
FIELDS = {"namespace": "n", "tag": "", "position": 0, "groups": [GROUP], "labels": {}, "seconds": 0.5}


def test_sealed_header_is_sound() -> None:
    assert decode_header(sealed(FIELDS)).ids == (1, 2)


BAD_FIELDS = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 900,
    [],
    3,
    {},
    FIELDS | {"namespace": 5},
    FIELDS | {"tag": None},
    FIELDS | {"tag": "\ud800"},
    FIELDS | {"position": -1},
    FIELDS | {"position": 1.0},
    FIELDS | {"position": True},
    FIELDS | {"position": 10**30},
    FIELDS | {"seconds": "1"},
    FIELDS | {"seconds": float("nan")},
    FIELDS | {"seconds": float("inf")},
    FIELDS | {"seconds": -1.0},
    FIELDS | {"labels": []},
    FIELDS | {"labels": {"a": 1}},
    FIELDS | {"groups": {}},
    FIELDS | {"groups": []},  # no layers, but 60 bytes promised
    FIELDS | {"groups": [GROUP | {"layers": 2}]},
    FIELDS | {"groups": [GROUP | {"layers": [0]}]},
    FIELDS | {"groups": [GROUP | {"shapes": [[1, 8, 1], [1, 6, 1, 12]]}]},
    FIELDS | {"groups": [GROUP | {"shapes": [5, 6]}]},
    FIELDS | {"groups": [GROUP | {"shapes": [[1, -8, 1, 4], [1, 6, 1, 12]]}]},
    FIELDS | {"groups": [GROUP | {"cells": 3}]},  # more cells than tokens
    FIELDS | {"groups": [GROUP | {"start": 1}]},
    FIELDS | {"position": 1},  # cells before the first token
    FIELDS | {"groups": [GROUP, GROUP]},
]


@pytest.mark.parametrize("fields", BAD_FIELDS)
def test_malformed_fields_are_refused(fields: object) -> None:
    with pytest.raises(FormatError):
        decode_header(sealed(fields))


@pytest.mark.parametrize(
    "sizes",
    [
        {"version": 2},
        {"ids": 0},
        {"ids": 2**32 - 1},
        {"text": 2**32 - 1},
        {"offset": 0},
        {"offset": 64},
        {"offset": 1000},  # not aligned
        {"offset": 2**32 - 64},
        {"payload": 0},
        {"payload": 2**64 - 1},
    ],
)
def test_absurd_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(FormatError):
        decode_header(sealed(FIELDS, **sizes))


def test_a_header_too_large_to_be_read_is_not_written() -> None:
    with pytest.raises(ValueError):
        encode_header(header(labels={"x": "y" * 2**20}))

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
    OtherVersionError,
    PageHeader,
    chain_evict,
    chain_tokens,
    checkpoint_key,
    decode_header,
    encode_header,
    pack_ids,
    payload_checksum,
)
from kvchat.formats.rows import LayerShape

ROOT = bytes(32)
OTHER = b"\x01" * 32
GQA = (LayerShape(1, 8, 1, 4), LayerShape(1, 6, 1, 12))
MLA = (LayerShape(1, 10, 0, 0),)
STATE = (LayerShape(0, 0, 0, 40), LayerShape(0, 12, 0, 8))


def header(**changes: object) -> PageHeader:
    made = PageHeader(
        kind="page",
        namespace="0123456789abcdef",
        parent=OTHER,
        tag="",
        ids=(1, 2, 300_000, 0),
        position=128,
        groups=(LayerGroup("full", GQA, 128, 4, bytes(range(16))),),
        labels={"flash_attention": "on", "threads": "1"},
        seconds=1.25,
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
    raw = field(OTHER) + field(b"checkpoint") + field(struct.pack("<2i", 5, 70_000))
    assert checkpoint_key(OTHER, pack_ids([5, 70_000])) == hashlib.blake2b(raw, digest_size=32).digest()


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
        checkpoint_key(ROOT, pack_ids([1, 2, 3])),
        checkpoint_key(ROOT, pack_ids([1, 2])),
        checkpoint_key(chain_tokens(ROOT, "", [1]), pack_ids([2, 3])),
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
        header(position=0, groups=(LayerGroup("full", MLA, 0, 4),)),
        header(groups=(LayerGroup("full", GQA[:1], 128, 4), LayerGroup("window", GQA, 130, 2, bytes(range(9, 25))))),
        header(groups=(LayerGroup("full", GQA, 128, 4), LayerGroup("window", MLA, 132, 0))),
        header(groups=()),
        header(kind="checkpoint", groups=(LayerGroup("state", STATE, 131, 1, bytes(range(16))),)),
        header(ids=tuple(range(-3, 125)), groups=(LayerGroup("full", GQA * 200, 128, 128),)),
    ],
)
def test_header_round_trip(made: PageHeader) -> None:
    raw = encode_header(made)
    assert len(raw) % 64 == 0
    read = decode_header(raw + b"payload")
    assert read == replace(made, payload_offset=len(raw))
    if made.kind == "page":
        assert read.key == chain_tokens(made.parent, made.tag, made.ids)
    else:
        assert read.key == checkpoint_key(made.parent, pack_ids(made.ids))


FULL = LayerGroup("full", MLA, 128, 4)
WINDOW = LayerGroup("window", GQA, 130, 2)


def test_payload_bytes() -> None:
    assert header().payload_bytes == 4 * (8 + 4 + 6 + 12)
    assert header(groups=(WINDOW,)).payload_bytes == 2 * 30
    assert header(groups=(FULL, WINDOW)).payload_bytes == 4 * 10 + 2 * 30
    assert header(groups=()).payload_bytes == 0


def test_rows_are_those_of_all_k_then_all_v_without_empty_ones() -> None:
    assert WINDOW.rows == [8, 6, 4, 12]
    assert FULL.rows == [10]
    assert LayerGroup("state", STATE, 131, 1).rows == [12, 40, 8]


def test_groups_lie_one_after_the_other() -> None:
    made = header(groups=(FULL, WINDOW))
    assert made.group("full") == (FULL, 0)
    assert made.group("window") == (WINDOW, 4 * 10)
    with pytest.raises(FormatError, match="state"):
        made.group("state")


def test_complete_are_the_last_tokens_that_have_rows_in_every_group() -> None:
    assert header().complete == 4
    assert header(groups=(FULL, WINDOW)).complete == 2
    assert header(groups=(FULL, replace(WINDOW, start=132, cells=0))).complete == 0
    assert header(groups=()).complete == 4  # a model without keys and values lacks none
    assert header(kind="checkpoint", groups=(LayerGroup("state", STATE, 131, 1),)).complete == 4


def test_checksum_does_not_depend_on_the_cuts() -> None:
    raw = bytes(range(200))
    assert payload_checksum([memoryview(raw)]) == xxhash.xxh3_128_digest(raw)
    assert payload_checksum([memoryview(raw)[:7], memoryview(raw)[7:]]) == xxhash.xxh3_128_digest(raw)


KINDS = [
    header(),
    header(groups=(FULL, WINDOW)),
    header(groups=()),
    header(kind="checkpoint", groups=(LayerGroup("state", STATE, 131, 1, bytes(range(16))),)),
]


@pytest.mark.parametrize("made", KINDS)
def test_every_flipped_bit_is_seen(made: PageHeader) -> None:
    raw = encode_header(made)
    for offset, bit in itertools.product(range(len(raw)), (0, 7)):
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << bit
        with pytest.raises(FormatError):
            decode_header(bytes(damaged))


@pytest.mark.parametrize("made", KINDS)
def test_every_truncation_is_seen(made: PageHeader) -> None:
    raw = encode_header(made)
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            decode_header(raw[:size])


def sealed(fields: object, **sizes: int) -> bytes:
    """A header whose checksum is right, whatever it says."""
    text = json.dumps(fields).encode() if not isinstance(fields, bytes) else fields
    numbers = {"version": 2, "ids": 2, "text": len(text), "offset": 1024, "payload": 2 * 30} | sizes
    raw = bytearray(struct.pack("<8s4IQ16s", b"KVCHATPG", *numbers.values(), bytes(16)))
    raw += OTHER + struct.pack("<2i", 1, 2) + text
    raw += bytes(1024 - len(raw))
    raw[32:48] = hashlib.blake2b(raw[: min(numbers["offset"], 1024)], digest_size=16).digest()
    return bytes(raw)


GROUP = {"name": "full", "start": 0, "cells": 2, "shapes": [[1, 8, 1, 4], [1, 6, 1, 12]], "checksum": "0f" * 16}
FIELDS = {
    "kind": "page",
    "namespace": "n",
    "tag": "",
    "position": 0,
    "groups": [GROUP],
    "labels": {},
    "seconds": 0.5,
}


def test_sealed_header_is_sound() -> None:
    group = LayerGroup("full", GQA, 0, 2, b"\x0f" * 16)
    assert decode_header(sealed(FIELDS)) == PageHeader("page", "n", OTHER, "", (1, 2), 0, (group,), {}, 0.5, 1024)
    checkpoint = decode_header(sealed(FIELDS | {"kind": "checkpoint", "groups": []}, payload=0))
    assert (checkpoint.kind, checkpoint.groups) == ("checkpoint", ())
    with pytest.raises(OtherVersionError):
        decode_header(sealed(FIELDS, version=1))


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
    FIELDS | {"kind": "state"},
    FIELDS | {"kind": None},
    FIELDS | {"kind": ["page"]},
    {name: value for name, value in FIELDS.items() if name != "kind"},
    FIELDS | {"groups": []},  # no layers, but 60 bytes promised
    FIELDS | {"groups": [GROUP | {"shapes": 2}]},
    FIELDS | {"groups": [GROUP | {"shapes": [[1, 8, 1, 4]]}]},
    FIELDS | {"groups": [GROUP | {"checksum": "0f" * 15}]},
    FIELDS | {"groups": [GROUP | {"checksum": "0f" * 17}]},
    FIELDS | {"groups": [GROUP | {"checksum": "0g" * 16}]},
    FIELDS | {"groups": [GROUP | {"checksum": 0}]},
    FIELDS | {"groups": [{name: value for name, value in GROUP.items() if name != "checksum"}]},
    FIELDS | {"groups": [GROUP | {"shapes": [[1, 8, 1], [1, 6, 1, 12]]}]},
    FIELDS | {"groups": [GROUP | {"shapes": [5, 6]}]},
    FIELDS | {"groups": [GROUP | {"shapes": [[1, -8, 1, 4], [1, 6, 1, 12]]}]},
    FIELDS | {"groups": [GROUP | {"cells": 3}]},  # more cells than tokens
    FIELDS | {"groups": [GROUP | {"start": 1}]},
    FIELDS | {"groups": [GROUP | {"start": 0, "cells": 1, "shapes": [[1, 48, 1, 12]]}]},  # not up to the last token
    FIELDS | {"position": 1},  # cells before the first token
    FIELDS | {"position": 1, "groups": [GROUP | {"cells": 3, "shapes": [[1, 12, 1, 8]]}]},
    FIELDS | {"groups": [GROUP, GROUP]},
]


@pytest.mark.parametrize("fields", BAD_FIELDS)
def test_malformed_fields_are_refused(fields: object) -> None:
    with pytest.raises(FormatError):
        decode_header(sealed(fields))


@pytest.mark.parametrize(
    "sizes",
    [
        {"version": 1},
        {"version": 3},
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

"""The blob layout is written out by hand here, after llama-kv-cache.cpp (state_write_meta, state_write_data)."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest

from kvchat.errors import FormatError
from kvchat.formats.state import BlobBuffer, LayerShape, parse

F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30

GQA = (LayerShape(F16, 8, F16, 4), LayerShape(F16, 6, F16, 12))
QUANTIZED = (LayerShape(Q8_0, 34, Q4_0, 18), LayerShape(Q8_0, 34, Q4_0, 18))
MLA = (LayerShape(F16, 10, 0, 0), LayerShape(F16, 10, 0, 0))
WIDE = (LayerShape(F32, 4, F32, 8),)
BRAIN = (LayerShape(Q8_0, 34, BF16, 6),)


def row(kind: str, layer: int, position: int, size: int) -> bytes:
    """The bytes of a row; every row and every place in it differs from its neighbours."""
    seed = position * 31 + layer * 7 + (100 if kind == "v" else 0)
    return bytes((seed + 3 * i) % 256 for i in range(size))


def blob(layers: Sequence[LayerShape], positions: Sequence[int], v_trans: bool, seq_id: int = 0) -> bytes:
    out = struct.pack("<IiII", 0xAF143CD8, seq_id, 1, len(positions))
    if not positions:
        return out
    out += b"".join(struct.pack("<iIi", position, 1, seq_id) for position in positions)
    out += struct.pack("<II", int(v_trans), len(layers))
    for i, shape in enumerate(layers):
        out += struct.pack("<iQ", shape.k_type, shape.k_row)
        out += b"".join(row("k", i, position, shape.k_row) for position in positions)
    for i, shape in enumerate(layers):
        if not shape.v_row:
            continue
        rows = [row("v", i, position, shape.v_row) for position in positions]
        if v_trans:
            size = {F32: 4, F16: 2, BF16: 2}[shape.v_type]
            out += struct.pack("<iII", shape.v_type, size, shape.v_row // size)
            for start in range(0, shape.v_row, size):
                out += b"".join(each[start : start + size] for each in rows)
        else:
            out += struct.pack("<iQ", shape.v_type, shape.v_row) + b"".join(rows)
    return out


KINDS = [  # layers, V transposed (flash attention off)
    (GQA, False),
    (GQA, True),
    (QUANTIZED, False),
    (MLA, False),
    (MLA, True),
    (WIDE, True),
    (BRAIN, True),  # K and V of different types
]


def test_size_of_a_real_blob() -> None:
    """SmolLM2-135M: 30 layers, 3 KV heads of 64, f16; 100 tokens are 2,305,944 bytes in llama.cpp."""
    buffer = BlobBuffer([LayerShape(F16, 384, F16, 384)] * 30, range(100), False)
    assert buffer.finish().nbytes == 12 + 4 + 12 * 100 + 8 + 30 * (12 + 12) + 100 * 30 * (384 + 384) == 2_305_944


@pytest.mark.parametrize(("layers", "v_trans"), KINDS)
def test_parse_gives_rows_in_position_order(layers: tuple[LayerShape, ...], v_trans: bool) -> None:
    state = parse(blob(layers, [4, 5, 6, 9], v_trans))
    assert state.positions.tolist() == [4, 5, 6, 9] and state.positions.dtype == np.int32
    assert state.layers == layers
    assert state.v_trans == v_trans
    for i, shape in enumerate(layers):
        assert state.k(i).tobytes() == b"".join(row("k", i, position, shape.k_row) for position in (4, 5, 6, 9))
        assert state.v(i).shape == (4, shape.v_row)
        assert state.v(i).tobytes() == b"".join(row("v", i, position, shape.v_row) for position in (4, 5, 6, 9))


@pytest.mark.parametrize(("layers", "v_trans"), KINDS)
def test_cells_out_of_order_are_sorted(layers: tuple[LayerShape, ...], v_trans: bool) -> None:
    sorted_state = parse(blob(layers, [3, 7, 8], v_trans))
    state = parse(blob(layers, [8, 3, 7], v_trans))
    assert state.positions.tolist() == [3, 7, 8]
    assert [part.tobytes() for part in state.payload_parts()] == [
        part.tobytes() for part in sorted_state.payload_parts()
    ]


def test_payload_is_all_k_then_all_v() -> None:
    state = parse(blob(GQA, [0, 1], True))
    expected = [("k", 0, 8), ("k", 1, 6), ("v", 0, 4), ("v", 1, 12)]
    assert [part.tobytes() for part in state.payload_parts()] == [
        row(kind, layer, 0, size) + row(kind, layer, 1, size) for kind, layer, size in expected
    ]


def test_rows_are_views_of_the_blob() -> None:
    raw = np.frombuffer(blob(GQA, [0, 1, 2], False), np.uint8)
    state = parse(raw.data)
    for layer in range(2):
        assert np.shares_memory(state.k(layer), raw)
        assert np.shares_memory(state.v(layer), raw)


@pytest.mark.parametrize("positions", [[], [7], [0, 1, 2, 3, 4], [2, 3, 11]])
@pytest.mark.parametrize(("layers", "v_trans"), KINDS)
def test_buffer_builds_the_same_bytes(layers: tuple[LayerShape, ...], v_trans: bool, positions: list[int]) -> None:
    buffer = BlobBuffer(layers, positions, v_trans, seq_id=3)
    for start in range(0, len(positions), 2):  # two cells at a time, the last piece may be one
        there = positions[start : start + 2]
        rows = [b"".join(row("k", i, p, shape.k_row) for p in there) for i, shape in enumerate(layers)]
        rows += [b"".join(row("v", i, p, shape.v_row) for p in there) for i, shape in enumerate(layers) if shape.v_row]
        for view, raw in zip(buffer.views(start, len(there)), rows, strict=True):
            view[:] = raw
    assert bytes(buffer.finish()) == blob(layers, positions, v_trans, seq_id=3)
    assert not buffer.finish().readonly


def test_empty_state() -> None:
    state = parse(blob(GQA, [], False))
    assert len(state.positions) == 0
    assert state.payload_parts() == []


@pytest.mark.parametrize(("layers", "v_trans"), KINDS)
def test_every_truncation_is_refused(layers: tuple[LayerShape, ...], v_trans: bool) -> None:
    raw = blob(layers, [0, 1, 2], v_trans)
    k_only = 16 + 36 + 8 + sum(12 + 3 * shape.k_row for shape in layers)  # this prefix is a whole MLA blob
    for size in range(len(raw)):
        if size != k_only:
            with pytest.raises(FormatError):
                parse(raw[:size])
    with pytest.raises(FormatError):
        parse(raw + b"\0")


HUGE = b"\xff\xff\xff\xff"
DAMAGE = [  # offset into a GQA blob of two cells, bytes that are put there
    (0, b"\0"),  # magic
    (8, struct.pack("<I", 2)),  # streams
    (8, struct.pack("<I", 0)),
    (12, HUGE),  # cells
    (16, struct.pack("<i", -1)),  # a negative position
    (16, struct.pack("<i", 1)),  # one position twice
    (20, struct.pack("<I", 2)),  # a cell of two sequences
    (40, struct.pack("<I", 2)),  # v_trans
    (44, HUGE),  # layers
    (44, struct.pack("<I", 0)),
    (52, HUGE + HUGE),  # row bytes
    (52, bytes(8)),
]


@pytest.mark.parametrize(("offset", "raw"), DAMAGE)
def test_absurd_counts_are_refused(offset: int, raw: bytes) -> None:
    damaged = bytearray(blob(GQA, [0, 1], False))
    damaged[offset : offset + len(raw)] = raw
    with pytest.raises(FormatError):
        parse(bytes(damaged))


@pytest.mark.parametrize(
    "header",
    [
        (F16, 4, 2),  # f16 has 2 bytes
        (Q8_0, 2, 2),  # blocks cannot be transposed
        (F16, 2, 0),
        (F16, 2, 0xFFFFFFFF),
    ],
)
def test_absurd_transposed_v_is_refused(header: tuple[int, int, int]) -> None:
    raw = bytearray(blob(GQA[:1], [0, 1], True))
    at = 16 + 24 + 8 + 12 + 2 * 8
    raw[at : at + 12] = struct.pack("<iII", *header)
    with pytest.raises(FormatError):
        parse(bytes(raw))


def test_m_rope_cells_are_refused() -> None:
    """Their metadata has 12 bytes more between the count of sequences and the sequence (llama_kv_cell_ext)."""
    cells = b"".join(struct.pack("<iIiiii", position, 1, 0, 0, 5, 0) for position in range(3))
    rest = blob(GQA, [0, 1, 2], False)[16 + 36 :]
    with pytest.raises(FormatError):
        parse(struct.pack("<IiII", 0xAF143CD8, 0, 1, 3) + cells + rest)


def test_random_damage_never_escapes_as_another_error() -> None:
    source = random.Random(5)
    raw = blob(GQA, [0, 1, 2], True)
    for _ in range(2000):
        damaged = bytearray(raw)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(raw))] = source.randrange(256)
        with suppress(FormatError):
            parse(bytes(damaged))


@pytest.mark.parametrize(
    ("layers", "v_trans"),
    [
        (QUANTIZED, True),  # no whole elements
        ((LayerShape(F16, 4, F16, 3),), True),
        ((LayerShape(F16, 4, F16, 4), LayerShape(F16, 4, 0, 0)), False),  # V in one layer only
    ],
)
def test_impossible_buffers_are_refused(layers: tuple[LayerShape, ...], v_trans: bool) -> None:
    with pytest.raises(ValueError):
        BlobBuffer(layers, [0], v_trans)

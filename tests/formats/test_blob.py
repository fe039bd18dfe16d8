"""Blobs that are built are those that llama.cpp writes, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from blob_layout import BLOBS, F16, F32, GQA, NARROW, QUANTIZED, STATE, Blob, of, recurrent

from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.rows import LayerShape, Part, PartShape
from kvchat.formats.state import parse

every_blob = pytest.mark.parametrize("made", BLOBS.values(), ids=BLOBS.keys())


def buffer(made: Blob, seq_id: int = 0) -> BlobBuffer:
    parts = {part: PartCells(shape, positions) for part, (shape, positions) in made.parts.items()}
    return BlobBuffer(parts, seq_id, made.ids)


def fill(blob: BlobBuffer, made: Blob, part: Part, start: int, count: int) -> None:
    positions = made.parts[part][1][start : start + count]
    for view, raw in zip(blob.views(part, start, count), made.payload(part, positions), strict=True):
        view[:] = raw


# ------------------------------------------------------------------ sizes that llama.cpp gives


def size(parts: dict[Part, tuple[PartShape, Sequence[int]]]) -> int:
    return buffer(Blob(parts)).finish().nbytes


def test_size_of_a_real_blob() -> None:
    """SmolLM2-135M: 30 layers, 3 KV heads of 64, f16; 100 tokens are 2,305,944 bytes in llama.cpp."""
    made = size({"full": (PartShape((LayerShape(F16, 384, F16, 384),) * 30), range(100))})
    assert made == 12 + 4 + 12 * 100 + 8 + 30 * (12 + 12) + 100 * 30 * (384 + 384) == 2_305_944


def test_size_of_a_real_blob_with_a_window() -> None:
    """gemma-3-270m: 3 layers that keep all tokens, 15 with a window of 512, one KV head of 256, f16; 1,600 tokens."""
    layer = LayerShape(F16, 512, F16, 512)
    window: tuple[PartShape, Sequence[int]] = (PartShape((layer,) * 15), range(1600 - 512, 1600))
    assert size({"window": window}) == 15 * 512 * 1024 + 6528 == 7_870_848
    assert size({"full": (PartShape((layer,) * 3), range(1600)), "window": window}) == 12_805_336


def test_size_of_a_real_recurrent_blob() -> None:
    """A mamba of 3 layers: R of 6,144 and S of 32,768 bytes."""
    shape = PartShape((LayerShape(F32, 6144, F32, 32768),) * 3, False, 3)
    assert size({"state": (shape, [41])}) == 28 + 3 * (24 + 6144 + 32768) == 116_836


def test_cells_with_two_dimensional_positions_take_24_bytes() -> None:
    plain = Blob({"full": (of(*GQA), range(7))})
    assert len(plain.encoded()) == 8 + 8 + 7 * 12 + 8 + 4 * 12 + 7 * 30
    plane = Blob(plain.parts, ids=range(7))
    assert buffer(plane).finish().nbytes - buffer(plain).finish().nbytes == 7 * (24 - 12)


# ------------------------------------------------------------------ bytes


@every_blob
@pytest.mark.parametrize("step", [1, 2, 3, 10])
def test_buffer_builds_the_same_bytes(made: Blob, step: int) -> None:
    blob = buffer(made, seq_id=3)
    for part, (_, positions) in made.parts.items():
        for start in range(0, len(positions), step):  # the last piece may be smaller
            fill(blob, made, part, start, min(step, len(positions) - start))
    assert bytes(blob.finish()) == made.encoded(seq_id=3)
    assert not blob.finish().readonly


@every_blob
def test_parts_are_filled_in_any_order(made: Blob) -> None:
    pieces = [(part, at) for part, (_, positions) in made.parts.items() for at in range(len(positions))]
    random.Random(7).shuffle(pieces)
    blob = buffer(made)
    for part, at in pieces:
        fill(blob, made, part, at, 1)
    assert bytes(blob.finish()) == made.encoded()


@every_blob
def test_what_was_parsed_builds_the_blob_again(made: Blob) -> None:
    found = parse(made.encoded(), made.layout)
    blob = BlobBuffer({part: PartCells(rows.shape, rows.positions) for part, rows in found.items()}, 0, made.ids)
    for part, rows in found.items():
        for view, raw in zip(blob.views(part, 0, len(rows.positions)), rows.payload(), strict=True):
            view[:] = raw
    assert bytes(blob.finish()) == Blob(made.filled, made.ids).encoded()


def test_cells_lie_in_the_order_that_was_asked_for() -> None:
    made = Blob({"full": (of(*GQA, v_trans=True), [5, 2, 9]), "window": (of(*NARROW), [9, 8])})
    blob = buffer(made)
    fill(blob, made, "full", 0, 3)
    fill(blob, made, "window", 0, 2)
    assert bytes(blob.finish()) == made.encoded()


def test_no_view_is_empty() -> None:
    made = BLOBS["recurrent, R of 0 bytes"]
    assert [view.nbytes for view in buffer(made).views("state", 0, 1)] == [12, 20, 8]
    assert buffer(BLOBS["full without layers"]).views("full", 0, 3) == []
    assert [view.nbytes for view in buffer(BLOBS["mla"]).views("full", 1, 2)] == [20, 20]


# ------------------------------------------------------------------ what cannot be


@pytest.mark.parametrize("part", ["full", "window"])
@pytest.mark.parametrize(
    ("layers", "v_trans"),
    [
        (QUANTIZED, True),  # no whole elements
        ((LayerShape(F16, 4, F16, 3),), True),
        ((LayerShape(F16, 4, F16, 4), LayerShape(F16, 4, 0, 0)), False),  # V in one layer only
        ((LayerShape(F16, 4, F16, 4), LayerShape(F16, 4, 0, 0)), True),
    ],
)
def test_impossible_buffers_are_refused(layers: tuple[LayerShape, ...], v_trans: bool, part: Part) -> None:
    with pytest.raises(ValueError):
        BlobBuffer({part: PartCells(PartShape(layers, v_trans), [0])})


def test_rows_of_a_recurrent_state_may_be_missing_in_some_layers() -> None:
    state = recurrent(LayerShape(F32, 4, F32, 0), *STATE)
    assert size({"state": (state, [0])}) == 8 + 12 + 8 + 6 * 12 + 4 + sum((12, 20, 8, 16))

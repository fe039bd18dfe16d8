"""Rows of one cache type as rows of another, against the definitions: gguf's numpy quantizers, and the rotation by its
closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kv_shapes import header, shape
from numpy_quants import NumpyQuants

from kvchat.errors import KvchatError
from kvchat.formats.ggml import GGML_NUMBERS, row_bytes, type_named
from kvchat.formats.rows import LayerShape, Part, PartShape, Rows
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.newpage import NewPage, NewRows
from kvchat.kv.transcode import TYPES, Form, Transcoder, precision, shapes_as
from kvchat.kv.transcode_pages import page_as

QUANTS = NumpyQuants()
CELLS, HEADS, LAYERS = 5, 2, 2
ENCODED = [name for name in TYPES if name != "iq4_nl"]  # gguf has no way to that one


def sylvester(size: int) -> np.ndarray:
    """Entry (i, j) is -1 to the number of ones that i and j share in binary, over the root of the size."""
    shared = np.arange(size)[:, None] & np.arange(size)
    ones = sum((shared >> bit) & 1 for bit in range(size.bit_length()))
    return ((-1.0) ** ones / np.sqrt(size)).astype(np.float32)


def plain(size: int = 64, **values: Any) -> Geometry:
    return shape("llama", LAYERS, 4, HEADS, size, **values)


def values_of(seed: int, width: int, cells: int = CELLS) -> np.ndarray:
    """What a cache could hold, float32 that f16 holds exactly."""
    drawn = np.random.default_rng(seed).standard_normal((cells, width)) * 3
    return drawn.astype(np.float16).astype(np.float32)


def stored(values: np.ndarray, kind: str, block: int) -> np.ndarray:
    """Rows of these values by the definition, uint8 (cells, row bytes)."""
    turned = (values.reshape(-1, block) @ sylvester(block)).reshape(values.shape) if block else values
    out = np.empty((len(values), row_bytes(values.shape[1], kind)), np.uint8)
    QUANTS.encode(kind, np.ascontiguousarray(turned).reshape(-1), out.reshape(-1))
    return out


def rows_of(kind_k: str, kind_v: str, block_k: int, block_v: int, width: int = 128) -> Rows:
    k = tuple(stored(values_of(layer, width), kind_k, block_k) for layer in range(LAYERS))
    v = tuple(stored(values_of(10 + layer, width), kind_v, block_v) for layer in range(LAYERS))
    one = LayerShape(GGML_NUMBERS[kind_k], k[0].shape[1], GGML_NUMBERS[kind_v], v[0].shape[1])
    return Rows(PartShape((one,) * LAYERS), np.arange(CELLS, dtype=np.int32), k, v)


def same(a: Rows, b: Rows) -> bool:
    layers = range(len(a.shape.layers))
    return a.shape == b.shape and all(
        np.array_equal(a.k(layer), b.k(layer)) and np.array_equal(a.v(layer), b.v(layer)) for layer in layers
    )


def nearly(a: Rows, b: Rows) -> float:
    """The largest relative distance between the values of two rows of one shape, before they are turned back."""
    distances = []
    for layer, one in enumerate(a.shape.layers):
        for number, x, y in ((one.k_type, a.k(layer), b.k(layer)), (one.v_type, a.v(layer), b.v(layer))):
            kind = next(name for name, known in GGML_NUMBERS.items() if known == number)
            floats = [np.empty(each.size // type_named(kind).bytes * type_named(kind).block, "f4") for each in (x, y)]
            for raw, out in zip((x, y), floats, strict=True):
                QUANTS.decode(kind, raw.reshape(-1), out)
            distances.append(float(np.linalg.norm(floats[0] - floats[1]) / np.linalg.norm(floats[1])))
    return max(distances)


@pytest.mark.parametrize("kind", ENCODED[1:])
@pytest.mark.parametrize(("size", "block"), [(64, 64), (128, 128), (192, 64), (96, 0), (32, 0)])
def test_from_f16_as_if_computed_so(kind: str, size: int, block: int) -> None:
    """The f16 values are exact, so what comes is, byte for byte, what llama.cpp would store of them: K turned in blocks
    of the largest power of two that divides the head, V in blocks of 64; nothing where 64 does not divide the head, and
    no type that is not quantized."""
    turned = block and type_named(kind).block > 1
    width = HEADS * size
    transcoder = Transcoder(QUANTS, plain(size), Form("f16", "f16"), Form(kind, kind))
    found = transcoder.rows("full", rows_of("f16", "f16", 0, 0, width))
    expected = rows_of(kind, kind, block if turned else 0, 64 if turned else 0, width)
    assert found.shape == expected.shape
    assert nearly(found, expected) < 0.02 if turned else same(found, expected)  # sums in another order round otherwise


def test_k_and_v_apart() -> None:
    transcoder = Transcoder(QUANTS, plain(128), Form("f16", "q8_0"), Form("q4_0", "bf16"))
    found = transcoder.rows("full", rows_of("f16", "q8_0", 0, 64, 256))
    assert nearly(found, rows_of("q4_0", "bf16", 128, 0, 256)) < 0.02


@pytest.mark.parametrize("kind", ENCODED)
def test_one_type_in_one_form_is_a_copy(kind: str) -> None:
    rows = rows_of(kind, kind, 0, 0)
    noise = np.random.default_rng(0).integers(0, 256, rows.k(0).shape, np.uint8)
    rows = Rows(rows.shape, rows.positions, (noise, rows.k(1)), (rows.v(0), rows.v(1)))
    assert same(Transcoder(QUANTS, plain(), Form(kind, kind), Form(kind, kind)).rows("full", rows), rows)


def test_turned_and_not_turned_are_two_forms() -> None:
    """Pages that were written under LLAMA_ATTN_ROT_DISABLE."""
    transcoder = Transcoder(QUANTS, plain(), Form("q8_0", "q8_0", rotation=False), Form("q8_0", "q8_0"))
    found = transcoder.rows("full", rows_of("q8_0", "q8_0", 0, 0))
    assert not same(found, rows_of("q8_0", "q8_0", 0, 0))
    assert nearly(found, rows_of("q8_0", "q8_0", 64, 64)) < 0.02


@pytest.mark.parametrize("kind", ENCODED[1:])
def test_there_and_back(kind: str) -> None:
    """What is lost is what the type loses: bits of mantissa, or steps of a block."""
    there = Transcoder(QUANTS, plain(), Form("f16", "f16"), Form(kind, kind))
    back = Transcoder(QUANTS, plain(), Form(kind, kind), Form("f16", "f16"))
    rows = rows_of("f16", "f16", 0, 0)
    most = {"bf16": 2**-8, "q8_0": 0.01}.get(kind, 0.15)
    assert 0 < nearly(back.rows("full", there.rows("full", rows)), rows) < most


def test_window_layers_are_turned_by_their_own_heads() -> None:
    gemma4 = geometry(
        header(
            "gemma4",
            block_count=6,
            attention__head_count=8,
            attention__head_count_kv=1,
            attention__key_length=512,
            attention__value_length=512,
            attention__key_length_swa=256,
            attention__value_length_swa=256,
            attention__sliding_window=512,
            attention__sliding_window_pattern=[1, 1, 1, 1, 1, 0],
        )
    )
    assert gemma4.rotation("full", "q8_0", "f16") == (512, 0)
    assert gemma4.rotation("window", "q8_0", "q8_0") == (256, 64)
    rows = rows_of("f16", "f16", 0, 0, 512)
    transcoder = Transcoder(QUANTS, gemma4, Form("f16", "f16"), Form("q8_0", "q8_0"))
    assert nearly(transcoder.rows("full", rows), rows_of("q8_0", "q8_0", 512, 64, 512)) < 0.02
    assert nearly(transcoder.rows("window", rows), rows_of("q8_0", "q8_0", 256, 64, 512)) < 0.02


def test_mla_and_hybrids_with_a_window_are_not_turned() -> None:
    """llama.cpp's log says that it rotates, and its graph does not."""
    mla = {"attention__key_length": 576, "attention__value_length": 512, "attention__key_length_mla": 192}
    deepseek = shape("deepseek2", 2, 16, 1, 0, attention__value_length_mla=128, **mla)
    assert deepseek.rotated("q8_0", "q8_0")[0]
    assert deepseek.rotation("full", "q8_0", "q8_0") == (0, 0)
    lfm2 = shape("lfm2", 2, 4, [0, 2], 64, attention__sliding_window=128, shortconv__l_cache=3)
    assert lfm2.rotation("window", "q8_0", "q8_0") == (0, 0)
    whole = shape("lfm2", 2, 4, [0, 2], 64, shortconv__l_cache=3)
    assert whole.rotation("full", "q8_0", "q8_0") == (64, 64)


def test_a_recurrent_state_stays() -> None:
    state = LayerShape(0, 12, 0, 40)
    rows = Rows(PartShape((state,), model_layers=4), np.array([7], np.int32), (np.ones((1, 12), np.uint8),), ())
    assert Transcoder(QUANTS, plain(), Form("f16", "f16"), Form("q4_0", "q4_0")).rows("state", rows) is rows


def test_values_beyond_f16_stay_finite() -> None:
    rows = rows_of("bf16", "bf16", 0, 0)
    rows.k(0).view(np.uint16)[0, 0] = 0x7F00  # 1.7e38
    found = Transcoder(QUANTS, plain(), Form("bf16", "bf16"), Form("f16", "f16")).rows("full", rows)
    assert found.k(0).view(np.float16)[0, 0] == 65504


def test_rows_that_are_no_whole_blocks() -> None:
    with pytest.raises(KvchatError, match="80 elements"):
        shapes_as((LayerShape(1, 160, 1, 160),), Form("q8_0", "q8_0"))


def test_types_that_cannot_be_converted() -> None:
    with pytest.raises(KvchatError, match="q6_K"):
        Transcoder(QUANTS, plain(), Form("f16", "f16"), Form("q6_K", "f16"))


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_buffers_of_another_size(wrong: int) -> None:
    transcoder = Transcoder(QUANTS, plain(), Form("f16", "f16"), Form("q8_0", "q8_0"))
    shapes = shapes_as((LayerShape(1, 256, 1, 256),) * LAYERS, Form("q8_0", "q8_0"))
    sources = [bytearray(CELLS * 256) for _ in range(4)]
    targets = [bytearray(CELLS * 136) for _ in range(4)]
    targets[wrong] = bytearray(CELLS * 136 - 34)
    with pytest.raises(ValueError, match="do not become"):
        transcoder.fill("full", shapes, list(map(memoryview, sources)), list(map(memoryview, targets)))


def test_the_most_exact_form_is_the_first() -> None:
    names = [("q4_0", "q4_0"), ("f16", "q4_0"), ("bf16", "bf16"), ("f16", "f16"), ("q8_0", "q8_0"), ("q4_1", "q4_1")]
    found = sorted((Form(*pair) for pair in names), key=precision, reverse=True)
    assert [form.name for form in found] == ["f16", "bf16", "f16/q4_0", "q8_0", "q4_1", "q4_0"]


def test_a_page_with_a_window_that_lacks_rows() -> None:
    """Its groups have cells of their own, some none."""
    rows = rows_of("f16", "f16", 0, 0)
    layers = rows.shape.layers
    parts: dict[Part, NewRows] = {
        "full": NewRows("full", layers, CELLS, tuple(rows.payload())),
        "window": NewRows("window", layers, 2, tuple(rows.between(3, 5).payload())),
    }
    empty = NewRows("window", layers, 0, ())
    transcoder = Transcoder(QUANTS, plain(), Form("f16", "f16"), Form("bf16", "bf16"))
    page = NewPage(bytes(32), "f16", (1, 2, 3, 4, 5), 0, (*parts.values(), empty), {}, 1.0)
    found = page_as(page, transcoder)
    assert [(rows.part, rows.cells) for rows in found.groups] == [("full", 5), ("window", 2), ("window", 0)]
    assert (found.ids, found.tag, found.seconds, found.groups[2].parts) == (page.ids, "f16", 1.0, ())
    expected = rows_of("bf16", "bf16", 0, 0)
    assert list(map(bytes, found.groups[0].parts)) == list(map(bytes, expected.payload()))
    assert list(map(bytes, found.groups[1].parts)) == list(map(bytes, expected.between(3, 5).payload()))

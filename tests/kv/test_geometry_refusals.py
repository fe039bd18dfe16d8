"""What llama.cpp refuses, said before it is asked; and headers that are missing something or absurd."""

from __future__ import annotations

from typing import Any

import pytest
from kv_shapes import header, shape

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import Array, GgufHeader
from kvchat.kv.geometry import geometry


@pytest.mark.parametrize(
    ("type_k", "type_v", "flash", "size", "message"),
    [
        ("f16", "f16", "off", 80, None),
        ("q8_0", "f16", "off", 64, None),
        ("q8_0", "q8_0", "on", 64, None),
        ("q4_0", "q8_0", "auto", 96, None),
        ("f16", "q8_0", "off", 64, "flash attention, which is off"),
        ("q8_0", "f16", "on", 80, "K needs heads of a multiple of 32; this model's have 80"),
        # llama.cpp builds this one, and its logits are not a number
        ("q8_0", "f16", "off", 80, "K needs heads of a multiple of 32"),
        ("f16", "q4_0", "auto", 80, "V needs heads of a multiple of 32"),
    ],
)
def test_refusals(type_k: str, type_v: str, flash: Any, size: int, message: str | None) -> None:
    error = shape("llama", 2, 8, 8, size).refusal(type_k, type_v, flash)
    if message is None:
        assert error is None
    else:
        assert error is not None
        assert message in error.message
        assert error.hint


def test_grok_never_has_flash_attention() -> None:
    found = shape("grok", 2, 8, 8, 128)
    assert found.refusal("f16", "f16", "on") is None
    assert "grok" in str(found.refusal("f16", "q8_0", "on"))


# ------------------------------------------------------------------ wrong headers


@pytest.mark.parametrize("architecture", ["bert", "t5", "clip", "dream"])
def test_models_that_do_not_chat(architecture: str) -> None:
    with pytest.raises(KvchatError, match="do not generate text"):
        geometry(header(architecture, block_count=2))


@pytest.mark.parametrize(
    "values",
    [
        {"block_count": 0},
        {"block_count": 513},
        {"block_count": 2**40},
        {"block_count": -1},
        {"block_count": "many"},
        {"block_count": 2.0},
        {"block_count": True},
        {"block_count": 2, "context_length": -4},
        {"block_count": 2, "attention__head_count_kv": [1, 2, 3]},
        {"block_count": 2, "attention__head_count_kv": [1, -2]},
        {"block_count": 2, "attention__head_count_kv": [1.5, 2]},
        {"block_count": 2, "attention__head_count_kv": Array("int32", 5000, None)},
        {"block_count": 2, "nextn_predict_layers": 3},
        {"block_count": 2, "embedding_length": "wide"},
    ],
)
def test_absurd_hyper_parameters(values: Any) -> None:
    with pytest.raises(FormatError, match="damaged header"):
        geometry(header("llama", **{"attention__head_count": 8, **values}))


@pytest.mark.parametrize("missing", ["block_count", "context_length", "embedding_length"])
def test_missing_hyper_parameters(missing: str) -> None:
    made = header("llama", block_count=2, attention__head_count=8)
    metadata = {key: value for key, value in made.metadata.items() if key != f"llama.{missing}"}
    with pytest.raises(FormatError, match=f"llama.{missing} is missing"):
        geometry(GgufHeader(3, "llama", metadata, (), 0, 0, 0))


def test_no_attention_heads_anywhere() -> None:
    with pytest.raises(FormatError, match="no layer of this llama model has attention heads"):
        geometry(header("llama", block_count=2))


def test_window_that_must_be_there() -> None:
    with pytest.raises(FormatError, match="sliding_window is missing"):
        shape("gpt-oss", 4, 8, 2, 64)
    with pytest.raises(FormatError, match="sliding_window_pattern is missing"):
        shape("step35", 4, 8, 2, 64, attention__sliding_window=64)

"""The cache's shape: arithmetic on published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kv_shapes import header, shape

from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import Geometry, geometry

# ------------------------------------------------------------------ plain KV


def test_smollm2(smollm2: Path) -> None:
    found = geometry(read_header(smollm2))
    assert (found.attention, found.layers, found.context_trained) == ("GQA", 30, 8192)
    assert (found.parts, found.kept, found.has_v) == (("full",), True, True)
    assert not found.plane_positions
    assert not found.rollback
    assert (found.head_k, found.head_v, found.window, found.state_bytes) == (64, 64, 0, 0)
    assert found.bytes_per_token("f16", "f16") == 30 * (192 + 192) * 2 == 23_040
    assert found.bytes_per_token("q8_0", "q8_0") == 30 * 2 * (192 // 32) * 34 == 12_240
    assert found.bytes_per_token("q4_0", "q4_0") == 30 * 2 * (192 // 32) * 18 == 6_480
    assert found.bytes_per_token("q8_0", "f16") == 30 * (204 + 384)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "label"),
    [
        (32, 32, "MHA"),
        (32, 8, "GQA"),
        (32, 1, "MQA"),
        (1, 1, "MHA"),
        ([32, 16], [8, 16], "GQA"),  # openelm, deci: heads per layer
        ([32, 16], [1, 1], "MQA"),
    ],
)
def test_labels_by_heads(heads: Any, kv_heads: Any, label: str) -> None:
    found = shape("llama", 2, heads, kv_heads, 128)
    assert (found.attention, found.parts) == (label, ("full",))


def test_kv_heads_default_to_heads_and_sizes_to_the_width() -> None:
    found = geometry(header("llama", block_count=4, embedding_length=1024, attention__head_count=8))
    assert found.attention == "MHA"
    assert found.bytes_per_token("f16", "f16") == 4 * 2 * 1024 * 2


def test_heads_per_layer() -> None:
    found = shape("openelm", 3, [12, 16, 20], [3, 4, 5], 64)
    assert [layer.key for layer in found.cache] == [3 * 64, 4 * 64, 5 * 64]
    assert found.bytes_per_token("f16", "f16") == (3 + 4 + 5) * 64 * 2 * 2


def test_draft_layers_keep_nothing() -> None:
    found = shape("glm4moe", 47, 96, 8, 128, nextn_predict_layers=1)
    assert (found.layers, len(found.cache)) == (47, 46)


def test_looped_blocks_have_a_cache_each() -> None:
    assert len(shape("nanbeige", 4, 8, 2, 64, num_loops=3).cache) == 12


def test_router_layer_has_one_head() -> None:
    found = shape("graniteswitch", 4, 8, 2, 64)
    assert [layer.key for layer in found.cache] == [128, 128, 128, 128, 64]


@pytest.mark.parametrize(
    ("architecture", "sections", "plane"),
    [
        ("qwen2vl", None, True),
        ("qwen3vlmoe", None, True),
        ("glm4", [8, 12, 12, 0], True),
        ("glm4", [0, 0, 0, 0], False),
        ("glm4", [8, 0, 12, 0], False),
        ("glm4", None, False),
        ("qwen3", [8, 12, 12, 0], False),  # not an architecture that reads them
    ],
)
def test_cells_with_plane_positions(architecture: str, sections: Any, plane: bool) -> None:
    values = {"rope__dimension_sections": sections} if sections else {}
    found = shape(architecture, 2, 12, 2, 128, **values)
    assert (found.plane_positions, found.parts, found.kept) == (plane, ("full",), True)


# ------------------------------------------------------------------ MLA


def test_mla_keeps_the_latent_only() -> None:
    """DeepSeek-V2-Lite: a latent of 512 and 64 rotated elements, 27 layers."""
    found = geometry(
        header(
            "deepseek2",
            block_count=27,
            attention__head_count=16,
            attention__head_count_kv=1,
            attention__key_length=576,
            attention__value_length=512,
            attention__key_length_mla=192,
            attention__value_length_mla=128,
            attention__kv_lora_rank=512,
        )
    )
    assert (found.attention, found.parts, found.has_v) == ("MLA", ("full",), False)
    assert found.bytes_per_token("f16", "f16") == 27 * 576 * 2
    assert found.rotated("q8_0", "q8_0") == (True, False)
    assert found.refusal("q8_0", "q8_0", "auto") is None
    assert "same cache type" in str(found.refusal("f16", "q8_0", "on"))


def test_old_deepseek_files_without_mla_are_plain() -> None:
    found = shape("deepseek2", 27, 16, 16, 192)
    assert (found.attention, found.parts, found.has_v) == ("MHA", ("full",), True)


def test_sparse_attention_has_an_indexer_cache() -> None:
    mla = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    found = shape("deepseek32", 2, 128, 1, 576, attention__indexer__key_length=128, **mla)
    assert (found.attention, found.parts, found.kept) == ("MLA", (), False)
    assert found.bytes_per_token("f16", "f16") == 2 * (576 + 128) * 2


# ------------------------------------------------------------------ windows


def windowed(found: Geometry) -> list[int]:
    return sorted(layer.index for layer in found.cache if layer.window)


@pytest.mark.parametrize(
    ("architecture", "layers", "values", "window", "expected"),
    [
        ("gemma2", 4, {}, 4096, [0, 2]),
        ("gemma3", 6, {"attention__sliding_window": 512}, 512, [0, 1, 2, 3, 4]),
        ("gemma3", 6, {}, 0, []),
        ("gpt-oss", 4, {"attention__sliding_window": 128}, 128, [0, 2]),
        ("cohere2moe", 8, {"attention__sliding_window": 128}, 128, [1, 2, 3, 5, 6, 7]),
        ("llama4", 4, {}, 8192, [0, 1, 2]),
        ("llama4", 4, {"attention__sliding_window": 0}, 0, []),
        ("smallthinker", 4, {"attention__sliding_window": 100}, 4096, [1, 2, 3]),
        ("exaone4", 30, {"attention__sliding_window": 4096}, 0, []),
        ("exaone4", 64, {}, 4096, [layer for layer in range(64) if layer % 4 != 3]),
        ("phi3", 4, {"attention__sliding_window": 2047}, 0, []),  # llama.cpp leaves it out
        ("mistral3", 4, {"attention__sliding_window": 2047}, 0, []),
        # the file's own pattern, a number or a list, goes before the architecture's
        ("gemma3", 4, {"attention__sliding_window": 512, "attention__sliding_window_pattern": 2}, 512, [0, 2]),
        ("gemma3", 4, {"attention__sliding_window": 512, "attention__sliding_window_pattern": 0}, 512, [0, 1, 2, 3]),
        (
            "step35",
            4,
            {"attention__sliding_window": 64, "attention__sliding_window_pattern": [False, True, True, False]},
            64,
            [1, 2],
        ),
    ],
)
def test_window_layers(architecture: str, layers: int, values: Any, window: int, expected: list[int]) -> None:
    found = shape(architecture, layers, 8, 2, 64, **values)
    assert (found.window, windowed(found)) == (window, expected)
    assert found.attention == ("SWA" if window else "GQA")
    assert found.parts == (("full", "window") if window else ("full",))
    full = [layer.window for layer in found.cache]
    assert full == sorted(full)  # the cache of the full layers comes first


def test_window_layers_have_heads_of_their_own() -> None:
    found = shape(
        "gemma4",
        4,
        8,
        [4, 4, 4, 1],
        512,
        attention__sliding_window=512,
        attention__sliding_window_pattern=[True, True, True, False],
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__shared_kv_layers=1,
    )
    assert [(layer.index, layer.key, layer.window) for layer in found.cache] == [
        (0, 1024, True),
        (1, 1024, True),
        (2, 1024, True),
    ]
    assert (found.head_k, found.head_sizes) == (256, {(256, 256), (512, 512)})


def test_each_part_of_the_cache_is_rotated_when_its_heads_have_one_size() -> None:
    """Gemma 4 31B: heads of 256 in window layers, 512 in full ones; both are multiples of 64."""
    sizes = {"attention__key_length_swa": 256, "attention__value_length_swa": 256}
    pattern = {"attention__sliding_window": 512, "attention__sliding_window_pattern": [True, False]}
    found = shape("gemma4", 2, 8, 4, 512, **pattern, **sizes)
    assert (found.head_k, found.rotates) == (0, (True, True))
    assert found.rotated("q8_0", "f16") == (True, False)
    odd = shape("gemma4", 2, 8, 4, 512, **pattern, **dict.fromkeys(sizes, 80))
    assert odd.rotates == (False, False)  # the first layer decides for all


@pytest.mark.parametrize(
    ("architecture", "position", "first"),
    [
        ("llama4", 8191, 0),
        ("llama4", 8192, 8192),
        ("llama4", 16383, 8192),
        ("gemma2", 4095, 0),
        ("gemma2", 4096, 1),
        ("llama", 9000, 0),
    ],
)
def test_what_window_layers_see(architecture: str, position: int, first: int) -> None:
    assert shape(architecture, 4, 8, 2, 64).first_visible(position) == first


def test_gemma3n_shares_kv_from_layer_20() -> None:
    found = shape("gemma3n", 35, 8, 2, 256, attention__sliding_window=512)
    assert sorted(layer.index for layer in found.cache) == list(range(20))


# ------------------------------------------------------------------ recurrent and hybrid


def test_mamba() -> None:
    """Three layers, conv 4, inner 512, state 16: 6,144 and 32,768 bytes each."""
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 16, "ssm__time_step_rank": 16}
    found = shape("mamba", 3, 0, 0, 0, embedding_length=256, **ssm)
    assert (found.attention, found.parts, found.cache) == ("recurrent", ("state",), ())
    assert found.state_bytes == 3 * (6_144 + 32_768)
    assert found.bytes_per_token("f16", "f16") == 0
    assert found.rotated("q8_0", "q8_0") == (False, False)


def test_rwkv() -> None:
    found = shape("rwkv7", 12, 0, 0, 0, embedding_length=768, wkv__head_size=64)
    assert found.attention == "recurrent"
    assert found.state_bytes == 12 * (2 * 768 + 768 * 64) * 4


def test_hybrid_layers_without_kv_heads_are_recurrent() -> None:
    found = shape("lfm2", 4, 16, [0, 0, 4, 0], 64, shortconv__l_cache=3, embedding_length=1024)
    assert (found.attention, found.parts, found.rollback) == ("hybrid", ("full", "state"), True)
    assert [layer.index for layer in found.cache] == [2]
    assert found.state_bytes == 3 * 2 * 1024 * 4


def test_hybrid_with_windows() -> None:
    found = shape("lfm2", 4, 16, [0, 0, 4, 0], 64, shortconv__l_cache=3, attention__sliding_window=256)
    assert (found.attention, found.window, windowed(found)) == ("hybrid", 256, [2])
    assert found.parts == ("full", "window", "state")


def test_every_fourth_layer_attends() -> None:
    """Qwen3-Next-80B: 48 layers, 2 KV heads of 256, gated delta nets in between."""
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 4096, "ssm__state_size": 128, "ssm__group_count": 16}
    found = shape("qwen3next", 48, 16, 2, 256, **ssm)
    assert [layer.index for layer in found.cache] == list(range(3, 48, 4))
    assert found.bytes_per_token("f16", "f16") == 12 * 2 * 2 * 256 * 2
    assert found.state_bytes == 36 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096) * 4


def test_listed_recurrent_layers() -> None:
    found = shape("qwen35", 4, 16, 2, 256, attention__recurrent_layers=[True, False, True, True])
    assert [layer.index for layer in found.cache] == [1]
    assert (found.parts, found.plane_positions, found.rollback) == (("full", "state"), True, True)


def test_a_second_recurrent_row_is_not_kept() -> None:
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 4096, "ssm__state_size": 128, "ssm__group_count": 16}
    found = shape("qwen4exp", 4, 16, 2, 256, **ssm)
    assert (found.parts, found.plane_positions) == ((), True)


def test_falcon_h1_does_both_in_every_layer() -> None:
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 1536, "ssm__state_size": 128, "ssm__group_count": 1}
    found = shape("falcon-h1", 3, 8, 2, 64, **ssm)
    assert len(found.cache) == 3
    assert found.state_bytes == 3 * (3 * (1536 + 2 * 128) + 128 * 1536) * 4


def test_nemotron_h_has_three_kinds_of_layers() -> None:
    """Recurrent (no KV heads, no feed-forward), attention (no feed-forward), and feed-forward only."""
    found = shape("nemotron_h", 3, 32, [0, 8, 0], 128, feed_forward_length=[0, 0, 12288], ssm__state_size=128)
    assert [layer.index for layer in found.cache] == [1]

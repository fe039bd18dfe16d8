"""The ledger: textbook cases, and what llama.cpp itself says that it allocates, line by line of its log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from kv_shapes import header, shape

from kvchat.formats.gguf import Array, GgufHeader, read_header
from kvchat.kv.compute import compute_bytes, workload
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.ledger import CacheConfig, Ledger, context_cells, held_bytes, ledger

KIB, MIB, GIB, GB = 1 << 10, 1 << 20, 1 << 30, 10**9

# ------------------------------------------------------------------ textbook


def kv_bytes(geometry: Geometry, tokens: int, kind: str = "f16") -> int:
    return ledger(geometry, CacheConfig(tokens, kind, kind)).kv_bytes


def test_llama_3_8b_at_128k() -> None:
    """32 layers, 8 KV heads of 128: 128 KiB a token, 15.6 GiB for 128,000 tokens."""
    model = shape("llama", 32, 32, 8, 128)
    assert kv_bytes(model, 128_000) == 128_000 * 32 * 2 * 8 * 128 * 2
    assert round(kv_bytes(model, 128_000) / GIB, 1) == 15.6


def test_a_70b_without_and_with_grouped_heads() -> None:
    """80 layers, hidden 8,192, so 64 heads of 128: 2.6 MB a token; with 8 KV heads an eighth of it."""
    every, grouped = shape("llama", 80, 64, 64, 128), shape("llama", 80, 64, 8, 128)
    assert kv_bytes(every, 1024) == 1024 * 2 * 80 * 8192 * 2
    assert round(held_bytes(every, "f16", "f16", 1000) / GB, 1) == 2.6
    assert kv_bytes(every, 1024) == 8 * kv_bytes(grouped, 1024)


def test_mla_keeps_less_than_a_tenth_of_its_heads() -> None:
    """DeepSeek-V3: 128 heads of 192 (K) and 128 (V), or a latent of 512 with 64 rotated elements."""
    sizes = {"attention__key_length": 576, "attention__value_length": 512}
    mla = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    latent = shape("deepseek2", 61, 128, 1, 0, **sizes, **mla)
    heads = shape("deepseek2", 61, 128, 128, 0, attention__key_length=192, attention__value_length=128)
    assert kv_bytes(latent, 4096) == 4096 * 61 * 576 * 2
    assert kv_bytes(heads, 4096) == 4096 * 61 * 128 * (192 + 128) * 2
    assert kv_bytes(latent, 4096) < 0.1 * kv_bytes(heads, 4096)


def test_quantized_types_are_blocks_of_32() -> None:
    """34 bytes for 32 elements as q8_0, 18 as q4_0, 64 as f16."""
    model = shape("llama", 32, 32, 8, 128)
    full = kv_bytes(model, 8192)
    assert kv_bytes(model, 8192, "q8_0") * 64 == full * 34
    assert kv_bytes(model, 8192, "q4_0") * 64 == full * 18


def test_a_window_costs_the_same_at_any_length() -> None:
    """Gemma 3 with 26 layers, 22 of them with a window of 512: 512 * 2 + 256 cells, whatever the context."""
    model = shape("gemma3", 26, 4, 1, 256, attention__sliding_window=512)
    found = [ledger(model, CacheConfig(size, "f16", "f16", sequences=2, batch=256)) for size in (4096, 8192, 32768)]
    assert {part.window.bytes for part in found} == {1280 * 22 * 2 * 256 * 2}
    assert [part.full.bytes for part in found] == [size * 4 * 2 * 256 * 2 for size in (4096, 8192, 32768)]


def test_a_recurrent_state_is_one_for_each_sequence() -> None:
    """Mamba with 3 layers: 6,144 and 32,768 bytes each."""
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 16, "ssm__time_step_rank": 16}
    model = shape("mamba", 3, 0, 0, 0, embedding_length=256, **ssm)
    for sequences in (1, 2, 5):
        found = ledger(model, CacheConfig(4096, "f16", "f16", sequences=sequences))
        assert (found.state_bytes, found.kv_bytes) == (sequences * 3 * (6_144 + 32_768), 0)
    assert ledger(model, CacheConfig(4096, "f16", "f16", rollback=7)).state_bytes == 3 * (6_144 + 32_768)
    assert held_bytes(model, "f16", "f16", 1) == held_bytes(model, "f16", "f16", 4096) == 3 * (6_144 + 32_768)
    assert held_bytes(model, "f16", "f16", 0) == 0


def test_kept_states_of_past_tokens_cost_as_much_each() -> None:
    model = shape("lfm2", 4, 16, [0, 0, 4, 0], 64, shortconv__l_cache=3, embedding_length=1024)
    found = ledger(model, CacheConfig(512, "f16", "f16", sequences=2, rollback=8))
    assert found.state_bytes == 3 * 2 * 1024 * 4 * 2 * 9


@pytest.mark.parametrize(("asked", "cells"), [(1, 256), (256, 256), (257, 512), (8192, 8192), (0, 4096)])
def test_a_context_is_a_multiple_of_256_cells(asked: int, cells: int) -> None:
    model = shape("llama", 2, 8, 2, 64)
    assert context_cells(model, asked) == cells
    assert kv_bytes(model, asked) == cells * 2 * 2 * 2 * 64 * 2


def test_without_flash_attention_v_is_as_wide_as_the_widest_layer() -> None:
    model = shape("openelm", 3, [12, 16, 20], [3, 4, 5], 64)
    on, off = (ledger(model, CacheConfig(1024, "f16", "f16", flash=flash)).full for flash in (True, False))
    assert on.value_bytes == 1024 * (3 + 4 + 5) * 64 * 2
    assert off.value_bytes == 1024 * (5 + 5 + 5) * 64 * 2
    assert on.key_bytes == off.key_bytes == 1024 * (3 + 4 + 5) * 64 * 2


def test_an_indexer_keeps_keys_only() -> None:
    model = shape("minimax-m3", 2, 8, 2, 64, attention__indexer__key_length=128)
    found = ledger(model, CacheConfig(1024, "f16", "f16", flash=False)).full
    assert found.value_bytes == 1024 * 2 * 128 * 2
    assert found.key_bytes == 1024 * 2 * (128 + 128) * 2


# ------------------------------------------------------------------ llama.cpp's own words

# context, sequences, batch, type of K and V, flash attention, rollback, outputs. No context is a multiple of 256; one
# block more or less in a row, or 256 cells, would change the second decimal of the log's MiB.
CASES = (
    (1000, 1, 64, "f16", "f16", "on", 0, 0),
    (3000, 2, 64, "f16", "f16", "off", 0, 16),
    (2000, 2, 256, "q8_0", "q8_0", "on", 8, 0),
    (3000, 3, 256, "q4_0", "q4_0", "on", 0, 16),
    (3000, 2, 256, "f16", "f16", "off", 3, 0),
)
SMOLLM2 = "SmolLM2"
KINDS = (*tiny.KINDS, SMOLLM2)
CELL, PLANE_CELL = 12, 24  # position, number of sequences, sequence id; two positions and a token id
KV_LINE = re.compile(
    r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+)/1 seqs\), "
    r"K \(\S+\): +([\d.]+) MiB, V \(\S+\): +([\d.]+) MiB"
)
RS_LINE = re.compile(
    r"llama_memory_recurrent: size = +([\d.]+) MiB \( *(\d+) cells, +\d+ layers, +(\d+) seqs +(\d+) rs_seq\)"
)


@dataclass(frozen=True)
class Answers:
    """What llama.cpp said of one model: the log of each case that the model can have, and the weight of its state."""

    header: GgufHeader
    geometry: Geometry
    logs: dict[tuple[Any, ...], str]
    sizes: list[tuple[int, int]]


def config_of(case: tuple[Any, ...]) -> CacheConfig:
    context, sequences, batch, type_k, type_v, flash, rollback, outputs = case
    return CacheConfig(context, type_k, type_v, flash == "on", sequences, batch, rollback, outputs)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> dict[str, Answers]:
    pytest.importorskip("llama_cpp")
    folder = tmp_path_factory.mktemp("models")
    files = {kind: tiny.build(kind, folder) for kind in tiny.KINDS} | {SMOLLM2: smollm2}
    headers = {kind: read_header(file) for kind, file in files.items()}
    shapes = {kind: geometry(header) for kind, header in headers.items()}
    cases = {kind: [case for case in CASES if not shapes[kind].refusal(*case[3:6])] for kind in files}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ledger_answers.py")],
        input=json.dumps([[str(file), cases[kind]] for kind, file in files.items()]),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = map(json.loads, done.stdout.splitlines())
    return {
        kind: Answers(headers[kind], shapes[kind], dict(zip(cases[kind], line[:-1], strict=True)), line[-1])
        for kind, line in zip(files, lines, strict=True)
    }


def logged(number: int) -> str:
    return f"{number / MIB:.2f}"


def kv_lines(found: Ledger, case: tuple[Any, ...]) -> list[tuple[str, ...]]:
    """What the log must say of the groups of layers."""
    groups = [found.full, found.window] if found.window.cells else [found.full]
    lines: list[tuple[str, ...]] = []
    for rows in groups:
        total, keys, values = map(logged, (rows.bytes, rows.key_bytes, rows.value_bytes))
        lines.append((total, str(rows.cells), str(rows.layers), str(case[1]), keys, values))
    return lines


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_has_the_same_numbers(kind: str, answers: dict[str, Answers]) -> None:
    known = answers[kind]
    assert known.logs
    for case, log in known.logs.items():
        found = ledger(known.geometry, config_of(case))
        if known.geometry.cache:
            assert KV_LINE.findall(log) == kv_lines(found, case), case
        assert buffers(log, "KV") == pytest.approx(found.kv_bytes / MIB, abs=0.011), case
        states = RS_LINE.findall(log)
        if known.geometry.state_bytes:
            rows = case[6] if known.geometry.rollback else 0
            assert states == [(logged(found.state_bytes), str(case[1]), str(case[1]), str(rows))], case
        assert buffers(log, "RS") == pytest.approx(found.state_bytes / MIB, abs=0.011), case


def buffers(log: str, name: str) -> float:
    """MiB of all buffers of that name, rounded twice at most."""
    return sum(float(size) for size in re.findall(rf"{name} buffer size = +([\d.]+) MiB", log))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_more_would_show(kind: str, answers: dict[str, Answers]) -> None:
    """The comparison above tells a block of 32 elements in one row, or 256 cells, from none."""
    known = answers[kind]
    for case in known.logs:
        found = ledger(known.geometry, config_of(case))
        for rows in (found.full, found.window):
            if rows.layers:
                assert logged(rows.key_bytes + rows.cells * 18) != logged(rows.key_bytes)
                assert logged(rows.bytes + rows.bytes // rows.cells * 256) != logged(rows.bytes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_weighs_what_is_held(kind: str, answers: dict[str, Answers]) -> None:
    """To the byte: the lengths and types that stand before the rows are known (llama-kv-cache.cpp, `state_write`)."""
    known = answers[kind]
    shapes, parts = known.geometry, known.geometry.parts
    cell = PLANE_CELL if shapes.plane_positions else CELL
    heads = len(shapes.cache) * (12 + 12 * shapes.has_v)
    for tokens, size in known.sizes:
        cells = tokens * ("full" in parts) + min(tokens, shapes.window) * ("window" in parts)
        sections = 16 * (("full" in parts) + ("window" in parts))
        rest = size - held_bytes(shapes, "f16", "f16", tokens) - cells * cell - 8 - sections - heads
        if "state" not in parts:
            assert rest == 0, tokens
        else:  # count, cell, order, layers; then type and row size of both rows of each recurrent layer
            assert (rest - 20) % 24 == 0, tokens
            assert 1 <= (rest - 20) // 24 <= shapes.layers, tokens


# ------------------------------------------------------------------ computations


@pytest.mark.parametrize("kind", KINDS)
def test_computations_are_estimated_from_above(kind: str, answers: dict[str, Answers]) -> None:
    """Never less than llama.cpp reserves, and half more at most, beside half a MiB that only tiny models notice."""
    known = answers[kind]
    work = workload(known.header, known.geometry)
    for case, log in known.logs.items():
        found = compute_bytes(work, known.geometry, config_of(case)) / MIB
        real = buffers(log, "compute") + buffers(log, " output")
        assert real > 0
        assert real - 0.02 <= found <= 1.5 * real + 0.5, case


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_for_a_real_model_is_close(case: tuple[Any, ...], answers: dict[str, Answers]) -> None:
    known = answers[SMOLLM2]
    found = compute_bytes(workload(known.header, known.geometry), known.geometry, config_of(case)) / MIB
    real = buffers(known.logs[case], "compute") + buffers(known.logs[case], " output")
    assert real <= found <= 1.35 * real


def test_scores_are_the_price_of_no_flash_attention() -> None:
    """32 heads, 8,192 cells, 64 tokens of 4 bytes: 64 MiB of scores, a mask of 2 MiB instead of 1."""
    made = header("llama", block_count=32, attention__head_count=32, attention__head_count_kv=8)
    model = geometry(made)
    on, off = (
        compute_bytes(workload(made, model), model, CacheConfig(8192, "f16", "f16", flash, 1, 64))
        for flash in (True, False)
    )
    places = 64 * 8 * 64 * 8  # where each element of V goes: 8 bytes for 512 elements of 64 tokens
    assert off - on == pytest.approx((64 * MIB + 1 * MIB + places) * 1.05, abs=2)


def test_logits_are_provided_for_all_tokens_unless_fewer_are_asked() -> None:
    made = header("llama", block_count=2, attention__head_count=8)
    made = replace(made, metadata={**made.metadata, "tokenizer.ggml.tokens": Array("string", 100_000, None)})
    model = geometry(made)
    work = workload(made, model)
    every, few = (
        compute_bytes(work, model, CacheConfig(512, "f16", "f16", True, 1, 256, outputs=outputs)) for outputs in (0, 16)
    )
    assert every > 256 * 100_000 * 4
    assert few < 40 * MIB

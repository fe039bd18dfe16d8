"""The memory that the inspector shows, against the arithmetic of llama.cpp's caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from modal_host import broken, model, ready_with
from rich.cells import cell_len

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.ui.inspector_memory import MemoryView, held_line, memory_lines, memory_view, what_if, window_line
from kvchat.ui.model_facts import read_facts
from kvchat.ui.settings_words import planned

GIB = 1 << 30
# 2 layers with 2 heads of 64 for K and as many for V: 512 numbers a token.
F16 = 512 * 2  # bytes a token
Q8 = 512 * 34 // 32
Q4 = 512 * 18 // 32


def viewed(
    folder: Path,
    kind: str = "llama",
    *,
    running: bool = True,
    flash: bool = False,
    ram: int = 8 * GIB,
    **config: object,
) -> MemoryView:
    found = model(kind, folder)
    wanted = EngineConfig(str(found.path), context=4096, **config)  # type: ignore[arg-type]
    ready: Ready | None = None
    if running:
        plain = ready_with(wanted)
        ready = replace(plain, cache=replace(plain.cache, flash_attention=flash))
    view = memory_view(read_facts(found), wanted, ready, Memory(ram=ram))
    assert isinstance(view, MemoryView)
    return view


def text(view: MemoryView, marked: int | None = None, width: int = 80) -> str:
    return "\n".join(line.plain for line in memory_lines(view, view.now if marked is None else marked, width))


def test_what_each_type_takes_at_this_context(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    sizes = {need.types: need.kv_bytes for need in view.choices}
    assert sizes == {"f16": 4096 * F16, "q8_0": 4096 * Q8, "q4_0": 4096 * Q4}
    assert view.choices[view.now].types == "f16"


def test_the_parts_and_the_total(tmp_path: Path) -> None:
    """Weights are the file's, the cache is 4 MiB, and the total is what is above it."""
    view = viewed(tmp_path)
    need = view.choices[view.now]
    assert view.plan.weights_bytes == (tmp_path / "llama.gguf").stat().st_size
    assert need.total_bytes == view.plan.weights_bytes + need.kv_bytes + need.compute_bytes + need.process_bytes
    shown = text(view)
    assert "KV f16                   4 MiB" in shown
    assert "compute (estimate)" in shown
    assert f"total, about {need.total_bytes / 2**20:>13.0f} MiB  of 8.0 GiB free without this engine" in shown
    assert "▸ f16 now" in shown


@pytest.mark.parametrize("flash", [False, True])
def test_the_settings_count_the_same(tmp_path: Path, flash: bool) -> None:
    """Flash attention was measured and is on, or not: what the configuration leaves open is as the engine has it."""
    found = model("llama", tmp_path)
    wanted = EngineConfig(str(found.path), context=4096)
    plain = ready_with(wanted)
    ready = replace(plain, cache=replace(plain.cache, flash_attention=flash))
    plan = planned(read_facts(found), wanted, wanted, ready, Memory(ram=8 * GIB))
    view = viewed(tmp_path, flash=flash)
    assert plan is not None
    assert plan.chosen.total_bytes == view.choices[view.now].total_bytes


def test_a_draft_model_has_rows_of_its_own(tmp_path: Path) -> None:
    """Its weights are its file, its cache is that of one layer for as many tokens, and the total has all of it."""
    (tmp_path / "small").mkdir()
    found, small = model("llama", tmp_path), model("llama", tmp_path / "small", layers=1)
    config = EngineConfig(str(found.path), context=4096, draft_path=str(small.path))
    view = memory_view(read_facts(found), config, None, Memory(ram=8 * GIB), read_facts(small))
    assert isinstance(view, MemoryView)
    need, alone = view.choices[view.now], viewed(tmp_path, running=False)
    assert view.draft_weights == small.path.stat().st_size
    assert need.draft_kv_bytes == 4096 * F16 // 2
    assert need.total_bytes == alone.choices[alone.now].total_bytes + need.draft_bytes
    shown = text(view)
    assert "draft weights" in shown
    assert "draft KV                 2 MiB" in shown
    assert "draft compute (est.)" in shown
    assert "draft" not in text(alone)


def test_another_type_is_looked_at_and_said_to_be_only_that(tmp_path: Path) -> None:
    view = viewed(tmp_path)
    other = next(at for at, need in enumerate(view.choices) if need.types == "q8_0")
    shown = text(view, other)
    assert "KV q8_0                  2 MiB" in shown
    assert what_if(view, other) == "what if q8_0: nothing is applied"
    assert "▸ q8_0" in shown
    assert "  f16 now" in shown
    assert what_if(view, view.now) == ""


def test_mixed_types_stand_before_the_others(tmp_path: Path) -> None:
    """K q8_0, V q4_0: the mean of the two."""
    view = viewed(tmp_path, type_k="q8_0", type_v="q4_0", flash=True)
    assert [need.types for need in view.choices] == ["q8_0/q4_0", "f16", "q8_0", "q4_0"]
    assert (view.now, view.choices[0].kv_bytes) == (0, 4096 * (Q8 + Q4) // 2)


def test_the_context_is_the_one_that_was_built(tmp_path: Path) -> None:
    """Asked for none, the engine took 2,048."""
    found = model("llama", tmp_path)
    config = EngineConfig(str(found.path))
    view = memory_view(read_facts(found), config, ready_with(config, context=2048), Memory(ram=8 * GIB))
    assert isinstance(view, MemoryView)
    assert view.plan.context == 2048
    assert all(need.kv_bytes == 2048 * size for need, size in zip(view.choices, (F16, Q8, Q4), strict=True))


def test_flash_attention_is_that_of_the_engine(tmp_path: Path) -> None:
    """Where it was measured as the faster one, computations take less than the rule for f16 would say."""
    on, off = viewed(tmp_path, flash=True), viewed(tmp_path, flash=False)
    assert on.choices[on.now].compute_bytes < off.choices[off.now].compute_bytes


def test_used_cells_of_reserved_ones(tmp_path: Path) -> None:
    """1,024 of 4,096 tokens of 1 KiB each."""
    assert held_line(viewed(tmp_path), 1024) == "1 MiB held of 4 MiB reserved"
    assert held_line(viewed(tmp_path, running=False), 1024) == ""


def test_what_a_window_keeps(tmp_path: Path) -> None:
    """Two of four layers look back 128 tokens: three sequences and a batch of 256 make 640 cells, in steps of 256."""
    view = viewed(tmp_path, "gemma3")
    assert window_line(view) == "2 window layers keep the last 128 tokens in 768 cells; 2 keep all in 4,096"
    assert window_line(viewed(tmp_path)) == ""
    need = view.choices[view.now]
    assert need.kv_bytes == (2 * 4096 + 2 * 768) * F16 // 2


def test_recurrent_states_do_not_change_with_the_types(tmp_path: Path) -> None:
    view = viewed(tmp_path, "mamba")
    assert {(need.kv_bytes, need.state_bytes) for need in view.choices} == {(0, view.choices[0].state_bytes)}
    assert view.choices[0].state_bytes > 0
    shown = text(view)
    assert "recurrent state" in shown
    assert "KV f16" not in shown


def test_a_type_that_the_model_cannot_have(tmp_path: Path) -> None:
    """Heads of 80 are no multiple of 32."""
    view = viewed(tmp_path, "llama80")
    shown = text(view, 1)
    assert "a q8_0 cache for K needs heads of a multiple of 32" in shown
    assert shown.count("cannot be had") == 2


def test_before_there_is_an_engine_nothing_is_now(tmp_path: Path) -> None:
    shown = text(viewed(tmp_path, running=False))
    assert "now" not in shown
    assert "without this engine" not in shown


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    shown = text(viewed(tmp_path, ram=16 << 20))
    assert "f16 now" in shown
    assert "does not fit" in shown


def test_memory_that_is_not_known(tmp_path: Path) -> None:
    found = model("llama", tmp_path)
    config = EngineConfig(str(found.path), context=4096)
    view = memory_view(read_facts(found), config, ready_with(config), Memory())
    assert isinstance(view, MemoryView)
    assert "free memory is not known" in text(view)


def test_a_file_that_is_no_model_says_why(tmp_path: Path) -> None:
    found = broken(tmp_path)
    problem = memory_view(read_facts(found), EngineConfig(str(found.path)), None, Memory(ram=GIB))
    assert isinstance(problem, str)
    assert problem


@pytest.mark.parametrize("width", [36, 56, 76, 116])
def test_the_sizes_are_seen_at_every_width(tmp_path: Path, width: int) -> None:
    view = viewed(tmp_path)
    lines = memory_lines(view, view.now, width)
    assert [line.plain[:31].rstrip() for line in lines[:2]] == [
        f"weights{view.plan.weights_bytes >> 10:>19} KiB",
        "KV f16                   4 MiB",
    ]
    assert max(cell_len(line.plain) for line in lines[:4]) <= max(width, 60)

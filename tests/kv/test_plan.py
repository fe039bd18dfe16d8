"""The plan: its sums, what it chooses, what fits, and what it says. Sizes are arithmetic on published models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny
from kv_shapes import header

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import TensorInfo, read_header
from kvchat.kv.compute import workload
from kvchat.kv.fit import cache_bytes, chunk, rollback_rows, sequences, turns_at_once, uses_flash
from kvchat.kv.geometry import geometry
from kvchat.kv.ledger import CacheConfig, ledger
from kvchat.kv.needs import Memory, Need, Subject, room, subject
from kvchat.kv.plan import TYPES, Plan, Wanted, make_plan

MIB, GIB = 1 << 20, 1 << 30
Q4_0 = 2  # ggml's number


def model(
    architecture: str = "llama", *, layers: int = 32, heads: int = 32, kv: Any = 8, size: int = 128, **more: Any
) -> Subject:
    """By default Llama-3-8B with weights of 4.3 GiB: 128 KiB of f16 cache a token."""
    attention = {"attention__head_count": heads, "attention__head_count_kv": kv}
    sizes = {"attention__key_length": size, "attention__value_length": size}
    values: dict[str, Any] = {"context_length": 131_072, "embedding_length": 4096, **attention, **sizes, **more}
    weights = TensorInfo("output.weight", (4096, 2_000_000), Q4_0, 0)
    made = replace(header(architecture, block_count=layers, **values), tensors=(weights,))
    shape = geometry(made)
    return Subject("model", made, shape, weights.bytes, workload(made, shape))


def need(plan: Plan, kind: str) -> Need:
    return plan.needs[TYPES.index(kind)]


# ------------------------------------------------------------------ sums


@pytest.mark.parametrize("kind", TYPES)
def test_the_total_is_the_sum_of_its_parts(kind: str) -> None:
    plan = make_plan(model(), Memory(64 * GIB))
    found = need(plan, kind)
    assert found.total_bytes == plan.weights_bytes + found.kv_bytes + found.compute_bytes + found.process_bytes
    assert found.kv_bytes == 8192 * found.kv_bytes_per_token
    assert found.compute_bytes > 0
    assert need(plan, "f16").kv_bytes == GIB


def test_it_plans_what_the_engine_builds() -> None:
    """Four turns and a scratch sequence where they cost nothing, and batches by the number of parameters."""
    plan = make_plan(model(), Memory(64 * GIB))
    assert (plan.sequences, plan.batch) == (5, 64)
    assert [chunk(number, on_gpu=False) for number in (135_000_000, 3_000_000_000, 8_000_000_000)] == [256, 128, 64]
    assert chunk(8_000_000_000, on_gpu=True) == 512


def test_flash_attention_before_anything_is_measured() -> None:
    shape, grok = model().geometry, model("grok").geometry
    assert [uses_flash(shape, kind, "auto", on_gpu=False) for kind in ("f16", "bf16", "q8_0", "q4_0")] == [
        False,
        False,
        True,
        True,
    ]
    assert uses_flash(shape, "f16", "auto", on_gpu=True)
    assert uses_flash(shape, "f16", "on", on_gpu=False)
    assert not uses_flash(shape, "f16", "off", on_gpu=True)
    assert not uses_flash(grok, "f16", "on", on_gpu=True)


def test_windows_and_states_are_counted_as_they_are_built() -> None:
    """A window of 512: 3 * 512 + 64 cells, rounded up to 1,792; LFM2's states: those of the last 8 tokens too."""
    windowed = model("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=2)
    found = need(make_plan(windowed, Memory(64 * GIB)), "f16")
    assert found.kv_bytes == (16 * 8192 + 16 * 1792) * 2 * 8 * 128 * 2
    hybrid = model("lfm2", layers=2, kv=[0, 8], shortconv__l_cache=3)
    assert (sequences(hybrid.geometry), rollback_rows(hybrid.geometry)) == (3, 8)
    found = need(make_plan(hybrid, Memory(64 * GIB)), "f16")
    assert found.state_bytes == 3 * 4096 * 4 * 2 * (1 + 8)
    parts = found.kv_bytes + found.state_bytes + found.compute_bytes + found.process_bytes
    assert found.total_bytes == hybrid.size + parts


def test_places_for_turns_cost_what_they_take() -> None:
    """None where all cells are one pool; a window of cells, or a state, each where they are not."""
    plain, hybrid = model(), model("lfm2", layers=2, kv=[0, 8], shortconv__l_cache=3)
    windowed = model("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=2)
    assert turns_at_once(plain.geometry) == 4
    assert turns_at_once(windowed.geometry) == turns_at_once(hybrid.geometry) == 2
    found = {
        name: [need(make_plan(each, Memory(64 * GIB), Wanted(parallel=count)), "f16") for count in (1, 8)]
        for name, each in (("plain", plain), ("windowed", windowed), ("hybrid", hybrid))
    }
    few, many = found["plain"]
    assert few.kv_bytes == many.kv_bytes
    few, many = found["windowed"]
    assert many.kv_bytes - few.kv_bytes == 16 * 7 * 512 * 2 * 8 * 128 * 2
    few, many = found["hybrid"]
    assert many.state_bytes // 9 == few.state_bytes // 2


def test_a_draft_model_comes_with_a_cache_of_its_own() -> None:
    draft = model(layers=16, heads=8, kv=2, size=64)
    alone, both = make_plan(model(), Memory(64 * GIB)), make_plan(model(), Memory(64 * GIB), draft=draft)
    for kind in TYPES:
        found = need(both, kind)
        cache = ledger(draft.geometry, CacheConfig(8192, kind, kind)).bytes
        assert found.draft_bytes > draft.size + cache
        assert found.total_bytes == need(alone, kind).total_bytes + found.draft_bytes
    assert both.draft_model == "model"


def test_a_draft_model_that_cannot_have_the_types_has_f16() -> None:
    draft = model(layers=16, heads=8, kv=2, size=80)
    found = need(make_plan(model(), Memory(64 * GIB), draft=draft), "q4_0")
    assert found.draft_bytes > draft.size + ledger(draft.geometry, CacheConfig(8192, "f16", "f16")).bytes


def test_its_cache_is_no_longer_than_it_was_trained_for() -> None:
    draft = model(layers=16, heads=8, kv=2, size=64, context_length=2048)
    plan = make_plan(model(), Memory(64 * GIB), draft=draft)
    assert plan.context == 8192
    for kind in TYPES:
        assert need(plan, kind).draft_kv_bytes == ledger(draft.geometry, CacheConfig(2048, kind, kind)).bytes


# ------------------------------------------------------------------ what is chosen


def chosen(plan: Plan) -> tuple[str, int, bool | None]:
    return plan.chosen.types, plan.context, plan.chosen.fits


def test_f16_and_8192_tokens_where_there_is_room() -> None:
    assert chosen(make_plan(model(), Memory(64 * GIB))) == ("f16", 8192, True)


def test_no_more_than_the_model_was_trained_for() -> None:
    assert chosen(make_plan(model(context_length=2048), Memory(64 * GIB))) == ("f16", 2048, True)


def test_then_q8_0_then_a_smaller_context() -> None:
    """4.3 GiB of weights; 1 GiB of f16 cache, 0.53 GiB as q8_0, half of that for 4,096 tokens; room for others."""
    full = make_plan(model(), Memory(64 * GIB))
    tight = {
        kind: need(make_plan(model(), Memory(64 * GIB), Wanted(context)), kind).total_bytes
        for kind, context in (("q8_0", 8192), ("f16", 8192))
    }
    half = need(make_plan(model(), Memory(64 * GIB), Wanted(4096)), "q8_0").total_bytes
    assert chosen(make_plan(model(), Memory(with_room(tight["f16"])))) == ("f16", 8192, True)
    assert chosen(make_plan(model(), Memory(with_room(tight["f16"]) - MIB))) == ("q8_0", 8192, True)
    assert chosen(make_plan(model(), Memory(with_room(tight["q8_0"])))) == ("q8_0", 8192, True)
    assert chosen(make_plan(model(), Memory(with_room(tight["q8_0"]) - MIB))) == ("q8_0", 4096, True)
    assert chosen(make_plan(model(), Memory(with_room(half) - MIB))) == ("q8_0", 2048, True)
    assert chosen(make_plan(model(), Memory(full.weights_bytes))) == ("q8_0", 8192, False)


def with_room(needed: int) -> int:
    """The least free memory in which so much fits: an eighth of it is left to others."""
    return -(-needed * 8 // 7)


def test_an_eighth_of_the_memory_is_left_and_at_most_a_gib() -> None:
    assert [room(free) for free in (0, 800 * MIB, 8 * GIB, 64 * GIB)] == [0, 100 * MIB, GIB, GIB]
    plan = make_plan(model(), Memory(64 * GIB))
    assert (plan.free_bytes, plan.room_bytes) == (64 * GIB, GIB)


def test_what_is_asked_for_stays() -> None:
    plan = make_plan(model(), Memory(4 * GIB), Wanted(50_000, "q4_0", "q4_0"))
    assert chosen(plan) == ("q4_0", 50_000, False)
    assert chosen(make_plan(model(), Memory(64 * GIB), Wanted(type_k="q8_0"))) == ("q8_0/f16", 8192, True)
    assert chosen(make_plan(model(), Memory(64 * GIB), Wanted(50_000))) == ("f16", 50_000, True)


def test_what_is_not_known_is_not_said_to_fit() -> None:
    plan = make_plan(model(), Memory())
    assert chosen(plan) == ("f16", 8192, None)
    assert {(found.fits, found.largest_context) for found in plan.needs} == {(None, None)}
    assert (plan.free_bytes, plan.room_bytes) == (None, 0)
    assert "not known" in plan.recommendation


def test_types_that_the_model_refuses_say_why() -> None:
    plan = make_plan(model(size=80), Memory(64 * GIB))
    assert chosen(plan) == ("f16", 8192, True)
    for kind in ("q8_0", "q4_0"):
        found = need(plan, kind)
        assert found.refusal is not None
        assert "multiple of 32" in found.refusal.message
        assert (found.fits, found.largest_context, found.total_bytes) == (None, None, 0)


def test_a_refused_choice_is_explained() -> None:
    plan = make_plan(model(), Memory(64 * GIB), Wanted(flash="off", type_k="f16", type_v="q8_0"))
    assert plan.chosen.refusal is not None
    assert "flash attention" in plan.recommendation


# ------------------------------------------------------------------ the largest context


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("gib", [5, 8, 12])
def test_the_largest_context_fits_and_the_next_does_not(kind: str, gib: int) -> None:
    memory = Memory(gib * GIB)
    largest = need(make_plan(model(), memory), kind).largest_context
    assert largest is not None
    assert largest % 256 == 0
    if largest:
        assert need(make_plan(model(), memory, Wanted(largest)), kind).fits
    if largest < 131_072:
        assert not need(make_plan(model(), memory, Wanted(largest + 256)), kind).fits


def test_smaller_types_have_room_for_more() -> None:
    found = make_plan(model(), Memory(10 * GIB)).needs
    sizes = [each.largest_context or 0 for each in found]
    assert sizes == sorted(sizes)
    assert sizes[1] > 1.8 * sizes[0]


def test_a_state_that_does_not_grow_allows_what_was_trained() -> None:
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 16, "ssm__time_step_rank": 16}
    recurrent = model("mamba", layers=3, heads=0, kv=0, size=0, **ssm)
    plan = make_plan(recurrent, Memory(8 * GIB))
    assert {found.largest_context for found in plan.needs} == {131_072}
    assert {found.kv_bytes for found in plan.needs} == {0}


def test_nothing_fits_beside_weights_that_do_not() -> None:
    plan = make_plan(model(), Memory(2 * GIB))
    assert {found.largest_context for found in plan.needs} == {0}
    assert "weights take 4.3 GiB" in plan.recommendation


# ------------------------------------------------------------------ a GPU


def test_all_layers_on_a_gpu_need_its_memory_alone() -> None:
    plan = make_plan(model(), Memory(GIB, 16 * GIB))
    assert (plan.gpu_layers, plan.all_layers, plan.batch) == (33, 33, 512)
    assert chosen(plan) == ("f16", 8192, True)
    assert (plan.free_bytes, plan.gpu_layers_that_fit) == (16 * GIB, None)


def test_no_layer_on_the_gpu_needs_ram() -> None:
    plan = make_plan(model(), Memory(16 * GIB, GIB), Wanted(gpu_layers=0))
    assert (plan.gpu_layers, plan.batch, plan.free_bytes) == (0, 64, 16 * GIB)
    assert chosen(plan) == ("f16", 8192, True)


def test_layers_are_chosen_for_the_memory_of_the_gpu() -> None:
    """4 GiB, of which an eighth is left to others and one computation is needed whatever is there. Of weights and cache
    each of 33 layers has the same share: f16 does not fit whole, nor does q8_0, which takes less."""
    plan = make_plan(model(), Memory(16 * GIB, 4 * GIB))
    cache = GIB * 34 // 64
    share = (4_608_000_000 + cache) / 33
    layers = int((4 * GIB * 7 // 8 - plan.chosen.compute_bytes) / share)
    assert (plan.chosen.types, plan.context, plan.gpu_layers, plan.chosen.fits) == ("q8_0", 8192, layers, True)
    assert 0 < layers < 33
    assert f"{layers} of 33 layers go to the GPU" in plan.recommendation


def test_all_layers_with_a_smaller_type_go_before_some_with_the_larger() -> None:
    whole = make_plan(model(), Memory(64 * GIB, 64 * GIB))
    assert (whole.chosen.types, whole.gpu_layers) == ("f16", 33)
    q8 = need(whole, "q8_0")
    tight = make_plan(model(), Memory(64 * GIB, with_room(q8.total_bytes - q8.process_bytes)))
    assert (tight.chosen.types, tight.gpu_layers, tight.context) == ("q8_0", 33, 8192)


def test_what_does_not_go_into_the_gpu_at_all_goes_into_ram() -> None:
    plan = make_plan(model(), Memory(16 * GIB, 200 * MIB))
    assert (plan.gpu_layers, plan.chosen.types, plan.chosen.fits, plan.batch) == (0, "f16", True, 64)


def test_layers_that_are_asked_for_stay() -> None:
    for layers in (5, 33):
        assert make_plan(model(), Memory(16 * GIB, 4 * GIB), Wanted(gpu_layers=layers)).gpu_layers == layers


def test_where_ram_is_short_too_the_context_is_smaller() -> None:
    plan = make_plan(model(), Memory(32 * MIB, 5 * GIB + 300 * MIB))
    assert (plan.gpu_layers, plan.chosen.types, plan.chosen.fits) == (33, "q8_0", True)
    assert plan.context < 8192


def test_a_gpu_that_is_too_small_for_the_layers_asked_for_takes_some() -> None:
    memory = Memory(16 * GIB, 4 * GIB)
    plan = make_plan(model(), memory, Wanted(gpu_layers=33))
    assert plan.chosen.fits is False
    assert plan.gpu_layers_that_fit is not None
    assert 0 < plan.gpu_layers_that_fit < 33
    assert f"-ngl {plan.gpu_layers_that_fit}" in plan.recommendation
    wanted = Wanted(plan.context, plan.chosen.type_k, plan.chosen.type_v, gpu_layers=plan.gpu_layers_that_fit)
    assert make_plan(model(), memory, wanted).chosen.fits
    assert not make_plan(model(), memory, replace(wanted, gpu_layers=wanted.gpu_layers + 1)).chosen.fits


# ------------------------------------------------------------------ in words


def test_the_recommendation_names_what_more_would_fit() -> None:
    said = make_plan(model(), Memory(10 * GIB)).recommendation
    largest = make_plan(model(), Memory(10 * GIB)).chosen.largest_context
    assert said.startswith("f16 with 8,192 tokens fits.")
    assert f"Up to {largest:,} tokens would." in said
    assert "With q8_0 up to" in said


def test_the_recommendation_names_remedies() -> None:
    plan = make_plan(model(), Memory(8 * GIB), Wanted(60_000, "f16", "f16"))
    assert f"--ctx-size {plan.chosen.largest_context}" in plan.recommendation
    assert "does not fit" in plan.recommendation
    plan = make_plan(model(), Memory(12 * GIB), Wanted(60_000, "f16", "f16"))
    assert "-ctk q8_0 -ctv q8_0" in plan.recommendation


def test_a_context_beyond_the_training_is_mentioned() -> None:
    said = make_plan(model(context_length=4096), Memory(64 * GIB), Wanted(8192)).recommendation
    assert "trained for 4,096" in said


# ------------------------------------------------------------------ files


def test_a_file_becomes_a_subject(tmp_path: Path) -> None:
    file = tiny.build("llama", tmp_path)
    found = subject("name", [file], file.stat().st_size)
    assert (found.name, found.size) == ("name", file.stat().st_size)
    assert found.work.vocabulary == 512
    assert found.header == read_header(file)


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    first = tiny.build("llama", tmp_path)
    second = tmp_path / "second.gguf"
    writer = gguf.GGUFWriter(second, "llama")
    writer.add_tensor("blk.1.ffn_up.weight", np.zeros((1024, 128), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    one, both = subject("name", [first], 1), subject("name", [first, second], 2)
    assert both.header.parameters == one.header.parameters + 1024 * 128
    assert max(part.made for part in both.work.parts) >= 1024 + max(part.made for part in one.work.parts)


def test_files_that_are_no_chat_models(tmp_path: Path) -> None:
    text = tmp_path / "text.gguf"
    text.write_bytes(b"not a model")
    with pytest.raises(FormatError, match="not a GGUF file"):
        subject("text", [text], 11)
    encoder = tmp_path / "bert.gguf"
    writer = gguf.GGUFWriter(encoder, "bert")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(KvchatError, match="do not generate text"):
        subject("bert", [encoder], 1)


# ------------------------------------------------------------------ without weights


def test_the_cache_alone() -> None:
    shape = model().geometry
    assert cache_bytes(shape, "f16", "f16", 8192) == GIB
    assert cache_bytes(shape, "q8_0", "q8_0", 8192) == GIB * 34 // 64

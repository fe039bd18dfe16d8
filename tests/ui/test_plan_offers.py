"""What is offered when a model does not fit: every offer fits, and the smaller context is the largest that does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny

from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui.model_facts import ModelFacts, model_at, read_facts
from kvchat.ui.offers import FitProblem, fit_problem
from kvchat.ui.plan_words import need_lines, reuse_lines, reuse_text
from kvchat.ui.planning import plan_for

MIB = 1 << 20
FREE = 110 * MIB  # 96 can be used; of these the engine itself takes 60
CONTEXT = 16384


def facts(folder: Path, kind: str = "llama", **spec: object) -> ModelFacts:
    return read_facts(model_at(tiny.build(kind, folder, **spec), []))


def config(found: ModelFacts, **fields: object) -> EngineConfig:
    return replace(EngineConfig(str(found.model.path), context=CONTEXT), **fields)  # type: ignore[arg-type]


def total(found: ModelFacts, wanted: EngineConfig) -> int:
    plan = plan_for(found, wanted, Memory())
    assert plan is not None
    return plan.chosen.total_bytes


def asked(found: ModelFacts, wanted: EngineConfig, free: int | None, past_tokens: int = 0) -> FitProblem:
    problem = fit_problem(found, wanted, Memory(free), past_tokens)
    assert problem is not None
    return problem


@pytest.fixture
def llama(tmp_path: Path) -> ModelFacts:
    """1,024 bytes of KV a token in f16, so 16 MiB at 16,384 tokens."""
    return facts(tmp_path, context=65536)


def test_what_is_needed_is_said_in_parts(llama: ModelFacts) -> None:
    wanted = config(llama)
    problem = asked(llama, wanted, FREE)
    assert problem.headline == f"llama needs about {total(llama, wanted) / MIB:.0f} MiB; 110 MiB of memory is free."
    assert "KV cache        16 MiB   f16, 16,384 tokens" in problem.parts
    assert "left free       14 MiB   for other programs" in problem.parts  # an eighth
    assert [part.split()[0] for part in problem.parts] == ["weights", "KV", "computations", "engine", "left"]


def test_every_offer_fits_and_the_context_is_the_largest(llama: ModelFacts) -> None:
    free = FREE
    problem = asked(llama, config(llama), free)
    smaller, *types, anyway, cancel = problem.offers
    assert [offer.label for offer in problem.offers] == [
        "Smaller context",
        "q8_0 cache",
        "q4_0 cache",
        "Load anyway",
        "Cancel",
    ]
    assert smaller.config is not None
    assert total(llama, smaller.config) <= free * 7 // 8
    larger = replace(smaller.config, context=smaller.config.context + 256)  # llama.cpp's step
    assert total(llama, larger) > free * 7 // 8
    assert smaller.meaning.startswith(f"{smaller.config.context:,} tokens, KV {smaller.config.context / 1024:.0f} MiB")
    for offer, kind, kv in zip(types, ("q8_0", "q4_0"), (17 / 2, 9 / 2), strict=True):  # MiB: 34/64 and 18/64 of 16
        assert offer.config == config(llama, type_k=kind, type_v=kind)
        assert total(llama, offer.config) <= free * 7 // 8
        assert offer.meaning.startswith(f"16,384 tokens, KV {kv:.0f} MiB")
    assert (anyway.config, cancel.config) == (config(llama), None)


def test_types_that_do_not_fit_are_not_offered(llama: ModelFacts) -> None:
    q8, q4 = (total(llama, config(llama, type_k=kind, type_v=kind)) for kind in ("q8_0", "q4_0"))
    assert q4 < q8
    free = (q4 + q8) // 2 * 8 // 7
    assert "q8_0 cache" not in [offer.label for offer in asked(llama, config(llama), free).offers]
    assert "q4_0 cache" in [offer.label for offer in asked(llama, config(llama), free).offers]


def test_what_has_room_for_the_chat_is_offered_first(llama: ModelFacts) -> None:
    problem = asked(llama, config(llama), FREE, past_tokens=CONTEXT)
    assert [offer.label for offer in problem.offers[:3]] == ["q8_0 cache", "q4_0 cache", "Smaller context"]
    assert problem.offers[2].meaning.endswith("; this chat has 16,384")


def test_where_nothing_helps_a_hasty_enter_loads_nothing(tmp_path: Path) -> None:
    found = facts(tmp_path)
    huge = replace(found, subject=replace(found.subject, size=40 << 30))  # type: ignore[type-var]
    problem = asked(huge, config(huge, context=0), 1 << 30)
    assert [(offer.label, offer.config) for offer in problem.offers] == [
        ("Cancel", None),
        ("Load anyway", config(huge, context=0)),
    ]


def test_an_automatic_context_is_offered_with_its_number(llama: ModelFacts) -> None:
    """8,192 tokens are usual; the plan halves them while f16 does not fit. Where even 512 do not, a type may."""
    small = total(llama, config(llama, context=512))
    q4 = total(llama, config(llama, context=512, type_k="q4_0", type_v="q4_0"))
    assert q4 < small
    problem = asked(llama, config(llama, context=0), (small + q4) // 2 * 8 // 7)
    offer = next(offer for offer in problem.offers if offer.label == "q4_0 cache")
    assert offer.config is not None
    assert offer.config.context >= 512


@pytest.mark.parametrize(
    ("kind", "fields", "free"),
    [
        ("llama", {}, 1 << 40),  # fits
        ("llama", {}, None),  # not known
        ("stablelm96", {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "off"}, 1),  # refused: V without FA
    ],
)
def test_nothing_is_asked(tmp_path: Path, kind: str, fields: dict[str, object], free: int | None) -> None:
    found = facts(tmp_path, kind)
    assert fit_problem(found, config(found, **fields), Memory(free)) is None


def test_nothing_is_asked_about_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    gone = read_facts(ModelFile("gone", tmp_path / "gone.gguf", 5, "models"))
    assert fit_problem(gone, config(gone), Memory(1)) is None


def test_a_recurrent_model_has_a_state_instead(tmp_path: Path) -> None:
    """Nothing that grows with the context, so no other context or type is offered."""
    found = facts(tmp_path, "mamba")
    problem = asked(found, config(found), 1 * MIB)
    assert not any(part.startswith("KV") for part in problem.parts)
    assert any(part.startswith("state") and "any context size" in part for part in problem.parts)
    assert [offer.label for offer in problem.offers] == ["Cancel", "Load anyway"]


# ------------------------------------------------------------------ in two lines


def test_lines_from_long_to_short(llama: ModelFacts) -> None:
    plan = plan_for(llama, config(llama), Memory(1 << 30))
    assert plan is not None
    assert llama.geometry is not None
    need, compute = f"{plan.chosen.total_bytes / MIB:.0f} MiB of 1.0 GiB free", plan.chosen.compute_bytes / MIB
    assert need_lines(plan) == (
        f"about {need}: weights {plan.weights_bytes >> 10} KiB + KV 16 MiB + compute {compute:.0f} MiB + engine 60 MiB",
        f"~{need}: weights {plan.weights_bytes >> 10} KiB, KV 16 MiB, compute {compute:.0f} MiB, engine 60 MiB",
        f"~{need}",
    )
    assert reuse_lines(plan, llama.geometry) == (
        "f16, 16,384 tokens · GQA · reused from pages",
        "GQA · reused from pages",
        "GQA",
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("llama", "reused from pages"),
        ("deepseek2", "reused from pages"),
        ("gemma3", "reused from pages, window rows with them"),
        ("mamba", "reused from checkpoints"),
        ("jamba", "reused from checkpoints and pages"),
    ],
)
def test_how_it_is_found_again(tmp_path: Path, kind: str, said: str) -> None:
    shape = facts(tmp_path, kind).geometry
    assert shape is not None
    assert reuse_text(shape) == said
    assert reuse_text(replace(shape, parts=())) == "reused in memory only"

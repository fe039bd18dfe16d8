"""What to say and to offer about a model that does not fit into the free memory. Pure functions over plans.

Owns the words and which offers there are; every number is a plan's. Must not know widgets or machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.kv.fit import SMALLEST_CONTEXT
from kvchat.kv.needs import Memory
from kvchat.kv.plan import Plan
from kvchat.ui.meters import size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.planning import plan_for


@dataclass(frozen=True, slots=True)
class Offer:
    """One way on: `meaning` says what it does, `config` is what is loaded then; None: nothing."""

    label: str
    meaning: str
    config: EngineConfig | None


@dataclass(frozen=True, slots=True)
class FitProblem:
    """What is needed against what is free: in a sentence, in lines, and what can be done, the best first."""

    headline: str
    parts: tuple[str, ...]
    offers: tuple[Offer, ...]


def fit_problem(
    facts: ModelFacts,
    config: EngineConfig,
    memory: Memory,
    past_tokens: int = 0,
    draft: ModelFacts | None = None,
) -> FitProblem | None:
    """The question about this configuration of a model. None where there is none to ask: it fits, the free memory is
    not known, or the model cannot be run or cannot have these cache types, which the engine says. `past_tokens` are
    those of the open chat, `draft` is the draft model of the configuration."""
    plan = plan_for(facts, config, memory, draft)
    if plan is None or plan.chosen.fits is not False:
        return None
    others = [
        (label, other, plan_for(facts, other, memory, draft if other.draft_path else None))
        for label, other in _others(plan, config)
    ]
    fitting = [(label, config, other) for label, config, other in others if other is not None and other.chosen.fits]
    fitting.sort(key=lambda each: each[2].context < past_tokens)  # what has room for the chat goes before
    offers = tuple(_offer(label, config, other, past_tokens) for label, config, other in fitting)
    anyway = Offer("Load anyway", "it may fail, or slow this machine down", config)
    cancel = Offer("Cancel", "nothing is loaded", None)
    # The first one is what a hasty Enter takes.
    choices = (*offers, anyway, cancel) if offers else (cancel, anyway)
    return FitProblem(_headline(plan), _parts(plan), choices)


def _headline(plan: Plan) -> str:
    free, total = size_text(plan.free_bytes or 0), size_text(plan.chosen.total_bytes)
    return f"{plan.model} needs about {total}; {free} of memory is free."


def _parts(plan: Plan) -> tuple[str, ...]:
    chosen = plan.chosen
    rows = (
        ("weights", plan.weights_bytes, ""),
        ("KV cache", chosen.kv_bytes, f"{chosen.types}, {plan.context:,} tokens"),
        ("state", chosen.state_bytes, "the same at any context size"),
        ("computations", chosen.compute_bytes, "estimate"),
        ("engine", chosen.process_bytes, "the process and its vocabulary"),
        ("draft model", chosen.draft_bytes, "with its own KV and computations"),
        ("left free", plan.room_bytes, "for other programs"),
    )
    return tuple(f"{name:<13}{size_text(size):>9}   {said}".rstrip() for name, size, said in rows if size)


def _others(plan: Plan, config: EngineConfig) -> Iterator[tuple[str, EngineConfig]]:
    """Without the draft model, the largest context, then the other types that take less, the most exact first."""
    if plan.chosen.draft_bytes:
        yield "No draft model", replace(config, draft_path=None)
    largest = plan.chosen.largest_context or 0
    if SMALLEST_CONTEXT <= largest < plan.context:
        yield "Smaller context", replace(config, context=largest)
    for need in plan.needs:
        if need.refusal is None and need.kv_bytes < plan.chosen.kv_bytes:
            kind = cast(CacheType, need.type_k)
            yield f"{kind} cache", replace(config, type_k=kind, type_v=kind)


def _offer(label: str, config: EngineConfig, plan: Plan, past_tokens: int) -> Offer:
    chosen = plan.chosen
    meaning = f"{plan.context:,} tokens, KV {size_text(chosen.kv_bytes)}, {size_text(chosen.total_bytes)} in all"
    if past_tokens > plan.context:
        meaning += f"; this chat has {past_tokens:,}"
    # With its number: what the engine would choose by itself need not be what was offered.
    return Offer(label, meaning, replace(config, context=plan.context))

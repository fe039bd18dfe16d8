"""What the settings screen says beside, below and about a configuration. Pure functions from values to text.

Owns the wording; sizes are those of a plan. Must not know widgets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kvchat.backend.protocol import Previewed, Ready
from kvchat.backend.values import CacheType, EngineConfig, FlashAttention
from kvchat.kv.fit import turns_at_once
from kvchat.kv.geometry import Geometry
from kvchat.kv.needs import Memory
from kvchat.kv.plan import Plan
from kvchat.ui.meters import MemoryNeed, size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.planning import plan_for
from kvchat.ui.settings_fields import FieldName, Limits, left_out, linked, repaired

BITS: dict[CacheType, str] = {"f16": "16", "bf16": "16", "q8_0": "8.5", "q4_0": "4.5"}
MIXED = "mixed types: slow on stock CUDA builds"
LOADS_DRAFT = "Loads the draft model beside the model: of this chat nothing is computed again."
FREES_DRAFT = "Gives the memory of the draft model back: of this chat nothing is computed again."
SAID: dict[FieldName, str] = {
    "read_ahead": "yes: words, pastes and files are read while a message is written, and after Enter only the rest. "
    "What was read for nothing is told with the answer. Nothing of it is written to disk before the message is sent.",
    "parallel": "so many answers are computed together, in one context that they share; more wait. Windows and "
    "recurrent states take memory for each.",
    "favour": "when a prompt is read while answers are written: answers makes these about twice as slow, balanced four "
    "times, prompts reads as fast as it can.",
}
NOTHING = "Applying changes nothing."
EffectKind = Literal["none", "change", "warning"]


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the words depend on. `ready` tells of the engine that runs with `started`, None when none does; `config`
    is what is being chosen, for the model of `facts`. `memory`: bytes of RAM. `plan` is that of `config`, None for a
    model that cannot be run; `now` that of the running engine, None when it has another model."""

    ready: Ready | None
    started: EngineConfig
    config: EngineConfig
    facts: ModelFacts
    cores: int
    memory: int | None
    past_tokens: int
    plan: Plan | None
    now: Plan | None

    @property
    def same_model(self) -> bool:
        return self.config.model_path == self.started.model_path

    @property
    def running(self) -> Ready | None:
        """The running engine, if it has the model that is chosen."""
        return self.ready if self.same_model else None


def limits(situation: Situation) -> Limits | None:
    """What the chosen configuration must fit; None for a model that cannot be run."""
    shape = situation.facts.geometry
    return Limits(shape, situation.cores, situation.memory) if shape is not None else None


def for_model(config: EngineConfig, cores: int, memory: int | None, facts: ModelFacts) -> EngineConfig:
    """The configuration for another model, one that can be run, with as few changes as make it possible."""
    assert facts.geometry is not None
    return repaired(config.of_model(str(facts.model.path)), Limits(facts.geometry, cores, memory))


def planned(
    facts: ModelFacts,
    config: EngineConfig,
    started: EngineConfig,
    ready: Ready | None,
    memory: Memory,
    draft: ModelFacts | None = None,
) -> Plan | None:
    """The plan of what is chosen. What is chosen automatically stays what the running engine made of it."""
    if ready is not None and _sized(config) == _sized(started):
        flash: FlashAttention = "on" if ready.cache.flash_attention else "off"
        config = replace(config, context=ready.cache.context, flash_attention=flash)
    return plan_for(facts, config, memory, draft)


def _sized(config: EngineConfig) -> EngineConfig:
    """Without what says nothing about sizes in memory."""
    plain = replace(config, threads=0, gpu_layers=0, kv_folder=None, kv_budget=0, kv_type_disk="same", draft_path=None)
    return replace(plain, read_ahead=True, favour="answers")


def memory_need(situation: Situation) -> MemoryNeed | None:
    """For the meters; None for a model that cannot be run."""
    plan = situation.plan
    if plan is None:
        return None
    chosen, now = plan.chosen, situation.now
    f16 = next(need for need in plan.needs if need.types == "f16")
    return MemoryNeed(
        cache=chosen.kv_bytes + chosen.state_bytes,
        f16=f16.kv_bytes + f16.state_bytes,
        weights=plan.weights_bytes,
        now=now.chosen.kv_bytes + now.chosen.state_bytes if now is not None else 0,
        compute=chosen.compute_bytes + chosen.process_bytes,
        memory=situation.memory,
        free=plan.free_bytes,
        fits=chosen.fits,
        draft=chosen.draft_bytes,
    )


# ------------------------------------------------------------------ beside and below the fields


def brief(field: FieldName, situation: Situation) -> str:
    """A few words beside the field."""
    shape = situation.facts.geometry
    if shape is None:
        return size_text(situation.facts.model.size) if field == "model" else ""
    config = situation.config
    found = {
        "model": f"{size_text(situation.facts.model.size)} · {shape.attention} · {shape.layers} layers",
        "type_k": _bits(config.type_k, shape),
        "type_v": "kept together with K" if linked(shape) else _bits(config.type_v, shape),
        "context": _context(situation, shape),
        "parallel": "" if config.parallel else f"{turns_at_once(shape)} with this model",
        **dict.fromkeys(("favour", "read_ahead"), ""),
    }
    return found[field] if field in found else _machine(field, situation)


def detail(field: FieldName, situation: Situation) -> str:
    """Sentences about the field that is being changed: what its values mean here, which are left out and why."""
    known = limits(situation)
    if known is None:
        return situation.facts.problem
    config = situation.config
    parts = list(left_out(field, config, known))
    if field in ("type_k", "type_v") and config.type_k != config.type_v:
        parts.insert(0, MIXED)
    if field == "type_v" and config.type_v in ("q8_0", "q4_0") and known.geometry.cache:
        parts.insert(0, "needs flash attention" + (": on" if config.flash_attention == "on" else ", so auto is on"))
    if field == "threads" and not config.threads:
        parts.insert(0, "auto: chosen by rule at first, then measured on this machine while idle")
    if field in SAID:
        parts.append(SAID[field])
    if field == "flash_attention" and config.flash_attention == "auto":
        parts.insert(0, "auto: the faster one as measured on this machine")
    return "\n".join(parts)


def _bits(kind: CacheType, shape: Geometry) -> str:
    if not shape.cache:
        return "this model keeps no K and V"
    return f"{BITS[kind]} bits a value" + ("" if BITS[kind] == "16" else ", f16 has 16")


def _context(situation: Situation, shape: Geometry) -> str:
    trained = f"model trained for {shape.context_trained:,}" if shape.context_trained else ""
    now = "" if situation.config.context or situation.plan is None else f"{situation.plan.context:,} tokens"
    return " · ".join(filter(None, (now, trained)))


def _machine(field: FieldName, situation: Situation) -> str:
    """Fields that a running engine has an answer for when they are automatic."""
    config, ready = situation.config, situation.running
    if field == "threads":
        now = f"now {ready.cache.threads} " if ready is not None and not config.threads else ""
        return f"{now}of {situation.cores}"
    if field == "flash_attention":
        if config.flash_attention != "auto":
            return ""
        if config.type_v in ("q8_0", "q4_0"):
            return f"on, for the {config.type_v} V cache"
        return "" if ready is None else f"now {'on' if ready.cache.flash_attention else 'off'}"
    if ready is None:
        return ""
    return "no layer is on a GPU now" if not ready.cache.gpu_layers else f"now {ready.cache.gpu_layers}"


# ------------------------------------------------------------------ what applying does


def effect(situation: Situation, previewed: Previewed | None) -> tuple[str, EffectKind]:
    """What applying will do to the engine and to the open chat, in time."""
    config, started = situation.config, situation.started
    plan = situation.plan
    if plan is None:
        return "Choose another one in the field Model.", "warning"
    if situation.ready is None:
        return "No engine is running: it starts with these settings.", "change"
    if config == started:
        return NOTHING, "none"
    short = " It does not fit into the memory that is free." if plan.chosen.fits is False else ""
    tokens = plan.context
    if situation.past_tokens > tokens:
        short += f" This chat has {situation.past_tokens:,} tokens, more than the {tokens:,} of the context."
    kind: EffectKind = "warning" if short else "change"
    same = replace(started, draft_path=config.draft_path, read_ahead=config.read_ahead, favour=config.favour)
    if config == same:
        return f"{_in_place(config, started)}{short}", kind
    if not situation.same_model:
        found = " What this chat computed with it before is found again." if situation.past_tokens else ""
        return f"Another model: a new engine process.{found}{short}", kind
    first = "Starts the engine again" if config.gpu_layers != started.gpu_layers else "Builds the context again"
    return f"{first}: {_returning(situation, previewed)}.{short}", kind


def _in_place(config: EngineConfig, started: EngineConfig) -> str:
    """What happens where the context stays as it is."""
    if config.draft_path != started.draft_path:
        return LOADS_DRAFT if config.draft_path else FREES_DRAFT
    return "Nothing is computed again: it holds for what is written from now on."


def _returning(situation: Situation, previewed: Previewed | None) -> str:
    if not situation.past_tokens:
        return "this chat has computed nothing yet"
    if previewed is None:
        return f"what of this chat's {situation.past_tokens:,} tokens comes back is being looked up"
    restored, transcoded = previewed.restored, previewed.transcoded
    computed = previewed.tokens - restored
    took = "" if previewed.seconds is None else _about(previewed.seconds)
    if computed <= 1 and transcoded:  # the token that was sampled last was never computed
        some = f", {transcoded:,} of them from other types" if transcoded < restored else ""
        return f"switches {restored:,} tokens{some}{f' {took}' if took else ''}, nothing is read again"
    text = f"{restored:,} of {previewed.tokens:,} tokens come back from pages"
    text += f", {transcoded:,} of them from other types" if transcoded else ""
    if computed <= 0:
        return text
    return f"{text}, {computed:,} {'is' if computed == 1 else 'are'} computed" + (f", {took}" if took else "")


def _about(seconds: float) -> str:
    if seconds < 0.1:
        return "in less than 0.1 s"
    return f"in about {seconds:.1f} s" if seconds < 3 else f"in about {seconds:.0f} s"

"""The plan for a model: which cache types and context would be used, what that takes, whether it fits, and what else
would. Owns this choice and its words; the sums are those of `needs`. Must not read machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvchat.kv.fit import SMALLEST_CONTEXT, Flash, computed_at_once, default_context, sequences
from kvchat.kv.needs import Memory, Need, Subject, Sums, room

TYPES = ("f16", "q8_0", "q4_0")


class Batches(Protocol):
    """The part of how a machine runs a model that a plan depends on."""

    @property
    def batch(self) -> int: ...
    @property
    def ubatch(self) -> int: ...
    @property
    def kv_offload(self) -> bool: ...


class Asked(Protocol):
    """Settings, and what an engine is started with."""

    @property
    def context(self) -> int: ...
    @property
    def type_k(self) -> str: ...
    @property
    def type_v(self) -> str: ...
    @property
    def flash_attention(self) -> Flash: ...
    @property
    def gpu_layers(self) -> int: ...
    @property
    def hardware(self) -> Batches: ...
    @property
    def parallel(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asked for. `context` 0, types "": chosen here. `gpu_layers` negative: chosen here, none where no
    VRAM is known. `batch`, `kv_offload`, `parallel`: see `Sums`."""

    context: int = 0
    type_k: str = ""
    type_v: str = ""
    flash: Flash = "auto"
    gpu_layers: int = -1
    batch: int = 0
    kv_offload: bool = True
    parallel: int = 0

    @classmethod
    def of(cls, asked: Asked, *, choose_types: bool = False) -> Wanted:
        """What a configuration asks for; `choose_types`: but for the cache types, which nobody chose."""
        hardware = asked.hardware
        return cls(
            asked.context,
            "" if choose_types else asked.type_k,
            "" if choose_types else asked.type_v,
            asked.flash_attention,
            asked.gpu_layers,
            computed_at_once(hardware.batch, hardware.ubatch),
            hardware.kv_offload,
            asked.parallel,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole answer, sizes in bytes.

    `chosen`: what would be used, the types asked for, else f16 where it fits, else q8_0. `needs`: one for each of
    TYPES, for K and V alike, at the same context. `window`: tokens that window layers look back, 0 without.
    `sequences`, `batch`: as the engine builds its context. `gpu_layers`: of `all_layers`, 0 where no VRAM is known;
    `gpu_layers_that_fit`: the most with which the chosen types fit where they do not with so many, None when none
    helps. `free_bytes`: the memory that counts, VRAM when all layers are there; `room_bytes`: what is left to others.
    """

    model: str
    architecture: str
    attention: str
    window: int
    context: int
    context_trained: int
    sequences: int
    batch: int
    all_layers: int
    gpu_layers: int
    gpu_layers_that_fit: int | None
    weights_bytes: int
    adapter_bytes: int
    draft_model: str
    free_ram_bytes: int | None
    free_vram_bytes: int | None
    free_bytes: int | None
    room_bytes: int
    needs: tuple[Need, ...]
    chosen: Need

    @property
    def recommendation(self) -> str:
        """Sentences for a person."""
        return " ".join(_advice(self))


def make_plan(model: Subject, memory: Memory, wanted: Wanted | None = None, draft: Subject | None = None) -> Plan:
    """The plan for a model, with a draft model beside it. For types that it refuses the `Need` says why."""
    wanted = wanted or Wanted()

    def with_layers(gpu_layers: int) -> Sums:
        return Sums(
            model,
            memory,
            draft=draft,
            flash=wanted.flash,
            gpu_layers=gpu_layers,
            batch=wanted.batch,
            kv_offload=wanted.kv_offload,
            parallel=wanted.parallel,
        )

    sums = with_layers(wanted.gpu_layers)
    if wanted.gpu_layers < 0 and sums.gpu_layers:
        sums = with_layers(_layers(sums, wanted))
    chosen, context = _choose(sums, wanted)
    free = memory.vram if sums.gpu_layers == sums.all_layers else memory.ram
    return Plan(
        model=model.name,
        architecture=model.geometry.architecture,
        attention=model.geometry.attention,
        window=model.geometry.window,
        context=context,
        context_trained=model.geometry.context_trained,
        sequences=sequences(model.geometry, wanted.parallel),
        batch=sums.batch,
        all_layers=sums.all_layers,
        gpu_layers=sums.gpu_layers,
        gpu_layers_that_fit=_layers_that_fit(sums, chosen),
        weights_bytes=model.size,
        adapter_bytes=model.adapters,
        draft_model=draft.name if draft else "",
        free_ram_bytes=memory.ram,
        free_vram_bytes=memory.vram,
        free_bytes=free,
        room_bytes=room(free) if free is not None else 0,
        needs=tuple(sums.need(kind, kind, context) for kind in TYPES),
        chosen=chosen,
    )


def _possible(sums: Sums, wanted: Wanted, context: int) -> list[Need]:
    """With the types asked for, else with those that may be chosen, the most exact first."""
    pairs = [("f16", "f16"), ("q8_0", "q8_0")]
    if wanted.type_k or wanted.type_v:
        pairs = [(wanted.type_k or "f16", wanted.type_v or "f16")]
    found = [sums.need(*pair, context) for pair in pairs]
    return [need for need in found if need.refusal is None] or found[:1]


def _layers(sums: Sums, wanted: Wanted) -> int:
    """All layers on the GPU where they fit with any of the types that may be chosen; else as many as fit with the one
    that takes least. All of them, too, where nothing fits: then a smaller context may."""
    possible = _possible(sums, wanted, wanted.context or default_context(sums.model.geometry))
    if possible[0].refusal is not None or any(need.fits is not False for need in possible):
        return sums.gpu_layers
    least = possible[-1]
    return next((count for count in reversed(range(sums.gpu_layers)) if sums.fits(least, count)), sums.gpu_layers)


def _choose(sums: Sums, wanted: Wanted) -> tuple[Need, int]:
    """Types and sizes that are asked for stay, whether they fit or not; so does the usual size when none fits."""
    usual = context = wanted.context or default_context(sums.model.geometry)
    possible = _possible(sums, wanted, context)
    chosen = next((need for need in possible if need.fits is not False), possible[-1])
    while not wanted.context and chosen.fits is False and context > SMALLEST_CONTEXT:
        context //= 2
        smaller = sums.need(chosen.type_k, chosen.type_v, context)
        if smaller.fits:
            return smaller, context
    return chosen, usual


def _layers_that_fit(sums: Sums, chosen: Need) -> int | None:
    """The most layers on the GPU with which a plan fits that does not fit with as many as were meant."""
    if chosen.fits is not False or not sums.gpu_layers:
        return None
    return next((count for count in reversed(range(sums.gpu_layers)) if sums.fits(chosen, count)), None)


# ------------------------------------------------------------------ in words


def _advice(plan: Plan) -> Iterator[str]:
    chosen = plan.chosen
    if chosen.refusal is not None:
        yield f"{chosen.refusal.message[:1].upper()}{chosen.refusal.message[1:]}: {chosen.refusal.hint}."
        return
    what = f"{chosen.types} with {plan.context:,} tokens"
    if chosen.fits is None:
        yield f"{what} takes about {_size(chosen.total_bytes)}; how much memory is free is not known."
    elif chosen.fits:
        yield f"{what} fits."
        if 0 < plan.gpu_layers < plan.all_layers:
            yield f"{plan.gpu_layers} of {plan.all_layers} layers go to the GPU, the others stay in RAM."
        yield from _beyond(plan)
    else:
        free = _size((plan.free_bytes or 0) - plan.room_bytes)
        yield f"{what} does not fit: it takes about {_size(chosen.total_bytes)}, {free} can be used."
        yield from _remedies(plan)
    if plan.context > plan.context_trained > 0:
        yield f"The model was trained for {plan.context_trained:,} tokens; what it says beyond them is worse."


def _beyond(plan: Plan) -> Iterator[str]:
    """What more could be had."""
    most = plan.chosen.largest_context or 0
    if most > plan.context:
        yield f"Up to {most:,} tokens would."
    longer = [need for need in plan.needs if (need.largest_context or 0) > most]
    if most < plan.context_trained and longer:
        yield f"With {longer[0].types} up to {longer[0].largest_context:,}."


def _remedies(plan: Plan) -> Iterator[str]:
    """What would fit instead."""
    found = []
    if plan.chosen.largest_context:
        found.append(f"--ctx-size {plan.chosen.largest_context}")
    smaller = next((need for need in plan.needs if need.fits), None)
    if smaller is not None:
        found.append(f"-ctk {smaller.type_k} -ctv {smaller.type_v}")
    if plan.gpu_layers_that_fit is not None:
        found.append(f"-ngl {plan.gpu_layers_that_fit}")
    if found:
        yield f"What would fit: {', or '.join(found)}."
        return
    shorter = max(plan.needs, key=lambda need: need.largest_context or 0)
    if shorter.largest_context:
        yield f"What would fit: -ctk {shorter.type_k} -ctv {shorter.type_v} --ctx-size {shorter.largest_context}."
    else:
        yield f"Its weights take {_size(plan.weights_bytes)}: a smaller quantization or a smaller model may fit."


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{max(number, 0) / (1 << 20):.0f} MiB"

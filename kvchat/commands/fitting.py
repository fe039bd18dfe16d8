"""Whether a model fits into the free memory, before a command loads it. Owns the cache types that nobody chose, and the
question; the sums are those of `kv.plan`. Must not load anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory, subject_at, with_adapters
from kvchat.kv.plan import Plan, Wanted, make_plan
from kvchat.machine import free_memory, free_vram


def fitted(
    config: EngineConfig,
    settings: Settings,
    *,
    new: bool,
    note: Callable[[str], object],
    anyway: Callable[[str], bool],
) -> EngineConfig:
    """The configuration that is run: in a new chat with the cache types of the plan, where nobody chose them; `note` is
    told so. KvchatError when it does not fit and `anyway`, which is told what would, does not want it all the same."""
    automatic = new and not settings.types_chosen
    plan = _plan(config, automatic=automatic)
    if plan is None or plan.chosen.refusal is not None:
        return config  # the engine says what is wrong
    if plan.chosen.fits is False and settings.fit == "ask" and not anyway(f"{plan.model}: {plan.recommendation}"):
        raise KvchatError(
            f"{plan.model} does not fit into the free memory, and nothing was loaded",
            f"{plan.recommendation} --fit off loads it all the same",
        )
    if not automatic or plan.chosen.types == "f16":
        return config
    note(f"the cache is {plan.chosen.types}: an f16 one would not fit into the free memory")
    type_k, type_v = cast(CacheType, plan.chosen.type_k), cast(CacheType, plan.chosen.type_v)
    return replace(config, type_k=type_k, type_v=type_v)


def _plan(config: EngineConfig, *, automatic: bool) -> Plan | None:
    """None when its files cannot be read: the engine says so."""
    try:
        model = with_adapters(
            subject_at(Path(config.model_path)), [adapter.path for adapter in config.lora if adapter.scale]
        )
    except KvchatError:
        return None
    draft = None
    if config.draft_path is not None:
        try:
            draft = subject_at(Path(config.draft_path))
        except KvchatError:
            draft = None  # the engine goes on without it, and says so
    return make_plan(
        model,
        Memory(free_memory(), free_vram() if config.gpu_layers else None),
        Wanted.of(config, choose_types=automatic),
        draft,
    )

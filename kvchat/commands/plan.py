"""`kvchat plan MODEL`: the memory that a model takes, and what fits into that of this machine. Must not load a model.

Owns the form; the numbers are those of `kv.plan`.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable
from typing import TextIO

from kvchat.clean import clean_line
from kvchat.commands.table import print_table, size_text
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory, Need, Subject, subject, with_adapters
from kvchat.kv.plan import Plan, Wanted, make_plan
from kvchat.library.find import check, drop_in_folders, files_of_model, find_files, resolve
from kvchat.library.pairing import difference
from kvchat.machine import free_memory, free_vram
from kvchat.paths import Paths


def run_plan(name: str, settings: Settings, paths: Paths, *, draft: str | None, json: bool, out: TextIO) -> int:
    """Print the plan for a model, by name or path; with `json` one object. KvchatError when there is no such model,
    when it is broken or cannot chat, when it cannot have the cache types that were asked for, or when the draft model
    has another vocabulary."""
    acting = [adapter.path for adapter in settings.lora if adapter.scale]
    model = with_adapters(_subject(name, paths, settings), acting)
    beside = _subject(draft, paths, settings) if draft is not None else None
    if beside is not None and (found := difference(model.header, beside.header)) is not None:
        raise KvchatError(
            f"{beside.name} cannot draft for {model.name}, the vocabularies differ: {found}",
            f"`kvchat models show {model.name}` proposes draft models that are here",
        )
    wanted = Wanted.of(settings, choose_types=not settings.types_chosen)
    plan = make_plan(model, Memory(free_memory(), free_vram()), wanted, beside)
    if plan.chosen.refusal is not None:
        raise plan.chosen.refusal
    if json:
        print(jsonlib.dumps(_object(plan)), file=out)
    else:
        _print(plan, out)
    return 0


def _subject(name: str, paths: Paths, settings: Settings) -> Subject:
    model = resolve(name, find_files(paths, drop_in_folders(settings.model_folders)))
    return subject(model.name, files_of_model(model, check(model)), model.size)


# ------------------------------------------------------------------ as JSON


def _object(plan: Plan) -> dict[str, object]:
    """Names that scripts rely on. What is one number is that of the types that would be used."""
    needs = {need.type_k: need for need in plan.needs}

    def each(value: Callable[[Need], object]) -> dict[str, object]:
        return {kind: None if need.refusal else value(need) for kind, need in needs.items()}

    return {
        "model": plan.model,
        "architecture": plan.architecture,
        "attention": plan.attention,
        "context": plan.context,
        "context_trained": plan.context_trained,
        "cache_types": {"k": plan.chosen.type_k, "v": plan.chosen.type_v},
        "sequences": plan.sequences,
        "batch": plan.batch,
        "weights_bytes": plan.weights_bytes,
        "adapter_bytes": plan.adapter_bytes,
        "kv_bytes": each(lambda need: need.kv_bytes),
        "kv_bytes_per_token": each(lambda need: need.kv_bytes_per_token),
        "state_bytes": plan.chosen.state_bytes,
        "compute_bytes": plan.chosen.compute_bytes,
        "compute_bytes_per_type": each(lambda need: need.compute_bytes),
        "process_bytes": plan.chosen.process_bytes,
        "draft_model": plan.draft_model or None,
        "draft_bytes": plan.chosen.draft_bytes,
        "draft_bytes_per_type": each(lambda need: need.draft_bytes),
        "total_bytes": each(lambda need: need.total_bytes),
        "free_ram_bytes": plan.free_ram_bytes,
        "free_vram_bytes": plan.free_vram_bytes,
        "room_bytes": plan.room_bytes,
        "fits": each(lambda need: need.fits),
        "largest_context": each(lambda need: need.largest_context),
        "refusals": {kind: need.refusal.message for kind, need in needs.items() if need.refusal},
        "chosen": {
            "kv_bytes": plan.chosen.kv_bytes,
            "total_bytes": plan.chosen.total_bytes,
            "fits": plan.chosen.fits,
            "largest_context": plan.chosen.largest_context,
        },
        "recommendation": plan.recommendation,
    }


# ------------------------------------------------------------------ for a person


def _print(plan: Plan, out: TextIO) -> None:
    needs = list(plan.needs)
    if plan.chosen.types not in {need.types for need in needs}:
        needs.append(plan.chosen)
    trained = f", of {plan.context_trained:,} it was trained for" if plan.context_trained > plan.context else ""
    window = f", window layers keep the last {plan.window:,} tokens" if plan.window else ""
    print(f"{clean_line(plan.model)}: {clean_line(plan.architecture)}, {plan.attention}{window}", file=out)
    print(f"context: {plan.context:,} tokens{trained}\n", file=out)
    columns = ("cache type", *(need.types for need in needs))
    print_table(columns, _rows(plan, needs), out, numbers=columns[1:])
    print(file=out)
    for need in needs:
        if need.refusal:
            print(f"{need.types}: {need.refusal.message}", file=out)
    print(f"free: {_free(plan)}", file=out)
    print(clean_line(plan.recommendation), file=out)


def _rows(plan: Plan, needs: list[Need]) -> list[tuple[str, ...]]:
    def row(label: str, value: Callable[[Need], str]) -> tuple[str, ...]:
        return (label, *("-" if need.refusal else value(need) for need in needs))

    rows = [
        row("weights", lambda _: size_text(plan.weights_bytes)),
        row("LoRA adapters", lambda _: size_text(plan.adapter_bytes)),
        row("KV cache", lambda need: size_text(need.kv_bytes)),
        row("recurrent state", lambda need: size_text(need.state_bytes)),
        row("computations, estimate", lambda need: size_text(need.compute_bytes)),
        row("the engine itself", lambda need: size_text(need.process_bytes)),
        row("draft model, estimate", lambda need: size_text(need.draft_bytes)),
        row("total, about", lambda need: size_text(need.total_bytes)),
        row("fits", lambda need: _yes_or_no(need.fits)),
        row("largest context", lambda need: "-" if need.largest_context is None else f"{need.largest_context:,}"),
        row("KV per token", lambda need: size_text(need.kv_bytes_per_token)),
    ]
    missing = {
        "LoRA adapters": plan.adapter_bytes,
        "recurrent state": plan.chosen.state_bytes,
        "draft model, estimate": plan.draft_model,
    }
    return [cells for cells in rows if missing.get(cells[0], True)]


def _yes_or_no(fits: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[fits]


def _free(plan: Plan) -> str:
    ram = "RAM not known" if plan.free_ram_bytes is None else f"{size_text(plan.free_ram_bytes)} RAM"
    vram = "VRAM -" if plan.free_vram_bytes is None else f"{size_text(plan.free_vram_bytes)} VRAM"
    left = f"; {size_text(plan.room_bytes)} is left to other programs" if plan.room_bytes else ""
    return f"{ram}, {vram}{left}"

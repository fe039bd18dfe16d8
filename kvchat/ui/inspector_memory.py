"""The memory that model and cache take, now and with other cache types. Pure functions from a plan to lines.

Every size is the ledger's or the plan's; none is computed here. Must not know widgets or machines, and applies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from textual.content import Content

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig
from kvchat.errors import KvchatError
from kvchat.kv.fit import OUTPUTS, Flash, rollback_rows, uses_flash
from kvchat.kv.geometry import Geometry
from kvchat.kv.ledger import CacheConfig, Ledger, held_bytes, ledger
from kvchat.kv.needs import Memory, Need
from kvchat.kv.plan import Plan
from kvchat.ui.context_bar import Look, filled
from kvchat.ui.meters import shortened, size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.planning import plan_for

LABEL_CELLS = 21
SIZE_CELLS = 9
BAR = Look("━", "$primary")
NO_BAR = Look(" ", "")


@dataclass(frozen=True, slots=True)
class MemoryView:
    """`plan` is that of the context as it was built, or before there is one, as it would be. `choices`: what the cache
    types would take at this context, `now` which of them is the plan's. `cache`: what is allocated. `draft_weights`:
    bytes of those of the draft model, 0 without one."""

    plan: Plan
    running: bool
    choices: tuple[Need, ...]
    now: int
    geometry: Geometry
    cache: Ledger | None
    draft_weights: int = 0


def memory_view(
    facts: ModelFacts, config: EngineConfig, ready: Ready | None, memory: Memory, draft: ModelFacts | None = None
) -> MemoryView | str:
    """The view, or why there is none. `ready` tells of the engine that runs with `config`, `draft` of its drafter."""
    built = config if ready is None else _as_built(config, ready)
    plan = plan_for(facts, built, memory, draft)
    if plan is None or facts.geometry is None:
        return facts.problem
    others = plan_for(facts, replace(config, context=plan.context), memory, draft)
    needs = list(others.needs) if others is not None else []
    now = next((at for at, need in enumerate(needs) if need.types == plan.chosen.types), None)
    if now is None:
        now = 0
        needs.insert(0, plan.chosen)
    needs[now] = plan.chosen
    cache = _allocated(facts.geometry, plan, built)
    weights = draft.subject.size if draft is not None and draft.subject is not None else 0
    return MemoryView(plan, ready is not None, tuple(needs), now, facts.geometry, cache, weights)


def _as_built(config: EngineConfig, ready: Ready) -> EngineConfig:
    built = ready.cache
    flash: Flash = "on" if built.flash_attention else "off"
    return replace(config, context=built.context, type_k=built.type_k, type_v=built.type_v, flash_attention=flash)


def _allocated(shape: Geometry, plan: Plan, built: EngineConfig) -> Ledger | None:
    """The cells of each group of layers, for the context of the plan."""
    types = plan.chosen.type_k, plan.chosen.type_v
    flash = uses_flash(shape, types[1], built.flash_attention, plan.gpu_layers > 0)
    rollback = rollback_rows(shape, built.parallel)
    if plan.chosen.refusal is not None:
        return None
    return ledger(shape, CacheConfig(plan.context, *types, flash, plan.sequences, plan.batch, rollback, OUTPUTS))


# ------------------------------------------------------------------ in lines


def memory_lines(view: MemoryView, marked: int, width: int) -> list[Content]:
    """What the marked types would take in parts and in all, and all types beside each other."""
    need = view.choices[marked]
    most = max((each.total_bytes for each in view.choices), default=0) or 1
    lines = [_row(label, size, most, width) for label, size in _parts(view, need)]
    lines.append(_total(view, need, width))
    lines.append(_heading(view))
    return [*lines, *(_choice(view, at, at == marked, width) for at in range(len(view.choices)))]


def what_if(view: MemoryView, marked: int) -> str:
    """Of other types than those of now: that they are only looked at."""
    return "" if marked == view.now else f"what if {view.choices[marked].types}: nothing is applied"


def held_line(view: MemoryView, used: int) -> str:
    """What the used cells hold of what is reserved for all. "" where there is no cache."""
    need = view.plan.chosen
    reserved = need.kv_bytes + need.state_bytes
    try:
        held = held_bytes(view.geometry, need.type_k, need.type_v, used)
    except KvchatError:
        return ""
    if not view.running or not reserved:
        return ""
    return f"{size_text(held)} held of {size_text(reserved)} reserved"


def window_line(view: MemoryView) -> str:
    """What layers with a window keep; "" where there are none."""
    shape, cache = view.geometry, view.cache
    if not shape.window or cache is None:
        return ""
    tokens = f"those since the last multiple of {shape.window:,}" if shape.chunked else f"the last {shape.window:,}"
    part = f"{cache.window.layers} window layers keep {tokens} tokens in {cache.window.cells:,} cells"
    return f"{part}; {cache.full.layers} keep all in {cache.full.cells:,}" if cache.full.layers else part


def _parts(view: MemoryView, need: Need) -> Iterator[tuple[str, int]]:
    yield "weights", view.plan.weights_bytes
    if need.refusal is not None:
        return
    if need.kv_bytes:
        yield f"KV {need.types}", need.kv_bytes
    if need.state_bytes:
        yield "recurrent state", need.state_bytes
    yield "compute (estimate)", need.compute_bytes
    yield "engine itself", need.process_bytes
    if need.draft_bytes:
        yield "draft weights", view.draft_weights
        yield "draft KV", need.draft_kv_bytes
        yield "draft compute (est.)", need.draft_bytes - need.draft_kv_bytes - view.draft_weights


def _row(label: str, size: int, most: int, width: int) -> Content:
    cells = max(0, width - LABEL_CELLS - SIZE_CELLS - 2)
    return Content.assemble(
        Content.styled(label.ljust(LABEL_CELLS), "$meta"),
        Content(f"{size_text(size):>{SIZE_CELLS}}  "),
        filled(size / most, cells, BAR, NO_BAR),
    )


def _total(view: MemoryView, need: Need, width: int) -> Content:
    label = Content.styled("total, about".ljust(LABEL_CELLS), "$meta")
    if need.refusal is not None:
        problem = shortened(need.refusal.message, width - LABEL_CELLS - 1)
        return Content.assemble(label, Content.styled(f" {problem}", "$error"))
    free = view.plan.free_bytes
    said = f"{size_text(need.total_bytes):>{SIZE_CELLS}}"
    if free is None:
        return Content.assemble(label, Content(said), Content.styled("  free memory is not known", "$meta"))
    style = "$error" if need.fits is False else "$success"
    room = f"  of {size_text(free)} free"
    without = " without this engine" if view.running else ""
    longest = room + without if len(room + without) + SIZE_CELLS + LABEL_CELLS <= width else room
    return Content.assemble(label, Content.styled(said, style), Content(longest))


def _heading(view: MemoryView) -> Content:
    left = f"with {view.plan.context:,} cells".ljust(LABEL_CELLS)
    return Content.styled(f"{left}{'KV':>{SIZE_CELLS}}{'total':>{SIZE_CELLS + 1}}{'most cells':>12}", "$meta")


def _choice(view: MemoryView, at: int, marked: bool, width: int) -> Content:
    need = view.choices[at]
    label = f"{'▸' if marked else ' '} {need.types}{' now' if at == view.now and view.running else ''}"
    style = "$primary" if marked else ""
    name = Content.styled(label.ljust(LABEL_CELLS), style) if style else Content(label.ljust(LABEL_CELLS))
    if need.refusal is not None:
        return Content.assemble(name, Content.styled(" cannot be had", "$meta"))
    cache = size_text(need.kv_bytes + need.state_bytes)
    most = "" if need.largest_context is None else f"{need.largest_context:,}" if need.largest_context else "none"
    fits = "  does not fit" if need.fits is False and width >= LABEL_CELLS + 46 else ""
    numbers = f"{cache:>{SIZE_CELLS}}{size_text(need.total_bytes):>{SIZE_CELLS + 1}}{most:>12}"
    return Content.assemble(name, Content(numbers), Content.styled(fits, "$error"))

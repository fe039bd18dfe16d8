"""What is said about a plan before a model is loaded: what it takes, whether it fits, how its cache is found again.

Pure functions from values to text; every number is a plan's. Must not know widgets or machines.
"""

from __future__ import annotations

from kvchat.kv.geometry import Geometry
from kvchat.kv.plan import Plan
from kvchat.ui.meters import size_text


def need_lines(plan: Plan) -> tuple[str, ...]:
    """What it takes in all and in parts: one sentence, from its longest form to its shortest."""
    need = plan.chosen
    if need.refusal is not None:
        return (need.refusal.message,)
    cache = "KV" if not need.state_bytes else "KV and state" if need.kv_bytes else "state"
    parts = [
        f"weights {size_text(plan.weights_bytes)}",
        f"{cache} {size_text(need.kv_bytes + need.state_bytes)}",
        f"compute {size_text(need.compute_bytes)}",
        f"engine {size_text(need.process_bytes)}",
    ]
    total = size_text(need.total_bytes)
    if plan.free_bytes is not None:
        total += f" of {size_text(plan.free_bytes)} free"
    return f"about {total}: {' + '.join(parts)}", f"~{total}: {', '.join(parts)}", f"~{total}"


def reuse_lines(plan: Plan, geometry: Geometry) -> tuple[str, ...]:
    """In which configuration, the kind of attention, and how what was computed is found again; as `need_lines`."""
    cache = f"{plan.chosen.types}, " if geometry.cache else ""
    kind, how = plan.attention, reuse_text(geometry)
    return f"{cache}{plan.context:,} tokens · {kind} · {how}", f"{kind} · {how}", kind


def reuse_text(geometry: Geometry) -> str:
    """How the state of a chat of this model is kept and found again."""
    match geometry.parts:
        case ():
            return "reused in memory only"
        case ("state",):
            return "reused from checkpoints"
        case (*_, "state"):
            return "reused from checkpoints and pages"
        case (_, "window"):
            return "reused from pages, window rows with them"
        case _:
            return "reused from pages"

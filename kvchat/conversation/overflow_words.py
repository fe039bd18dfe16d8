"""What is said about a full context, in the app and without a screen alike. Pure; says only what the engine told."""

from __future__ import annotations

from kvchat.backend.values import ModelInfo, OverflowPolicy, Usage

POLICIES: dict[OverflowPolicy, str] = {
    "stop": "the answer ends, nothing leaves",
    "shift": "the oldest turns leave, whole ones",
    "sinks": "the first tokens and the last ones stay, the oldest between them leave",
    "prune": "of the middle, what attracts the least attention leaves",
}
"""What a policy does when the context is full."""

RECURRENT = "a recurrent state cannot let single tokens go"


def cannot_evict(model: ModelInfo) -> str:
    """Why nothing can leave the context of a model; "" where it can."""
    return RECURRENT if model.attention in ("recurrent", "hybrid") else ""


def evicted_words(usage: Usage) -> list[str]:
    """What left the context in a turn."""
    found = []
    if usage.evicted:
        policy = f" ({usage.overflow})" if usage.overflow in POLICIES and usage.overflow != "stop" else ""
        found.append(f"let {usage.evicted:,} token{'' if usage.evicted == 1 else 's'} go{policy}")
    if usage.reasoning_evicted:
        found.append(f"reasoning of earlier answers left: {usage.reasoning_evicted:,} tokens")
    return found

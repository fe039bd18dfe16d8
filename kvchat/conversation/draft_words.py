"""What is said about drafting, in the app and without a screen alike. Pure; says only what the engine measured."""

from __future__ import annotations

from kvchat.backend.values import DraftMode, Usage

DRAFTERS = {"ngram": "n-gram", "model": "draft model", "both": "n-gram and draft model"}
MODES: dict[DraftMode, str] = {
    "auto": "n-gram, else the draft model",
    "ngram": "n-gram, from the text of this chat",
    "model": "the draft model alone",
    "off": "nothing",
}
"""What drafts, by mode."""


def accepted_share(proposed: int, accepted: int) -> float | None:
    """The part of the drafted tokens that stood; None where nothing was drafted."""
    return min(1.0, accepted / proposed) if proposed > 0 else None


def speedup_text(speedup: float) -> str:
    """Decode speed against plain decoding."""
    return f"{speedup:.2f} times plain"


def draft_words(usage: Usage) -> str:
    """How drafting went in a turn; "" where nothing was drafted. What kind it was may come from a file: of a kind that
    is not known, nothing is said."""
    if usage.draft_proposed <= 0:
        return ""
    drafter = DRAFTERS.get(usage.draft_kind, "")
    kind = f" ({drafter})" if drafter else ""
    gain = f", {speedup_text(usage.draft_speedup)}" if usage.draft_speedup > 0 else ""
    return f"drafts {usage.draft_accepted:,} of {usage.draft_proposed:,}{kind}{gain}"

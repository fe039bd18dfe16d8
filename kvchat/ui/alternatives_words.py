"""What is said of one of several answers while it comes and when it is there. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.conversation import Alternative, LiveTurn, read_usage
from kvchat.conversation.samplings import label
from kvchat.conversation.too_long import excess_words

_WAITS = "waits"
_ENDS = {"length": "token limit", "context": "context full", "cancelled": "stopped", "error": "failed", "died": "died"}


def heading(number: int, found: Sequence[Alternative]) -> str:
    """Its number among all, and what is its own: "2/3 seed 8"."""
    own = label(found[number - 1].sampling, [each.sampling for each in found])
    return f"{number}/{len(found)} {own}".rstrip()


def state(each: Alternative, speed: float | None) -> str:
    """What it does, how far it is, how fast; and what it did not have to compute. `speed`: tokens per second now."""
    if each.live is not None:
        return _told(_doing(each.live), *_pace(each, speed), _shared(_shared_of(each.live)))
    usage = read_usage(each.message)
    ending = _ENDS.get(each.message.finish or "", "")
    if usage is None:
        return _told(ending, *_pace(each, None))
    if usage.excess:
        return f"not answered: {excess_words(usage.excess)}"
    average = usage.decode_tokens / usage.decode_seconds if usage.decode_seconds > 0 else None
    return _told(ending, *_pace(each, average), _shared(usage.shared))


def summary(found: Sequence[Alternative]) -> str:
    """How many are still being written."""
    live = sum(each.live is not None for each in found)
    return f"{len(found)} answers" + (f", {live} being written" if live else "")


def others_words(count: int) -> str:
    """That answers are being written which are not shown."""
    return f"{count} other answer{'' if count == 1 else 's'} being written"


def _doing(live: LiveTurn) -> str:
    match live.phase:
        case "queued":
            return f"{_WAITS}: {live.waiting}" if live.waiting else _WAITS
        case "prompt":
            return "restoring"
        case "prefill":
            done = live.progress
            return f"reading {done.done / done.total:.0%}" if done is not None and done.total else "reading"
        case _:
            return ""


def _pace(each: Alternative, speed: float | None) -> tuple[str, str]:
    return (
        f"{each.tokens:,} token{'' if each.tokens == 1 else 's'}" if each.tokens else "",
        f"{speed:.1f} t/s" if speed is not None and each.tokens else "",
    )


def _shared_of(live: LiveTurn) -> int:
    return 0 if live.restored is None else live.restored.shared


def _shared(cells: int) -> str:
    return f"shares {cells:,} cells" if cells else ""


def _told(*parts: str) -> str:
    return " · ".join(part for part in parts if part)

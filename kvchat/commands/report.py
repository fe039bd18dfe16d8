"""What one turn was and cost, as `kvchat ask --json` prints it and as one line for a person.

Owns the names of the JSON object, which are a contract with people's scripts. Must not compute what it reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from kvchat.backend.protocol import Ready
from kvchat.backend.values import Sampling, Usage
from kvchat.conversation.draft_words import draft_words
from kvchat.conversation.overflow_words import evicted_words
from kvchat.conversation.remote_words import UNTOLD, reuse_is_known


@dataclass(frozen=True, slots=True)
class Answer:
    """The assistant message of a turn that is over. `chat` and `message` are ids; None for one that is gone with it,
    incognito. `prefix`: the name of the pinned one that the chat is on."""

    chat: str | None
    message: str | None
    text: str
    finish: str
    prefix: str | None = None


def report(
    answer: Answer, ready: Ready, usage: Usage, summaries: Sequence[Mapping[str, object]] = ()
) -> dict[str, object]:
    """The object of `ask --json`: seconds, bytes, token counts. `summaries` took the place of messages meanwhile."""
    model, cache = ready.model, ready.cache
    here = ready.remote is None  # else nothing is known of what lies on the server
    return {
        **asdict(answer),
        "model": {
            "name": model.name,
            "architecture": model.architecture if here else None,
            "attention": model.attention if here else None,
            "fingerprint": model.fingerprint if here else None,
            "kv_bytes_per_token": model.kv_bytes_per_token if here else None,
            "adapters": list(model.adapters),
        },
        "cache": {
            "type_k": cache.type_k if here else None,
            "type_v": cache.type_v if here else None,
            "context": cache.context or None,
            "cells": usage.cells,
            "bytes": usage.cache_bytes if here else None,
        },
        "prompt": _prompt(usage),
        "decode": _decode(usage),
        "draft": {
            "kind": usage.draft_kind,
            "proposed": usage.draft_proposed,
            "accepted": usage.draft_accepted,
            "steps": usage.draft_steps,
            "seconds": round(usage.draft_seconds, 6),
            "speedup": round(usage.draft_speedup, 3),
            "note": usage.draft_note,
        },
        "overflow": _overflow(usage, summaries),
        "remote": None if ready.remote is None else {"host": ready.remote.host, "leaves": ready.remote.leaves},
        "saved": {"pages": usage.pages_saved, "bytes": usage.bytes_saved, "problem": usage.save_problem},
    }


def alternative(answer: Answer, sampling: Sampling, usage: Usage) -> dict[str, object]:
    """One of several answers, in the list of them."""
    return {
        "message": answer.message,
        "text": answer.text,
        "finish": answer.finish,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "prompt": _prompt(usage),
        "decode": _decode(usage),
    }


def _prompt(usage: Usage) -> dict[str, object]:
    known = reuse_is_known(usage)
    return {
        "tokens": usage.prompt_tokens,
        "reused": usage.reused if known else None,
        "computed": usage.computed if known else None,
        "cut": usage.cut,
        "from": {
            "resident": usage.resident,
            "shared": usage.shared,
            "pages": usage.pages,
            "checkpoint": usage.checkpoint,
        },
        "transcoded": usage.transcoded,
        "transcoded_tokens": usage.transcoded_tokens,
        "restore_seconds": round(usage.restore_seconds, 6),
        "prefill_seconds": round(usage.prefill_seconds, 6),
    }


def _decode(usage: Usage) -> dict[str, object]:
    return {
        "tokens": usage.decode_tokens,
        "seconds": round(usage.decode_seconds, 6),
        "tokens_per_second": round(tokens_per_second(usage), 3),
        "ttft_seconds": round(usage.ttft_seconds, 6),
    }


def _overflow(usage: Usage, summaries: Sequence[Mapping[str, object]]) -> dict[str, object] | None:
    if usage.overflow is None and not usage.reasoning_evicted and not summaries:
        return None
    told: dict[str, object] = {
        "policy": "summarize" if summaries else usage.overflow,
        "evicted": usage.evicted,
        "evictions": usage.evictions,
        "reasoning": usage.reasoning_evicted,
    }
    return told | ({"summaries": list(summaries)} if summaries else {})


def tokens_per_second(usage: Usage) -> float:
    """Decode speed; 0 when nothing was decoded."""
    return usage.decode_tokens / usage.decode_seconds if usage.decode_seconds > 0 else 0.0


def summary(usage: Usage) -> str:
    """What the turn reused, computed and cost, in one line."""
    if usage.remote is not None:
        return _summary_of_server(usage, usage.remote)
    sources = {
        "memory": usage.resident,
        "cells of another answer": usage.shared,
        "pages": usage.pages,
        "checkpoint": usage.checkpoint,
    }
    origin = ", ".join(f"{count} from {name}" for name, count in sources.items() if count)
    if usage.transcoded:
        origin += f", {usage.transcoded_tokens} transcoded from {usage.transcoded}"
    reused = f"{usage.reused} reused" + (f" ({origin})" if origin else "")
    cut = f" (cut: {usage.cut})" if usage.cut else ""
    seconds = usage.restore_seconds + usage.prefill_seconds
    said = [words for words in (draft_words(usage), *evicted_words(usage)) if words]
    more = "".join(f" · {words}" for words in said)
    return (
        f"prompt {_tokens(usage.prompt_tokens)}: {reused}, {usage.computed} computed{cut} in {seconds:.2f} s"
        f" · answer {_tokens(usage.decode_tokens)}, {tokens_per_second(usage):.1f}/s{more}"
    )


def _summary_of_server(usage: Usage, host: str) -> str:
    reused = f"{usage.reused} reused, {usage.computed} computed" if reuse_is_known(usage) else UNTOLD
    cut = f" (cut: {usage.cut})" if usage.cut else ""
    return (
        f"{host} · prompt {_tokens(usage.prompt_tokens)}: {reused}{cut} · answer {_tokens(usage.decode_tokens)},"
        f" {tokens_per_second(usage):.1f}/s, first {usage.ttft_seconds:.2f} s"
    )


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"

"""What messages and numbers read like. Pure functions from values to entries; must not know widgets or do I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from types import MappingProxyType

from kvchat.backend.protocol import (
    ConfigureFailed,
    EngineDied,
    Event,
    Forecasted,
    LoadFailed,
    ReadingAhead,
    Restored,
    TurnFinished,
    Warmed,
)
from kvchat.backend.values import Failure, Usage
from kvchat.chats.types import Message
from kvchat.conversation import read_usage
from kvchat.conversation.draft_words import draft_words
from kvchat.conversation.overflow_words import evicted_words
from kvchat.conversation.remote_words import UNTOLD, reuse_is_known
from kvchat.conversation.too_long import excess_words, larger_context
from kvchat.conversation.turns import read_sampling
from kvchat.ui.entry import NO_THOUGHT, Entry, NoteKind, ThoughtCost

_FINISHES = {
    "stop": "",
    "length": "stopped at the token limit",
    "context": "the context is full",
    "cancelled": "stopped",
    "error": "failed",
    "died": "the engine died",
}
_INTERRUPTED = "interrupted"
_RESUMABLE = {"length", "cancelled", "died", "error", None}
NO_MARKS: Mapping[str, str] = MappingProxyType({})
_USAGE_FIELDS = {field.name for field in fields(Usage)}


def clock(seconds: float) -> str:
    """Local time of day."""
    return datetime.fromtimestamp(seconds).strftime("%H:%M")


def age(seconds: float) -> str:
    """How long ago, in at most three characters: now, 5m, 3h, 2d, 4w, 1y."""
    for unit, size in (("y", 365 * 86400), ("w", 7 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def source(cost: Usage | Restored) -> str:
    """Where reused tokens came from; where pages of other cache types were transcoded, their types: "q8_0 pages"."""
    plain, types = cost.pages, cost.transcoded
    if types and cost.pages:
        plain -= min(cost.transcoded_tokens, cost.pages)
    parts = [
        ("memory", cost.resident),
        ("another answer", cost.shared),
        ("pages", plain),
        ("checkpoint", cost.checkpoint),
    ]
    words = "+".join(name for name, count in parts if count)
    return "+".join(filter(None, (words, f"{types} pages"))) if types else words


Siblings = Callable[[str], Sequence[str]]
"""From the id of a message to those of all that stand in its place, itself among them, the oldest first."""


def entry(message: Message, siblings: Siblings, *, last: bool = False, live: bool = False, mark: str = "") -> Entry:
    """A message as it is shown. `last`: nothing follows it, so an answer that was cut short can go on. `mark`: how much
    of it is still seen."""
    above = heading(message, siblings)
    if message.role == "user":
        return Entry(message.id, "user", message.text, heading=above, footer=mark)
    below = "" if live else footer(message, resumable=last, mark=mark)
    thought = thought_cost(message)
    return Entry(message.id, "assistant", message.text, heading=above, footer=below, live=live, thought=thought)


def thought_cost(message: Message) -> ThoughtCost:
    """What the engine said of the reasoning in a reply."""
    usage = read_usage(message)
    return NO_THOUGHT if usage is None else ThoughtCost(usage.reasoning_tokens, usage.reasoning_seconds)


def heading(message: Message, siblings: Siblings) -> str:
    """Who wrote it, which one of several it is, and when."""
    who = "you" if message.role == "user" else message.model or "assistant"
    ids = siblings(message.id)
    which = f"‹{ids.index(message.id) + 1}/{len(ids)}› " if len(ids) > 1 and message.id in ids else ""
    return f"{who} {which}{clock(message.created)}"


def entries(
    messages: Sequence[Message], live: str | None, siblings: Siblings, marks: Mapping[str, str] = NO_MARKS
) -> list[Entry]:
    """A branch as it is shown; `live` is the id of the message that is being written."""
    end = len(messages) - 1
    return [
        entry(message, siblings, last=index == end, live=message.id == live, mark=marks.get(message.id, ""))
        for index, message in enumerate(messages)
    ]


def footer(message: Message, *, resumable: bool, mark: str = "") -> str:
    """What the answer cost, what reuse saved, and how it ended if that was not its own doing; `mark` in a line of its
    own. For a message of the person's, that alone."""
    finish, usage = message.finish, read_usage(message)
    if message.role == "user":
        return mark
    if usage is not None and usage.excess:
        return f"not answered: {excess_words(usage.excess)}"
    ending = _INTERRUPTED if finish is None else _FINISHES.get(finish, finish)
    if resumable and finish in _RESUMABLE:
        ending += ": /continue goes on"
    elif resumable and finish == "context":
        ending += ": /overflow says what may leave, then /continue goes on"
    numbers = [] if usage is None else _numbers(usage)
    told = " · ".join(part for part in [*numbers, _sampled(message), ending] if part)
    return "\n".join(filter(None, (told, mark)))


def _sampled(message: Message) -> str:
    """Of one of several answers, what was its own."""
    own = read_sampling(message)
    if own is None:
        return ""
    temperature, seed = own
    return f"temperature {temperature:g}" + ("" if seed is None else f", seed {seed}")


def note_on(event: Event, turn: str | None) -> tuple[str, NoteKind] | None:
    """What a person should be told about an event whenever it comes; `turn` is the one that was going on."""
    match event:
        case EngineDied(cause=cause, restarting=True):
            return f"{capital(cause)}. It is being started again, nothing you wrote is lost.", "warning"
        case EngineDied(cause=cause):
            return f"{capital(cause)}.", "error"
        case LoadFailed(failure=failure):
            return f"{sentences(failure.message, failure.hint)}\n/model chooses another one", "error"
        case ConfigureFailed(failure=failure):
            return f"not applied: {sentences(failure.message, failure.hint)}", "warning"
        case TurnFinished(turn=finished, reason="error", failure=Failure() as failure) if finished == turn:
            return sentences(failure.message, failure.hint), "error"
        case _:
            return None


def too_long(failure: Failure, usage: Usage, trained: int, *, lets_go: bool = False) -> str:
    """Why a message that does not fit was not answered, and what helps. `trained`: the model's context, 0: unknown.
    `lets_go`: tokens can leave its context."""
    larger = larger_context(usage.prompt_tokens, trained)
    ways = ["/edit takes your message back into the prompt, to shorten it", "/new starts another chat"]
    if lets_go:
        ways.insert(1, "/overflow says what may leave the context, and /retry asks again")
    if larger is not None:
        ways.insert(1, f"/context {larger} makes room if there is memory for it, and /retry asks again")
    return sentences(failure.message, "\n".join(ways))


def forecast(outlook: Forecasted, context: int) -> str:
    """What a send would reuse and cost; `context` is the size of it, in tokens."""
    if outlook.tokens >= context:
        return f"{excess_words(outlook.tokens + 1 - context)} of {context:,}: it cannot be answered"
    reused = outlook.resident + outlook.pages + outlook.checkpoint
    parts = [f"reuses {reused:,}", f"computes {outlook.computed:,}"]
    if outlook.seconds is not None:
        parts.append(f"first token in about {duration(outlook.seconds)}")
    return ", ".join(parts) + (f" · cut: {outlook.cut}" if outlook.cut else "")


def reading_ahead(told: ReadingAhead) -> str:
    """How much of a message was read while it was written; "" where nothing was."""
    if not told.read and not told.wasted:
        return f"not read ahead: {told.why}" if told.why else ""
    left = told.tokens - told.there
    parts = [f"read ahead {told.read:,} of {told.read + left:,} tokens" if left else f"{told.read:,} read ahead"]
    if told.wasted:
        parts.append(f"{told.wasted:,} in vain")
    return ", ".join([*parts, *filter(None, [told.why])])


def warmed(event: Warmed) -> str:
    """What is back in memory of a chat's past; "" where there was nothing to bring."""
    if not event.tokens:
        return ""
    if not event.reused:
        return f"nothing kept: {event.tokens:,} tokens to compute" + (f" ({event.cut})" if event.cut else "")
    count = f"{event.reused:,}" if event.reused >= event.tokens - 1 else f"{event.reused:,} of {event.tokens:,}"
    if event.pages or event.checkpoint:
        where = "a checkpoint" if event.checkpoint else "pages"
        if event.transcoded:
            whole = event.transcoded_tokens >= event.pages + event.checkpoint
            where = f"{event.transcoded} pages" if whole else f"{where} and {event.transcoded} pages"
        return f"{count} tokens back from {where} in {max(0.01, event.seconds):.2f} s"
    return f"{count} tokens in memory"


def read_ahead_words(usage: Usage) -> list[str]:
    """What was read while the person typed."""
    vain = f"{usage.ahead_wasted:,} in vain" if usage.ahead_wasted else ""
    if usage.ahead:
        return [", ".join(filter(None, (f"{usage.ahead:,} read while you typed", vain)))]
    return [f"{usage.ahead_wasted:,} read while you typed, in vain"] if vain else []


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def sentences(message: str, hint: str) -> str:
    """What went wrong and what to do about it, with the hint in a line of its own."""
    return f"{capital(message)}\n{hint}" if hint else capital(message)


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def _reuse(usage: Usage) -> str:
    if not reuse_is_known(usage):
        return f"prompt {usage.prompt_tokens:,}, {UNTOLD}"
    where = source(usage) if usage.remote is None or not usage.reused else f"what {usage.remote} had"
    return f"reused {usage.reused:,} of {usage.prompt_tokens:,}" + (f" from {where}" if where else "")


def _numbers(usage: Usage) -> list[str]:
    parts: list[str] = []
    if usage.decode_tokens:
        parts.append(f"{usage.decode_tokens:,} tokens")
    if usage.decode_tokens and usage.decode_seconds > 0:
        parts.append(f"{usage.decode_tokens / usage.decode_seconds:.1f} tok/s")
    if usage.draft_proposed:
        parts.append(draft_words(usage))
    if usage.ttft_seconds:
        parts.append(f"first {usage.ttft_seconds:.2f} s")
    if usage.prompt_tokens:
        parts.append(_reuse(usage))
    parts += read_ahead_words(usage)
    if usage.saved_seconds >= 0.1:
        parts.append(f"saved {usage.saved_seconds:.1f} s")
    parts += evicted_words(usage)
    if usage.cut:
        parts.append(f"cut: {usage.cut}")
    if usage.save_problem:
        parts.append(f"not saved: {usage.save_problem}")
    return parts

"""What messages and numbers read like. Pure functions from values to entries; must not know widgets or do I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime

from kvchat.backend.protocol import EngineDied, Event, Failure, LoadFailed, Ready, TurnFinished, Usage
from kvchat.chats.types import Message
from kvchat.ui.entry import Entry, NoteKind

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


def source(resident: int, pages: int, checkpoint: int) -> str:
    """Where reused tokens came from."""
    parts = (("memory", resident), ("pages", pages), ("checkpoint", checkpoint))
    return "+".join(name for name, count in parts if count)


def read_usage(text: str | None) -> Usage | None:
    """The usage that was stored with a message; fields of other versions are left out."""
    if not text:
        return None
    values = json.loads(text)
    return Usage(**{name: value for name, value in values.items() if name in _USAGE_FIELDS})


def entry(message: Message, *, last: bool = False, live: bool = False) -> Entry:
    """A message as it is shown. `last`: nothing follows it, so an answer that was cut short can go on."""
    if message.role == "user":
        return Entry(message.id, "user", message.text, heading=heading(message))
    below = "" if live else footer(message, resumable=last)
    return Entry(message.id, "assistant", message.text, heading=heading(message), footer=below, live=live)


def heading(message: Message) -> str:
    """Who wrote it, and when."""
    who = "you" if message.role == "user" else message.model or "assistant"
    return f"{who} {clock(message.created)}"


def entries(messages: Sequence[Message], live: str | None) -> list[Entry]:
    """A branch as it is shown; `live` is the id of the message that is being written."""
    end = len(messages) - 1
    return [entry(message, last=index == end, live=message.id == live) for index, message in enumerate(messages)]


def footer(message: Message, *, resumable: bool) -> str:
    """What the answer cost, what reuse saved, and how it ended if that was not its own doing."""
    finish = message.finish
    ending = _INTERRUPTED if finish is None else _FINISHES.get(finish, finish)
    if resumable and finish in _RESUMABLE:
        ending += ": /continue goes on"
    usage = read_usage(message.usage)
    return " · ".join(part for part in [*([] if usage is None else _numbers(usage)), ending] if part)


def notes_on(event: Event, turn: str | None) -> list[tuple[str, NoteKind]]:
    """What a person should be told about an event; `turn` is the one that was going on when it came."""
    match event:
        case Ready(notes=notes):
            return [(note, "info") for note in notes]
        case EngineDied(cause=cause, restarting=True):  # in which configuration, its Ready says
            return [(f"{_capital(cause)}. It is being started again, nothing you wrote is lost.", "warning")]
        case EngineDied(cause=cause):
            return [(f"{_capital(cause)}.", "error")]
        case LoadFailed(failure=failure):
            return [(sentences(failure.message, failure.hint), "error")]
        case TurnFinished(turn=finished, reason="error", failure=Failure() as failure) if finished == turn:
            return [(sentences(failure.message, failure.hint), "error")]
        case _:
            return []


def sentences(message: str, hint: str) -> str:
    """What went wrong and what to do about it, with the hint in a line of its own."""
    return f"{_capital(message)}\n{hint}" if hint else _capital(message)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _numbers(usage: Usage) -> list[str]:
    parts: list[str] = []
    if usage.decode_tokens:
        parts.append(f"{usage.decode_tokens} tokens")
    if usage.decode_tokens and usage.decode_seconds > 0:
        parts.append(f"{usage.decode_tokens / usage.decode_seconds:.1f} tok/s")
    if usage.ttft_seconds:
        parts.append(f"first {usage.ttft_seconds:.2f} s")
    if usage.prompt_tokens:
        where = source(usage.resident, usage.pages, usage.checkpoint)
        parts.append(f"reused {usage.reused} of {usage.prompt_tokens}" + (f" from {where}" if where else ""))
    if usage.saved_seconds >= 0.1:
        parts.append(f"saved {usage.saved_seconds:.1f} s")
    if usage.cut:
        parts.append(f"cut: {usage.cut}")
    if usage.save_problem:
        parts.append(f"not saved: {usage.save_problem}")
    return parts

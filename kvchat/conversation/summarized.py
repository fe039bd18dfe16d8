"""What a model reads of a branch: the system prompt, a summary of the oldest messages if there is one, and the rest.

Owns how these are put together. Pure; must not know where a summary comes from. The summary is a part of the system
prompt: each template has a place for that, no overflow policy lets it go, and token ids are kept under a key that has
the system prompt in it, so that those of the branch with and without it never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.chats.types import Message, Summary
from kvchat.reasoning import split_whole

_HEAD = "Summary of the earlier conversation:"
_WORDS = "From that conversation, word for word:"
_WHO = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True)
class Reading:
    """`messages` are read as they are, `replaced` are those before them, in whose place `summary` stands."""

    system: str
    messages: tuple[Message, ...]
    summary: Summary | None = None
    replaced: tuple[Message, ...] = ()


def reading(system: str, messages: Sequence[Message], summaries: Sequence[Summary]) -> Reading:
    """What is read of these messages, of a branch with these summaries (see `Branch`). One of all of them does not
    count: there would be nothing to answer."""
    places = {message.id: number for number, message in enumerate(messages[:-1])}
    found = [summary for summary in summaries if summary.message in places]
    if not found:
        return Reading(system, tuple(messages))
    end = places[found[-1].message] + 1
    replaced = tuple(messages[:end])
    return Reading(_with(system, found[-1], replaced), tuple(messages[end:]), found[-1], replaced)


def pinned_text(message: Message) -> str:
    """A pinned message as it stands beside a summary."""
    thought = split_whole(message.text, counted=False).answer if message.role == "assistant" else 0
    return f"{_WHO[message.role]}: {message.text[thought:].strip()}"


def _with(system: str, summary: Summary, replaced: Sequence[Message]) -> str:
    pinned = [pinned_text(message) for message in replaced if message.pinned]
    parts = [system, f"{_HEAD}\n{summary.text}", *([_WORDS] if pinned else []), *pinned]
    return "\n\n".join(part for part in parts if part)

"""A conversation as it goes out and comes in, whatever program wrote it. Owns its shape and when it is whole.

Values only: must not know a database, a model or a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kvchat.clean import clean_line
from kvchat.errors import FormatError

Source = Literal["kvchat", "chatgpt", "llama.cpp"]
NAMES: Mapping[Source, str] = {"kvchat": "kvchat", "chatgpt": "ChatGPT", "llama.cpp": "llama.cpp"}
LATEST = 253402214400.0  # seconds; the last day that a calendar of four digits knows


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message. Times are seconds since the epoch. `finish` and `usage` as kvchat keeps them; `ids` are token ids
    under the key of the text that they belong to. `pinned`: it stays in the context whatever leaves it."""

    id: str
    parent: str | None
    role: Literal["user", "assistant"]
    text: str
    created: float
    finish: str | None
    model: str = ""
    usage: str | None = None
    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptSummary:
    """What a model reads in place of the message with this id and all before it. Counts as kvchat keeps them."""

    message: str
    text: str
    created: float
    model: str = ""
    tokens: int = 0
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation: a tree of messages, each after its parent, siblings in their order, and which one is shown.

    `id` is the name that it has where it comes from, "" for none. `skipped` counts what was left out, by kind.
    """

    source: Source
    id: str
    title: str
    created: float
    updated: float
    messages: tuple[TranscriptMessage, ...]
    head: str | None
    system: str = ""
    clock: float = 0.0
    model: str = ""
    settings: str = "{}"
    title_by: Literal["message", "model", "person"] = "person"
    pinned_at: float | None = None
    summaries: tuple[TranscriptSummary, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """A piece of a file that is no whole conversation, and why. `title` is what it is called, "" where that is lost."""

    title: str
    problem: str


def checked(transcript: Transcript) -> Transcript:
    """The same conversation if it is whole. FormatError says what is wrong with its tree."""
    seen: set[str] = set()
    for message in transcript.messages:
        if not message.id or message.id in seen:
            raise FormatError(f"two messages have the id {clean_line(message.id[:40])!r}")
        if message.parent is not None and message.parent not in seen:
            raise FormatError(f"message {clean_line(message.id[:40])!r} does not come after the one that it answers")
        seen.add(message.id)
    if not transcript.messages:
        raise FormatError("it holds no messages")
    if transcript.head is not None and transcript.head not in seen:
        raise FormatError("the message that is shown is not there")
    if any(summary.message not in seen for summary in transcript.summaries):
        raise FormatError("a message that is summarized is not there")
    return transcript


def branch(transcript: Transcript) -> tuple[TranscriptMessage, ...]:
    """The messages from the root to the one that is shown."""
    by_id = {message.id: message for message in transcript.messages}
    found: list[TranscriptMessage] = []
    at = transcript.head
    while at is not None and len(found) < len(by_id):
        found.append(by_id[at])
        at = by_id[at].parent
    return tuple(reversed(found))


def renamed(transcript: Transcript, names: Mapping[str, str]) -> Transcript:
    """The same conversation with other ids for its messages."""
    messages = tuple(
        replace(message, id=names[message.id], parent=None if message.parent is None else names[message.parent])
        for message in transcript.messages
    )
    head = None if transcript.head is None else names[transcript.head]
    summaries = tuple(replace(summary, message=names[summary.message]) for summary in transcript.summaries)
    return replace(transcript, messages=messages, head=head, summaries=summaries)


def moment(value: object, scale: float = 1.0) -> float | None:
    """A time in a file as seconds since the epoch; None for what is none. `scale` is what a second counts there."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value) / scale
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and 0 < seconds < LATEST else None

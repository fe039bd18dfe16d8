"""Chats and messages as values. Owns their shape; must not touch a database or a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the first frame of the app does without
    from kvchat.formats.past import Eviction

Role = Literal["user", "assistant"]
TitleBy = Literal["message", "model", "person"]
"""Who gave a chat its title: it was made from the first message, a model wrote it, or a person did."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation: a tree of messages with a head, the last message of the branch that is shown.

    `id` is a ULID. `created`, `updated` and `deleted_at` are seconds since the epoch. `clock` is the time that the chat
    template sees, frozen at creation. `system` is the system prompt, "" for none. `model` is the name last used.
    `settings` is a JSON object of what is the chat's own; who runs the chat knows what it means. `pinned_at` is when a
    person pinned it, None for one that is not. `prefix` is the id of the pinned prefix that it begins with: `system` is
    then its text.
    """

    id: str
    title: str
    created: float
    updated: float
    system: str
    clock: float
    model: str
    head: str | None
    deleted_at: float | None = None
    settings: str = "{}"
    pinned_at: float | None = None
    title_by: TitleBy = "message"
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    `finish` is None for an assistant message that was never finished: it is being written now, or the program was
    killed while it was. For user messages it is "". `usage` is a JSON object, as the engine reported it, or None.
    `pinned`: a person wants it to stay in the context, whatever else leaves it.
    """

    id: str
    chat: str
    parent: str | None
    role: Role
    text: str
    created: float
    finish: str | None
    model: str = ""
    usage: str | None = None
    deleted_at: float | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model reads in place of a message and all before it on its branch, `message` being the id of that one.

    It has `tokens`, and took the place of `replaced` tokens, when `model` wrote it; a person may have changed the text.
    """

    id: str
    message: str
    text: str
    created: float
    model: str = ""
    tokens: int = 0
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """The messages from the root of a chat's tree to its head, and how often each could have been another one.

    `siblings` are the ids of the messages with the same parent, the oldest first, by the id of each message of the
    branch, which is one of its own siblings. `summaries` are those of messages of the branch, in the order of these;
    of those of the same message the newest is the last.
    """

    messages: tuple[Message, ...] = ()
    siblings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    summaries: tuple[Summary, ...] = ()

    @property
    def head(self) -> str | None:
        """The id of the last message; None for the empty branch."""
        return self.messages[-1].id if self.messages else None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that matches a full-text search, with the matching part of its text.

    For a chat of which only the title matches, it is the last message of what is shown of it, and `snippet` is "".
    """

    chat: str
    message: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person wrote in a chat and has not sent. `labels` is a JSON object of what stands for something else in
    the text; who shows the draft knows what it means."""

    text: str = ""
    labels: str = "{}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A text that a person sent. `here`: in the chat that was asked about."""

    text: str
    created: float
    here: bool


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A chat as a list shows it. `messages` counts those of all branches."""

    chat: Chat
    messages: int


@dataclass(frozen=True, slots=True)
class KnownIds:
    """What is stored of a message's token ids: those under the key that was asked for, and under which other keys; and
    what left the context while it was made."""

    ids: tuple[int, ...] | None
    other_keys: tuple[str, ...]
    evictions: tuple[Eviction, ...] = ()


def stored_object(text: str | None) -> dict[str, Any]:
    """The JSON object in `Chat.settings` or `Message.usage`; empty when there is none, or it is damaged. Its values can
    be anything: whoever wants one checks that it is what it should be."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

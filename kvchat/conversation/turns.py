"""What one turn of a conversation is made of. Owns its values, the request built from stored messages.

Pure values. Must not hold the state of a conversation (`Conversation` does), reach the disk or start anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol

from kvchat.backend.protocol import (
    Forecast,
    Generate,
    History,
    Preview,
    PromptMessage,
    PromptProgress,
    Ready,
    Restored,
    Sampling,
    Warm,
)
from kvchat.chats.types import Chat, KnownIds, Message

Phase = Literal["queued", "prompt", "prefill", "decode"]


class Backend(Protocol):
    """How a conversation reaches a model.

    `ready` and `cancel` are used on the thread of the conversation, what sends a message's ids on the store thread,
    which has them: `submit` right after the commit of what it answers. So all of them must be safe to call from
    different threads, and must not wait for the engine: a send under a lock is all they do.
    """

    @property
    def ready(self) -> Ready | None:
        """The loaded model; None while there is none."""

    def submit(self, request: Generate) -> None:
        """Starts a turn. Its events go to `Conversation.apply`, by way of the thread of the conversation."""

    def cancel(self, turn: str) -> None:
        """Stops a turn that was submitted. Its TurnFinished still comes."""

    def warm(self, command: Warm) -> None:
        """Answered by Warmed, or not at all when a turn comes first."""

    def forecast(self, command: Forecast) -> None:
        """Answered by Forecasted, or not at all when a turn or a newer one comes first."""

    def preview(self, command: Preview) -> None:
        """Answered by Previewed, or not at all when a turn or a newer one comes first."""


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """The turn that is going on. `message` is the id of the reply, `text` all of it so far, `started` the reading of
    time.monotonic() at the request.

    `phase`: "queued" (not begun), "prompt" (tokenized, restoring), "prefill" (computing), "decode" (text comes).
    """

    turn: str
    message: str
    started: float
    text: str = ""
    phase: Phase = "queued"
    restored: Restored | None = None
    progress: PromptProgress | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How the turns of a conversation are generated. See `Generate`."""

    sampling: Sampling
    history: History
    keep_kv: bool


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """One request before the token ids of its past are known. `messages` begin with the first user message and end with
    the last one that the engine reads, `edited` says that the last one replaces another."""

    turn: str
    chat: Chat
    messages: tuple[Message, ...]
    options: Options
    continue_reply: bool = False
    edited: bool = False


def ids_key(text_key: str, system: str) -> str:
    """Under which token ids of a chat with this system prompt are kept: the first message's ids contain it."""
    return f"{text_key}-{blake2b(system.encode(), digest_size=4).hexdigest()}"


def request(plan: TurnPlan, text_key: str, known: Mapping[str, KnownIds]) -> Generate:
    """The command for the engine. `known` are the ids under the key of `text_key` and the chat's system prompt."""
    system = (PromptMessage("system", plan.chat.system, ()),) if plan.chat.system else ()
    unknown = KnownIds(None, ())
    past = tuple(PromptMessage(m.role, m.text, known.get(m.id, unknown).ids) for m in plan.messages)
    return Generate(
        turn=plan.turn,
        messages=system + past,
        sampling=plan.options.sampling,
        history=plan.options.history,
        clock=plan.chat.clock,
        keep_kv=plan.options.keep_kv,
        continue_reply=plan.continue_reply,
        past_cut="edited" if plan.edited else _cut(plan, text_key, known),
    )


def _cut(plan: TurnPlan, text_key: str, known: Mapping[str, KnownIds]) -> str | None:
    """Why the ids of the first message that has only others cannot be used."""
    for message in plan.messages:
        stored = known.get(message.id)
        if stored is not None and stored.ids is None:
            same_text = any(key.rpartition("-")[0] == text_key for key in stored.other_keys)
            return "system" if same_text else "model"
    return None

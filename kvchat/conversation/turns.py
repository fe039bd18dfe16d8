"""What one turn of a conversation is made of. Owns its values, the request built from stored messages.

Pure values. Must not hold the state of a conversation (`Conversation` does), reach the disk or start anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Literal

from kvchat.backend.protocol import Generate, PromptProgress, Restored
from kvchat.backend.values import History, PromptMessage, Sampling, Usage
from kvchat.chats.types import Chat, KnownIds, Message, stored_object

Phase = Literal["queued", "prompt", "prefill", "decode"]
_ENDLESS = 1 << 62  # more tokens, bytes or seconds than there are


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


def read_usage(message: Message) -> Usage | None:
    """What a reply cost. None: the engine reported nothing. What cannot be understood of it (another version may have
    written it, or the file is damaged) stands at its default."""
    stored, plain = stored_object(message.usage), Usage()
    names = [each.name for each in fields(Usage) if _fits(getattr(plain, each.name), stored.get(each.name))]
    return replace(plain, **{name: stored[name] for name in names}) if stored else None


def _fits(default: object, value: object) -> bool:
    """Whether `value` is of the kind of the field's default; None is that of an optional text."""
    if default is None:
        return isinstance(value, str)
    kind = int if isinstance(default, int) else int | float
    return isinstance(value, kind) and not isinstance(value, bool) and 0 <= value < _ENDLESS


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

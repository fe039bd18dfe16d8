"""What one turn of a conversation is made of. Owns its values, the request built from stored messages.

Pure values. Must not hold the state of a conversation (`Conversation` does), reach the disk or start anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Literal

from kvchat.backend.protocol import Drafted, Generate, PromptProgress, Restored
from kvchat.backend.values import DraftMode, History, OverflowPolicy, PromptMessage, Sampling, Usage
from kvchat.chats.types import Chat, KnownIds, Message, stored_object
from kvchat.formats.past import Eviction

Phase = Literal["queued", "prompt", "prefill", "decode"]
_LONGEST_MEMORY = 1 << 16  # characters; a longer one is none that an engine wrote
_ENDLESS = 1 << 62  # more tokens, bytes or seconds than there are


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """The turn that is going on. `message` is the id of the reply, `started` the reading of time.monotonic() at the
    request. Of the prompt, `system_tokens` are the system prompt; of the reply so far, `thought` tokens are reasoning.
    Meanwhile `evicted` tokens have left the full context, `away` of them since `restored` was told. `waiting`: why it
    cannot begin beside the turns that run, in words for a person; "" where nothing is said to be in its way.

    `phase`: "queued" (not begun), "prompt" (tokenized, restoring), "prefill" (computing), "decode" (text comes).
    """

    turn: str
    message: str
    started: float
    phase: Phase = "queued"
    restored: Restored | None = None
    progress: PromptProgress | None = None
    system_tokens: int = 0
    thought: int = 0
    drafted: Drafted | None = None
    evicted: int = 0
    away: int = 0
    waiting: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How the turns of a conversation are generated. See `Generate`."""

    sampling: Sampling
    history: History
    keep_kv: bool
    draft: DraftMode = "auto"
    overflow: OverflowPolicy = "stop"
    incognito: bool = False


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """One request before the token ids of its past are known. `messages` begin with the first user message and end with
    the last one that the engine reads, `edited` says that the last one replaces another. `summarized`: a summary stands
    in the system prompt of `chat`, in place of others before them, or did until it was taken back. `alternative_of` as
    in `Generate`."""

    turn: str
    chat: Chat
    messages: tuple[Message, ...]
    options: Options
    continue_reply: bool = False
    edited: bool = False
    summarized: bool = False
    alternative_of: str | None = None


def read_usage(message: Message) -> Usage | None:
    """What a reply cost. None: the engine reported nothing. What cannot be understood of it (another version may have
    written it, or the file is damaged) stands at its default."""
    stored = stored_object(message.usage)
    if not stored:
        return None
    plain = Usage()
    names = [each.name for each in fields(Usage) if _fits(getattr(plain, each.name), stored.get(each.name))]
    return replace(plain, **{name: stored[name] for name in names})


def told_sampling(sampling: Sampling) -> dict[str, float | int]:
    """What is kept with a reply, beside its usage, of how it was sampled: what it differs in from others like it."""
    told: dict[str, float | int] = {"temperature": sampling.temperature}
    return told if sampling.seed is None else told | {"seed": sampling.seed}


def read_sampling(message: Message) -> tuple[float, int | None] | None:
    """Temperature and seed of a reply that was one of several; None for any other."""
    stored = stored_object(message.usage)
    temperature, seed = stored.get("temperature"), stored.get("seed")
    if not _fits(0.0, temperature):
        return None
    return float(stored["temperature"]), seed if _fits(0, seed) else None


def _fits(default: object, value: object) -> bool:
    """Whether `value` is of the kind of the field's default; None is that of an optional text."""
    if default is None or isinstance(default, str):
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
        incognito=plan.options.incognito,
        continue_reply=plan.continue_reply,
        past_cut="edited" if plan.edited else _cut(plan, text_key, known),
        draft=plan.options.draft,
        draft_memory=_draft_memory(plan.messages),
        evictions=evictions(plan.messages, known),
        overflow=plan.options.overflow,
        pinned=tuple(number for number, m in enumerate(plan.messages, len(system)) if m.pinned),
        alternative_of=plan.alternative_of,
    )


def evictions(messages: Sequence[Message], known: Mapping[str, KnownIds]) -> tuple[Eviction, ...]:
    """What left the context so far, on the branch of these messages, as far as their ids are known."""
    found: list[Eviction] = []
    for message in messages:
        stored = known.get(message.id)
        if stored is None or stored.ids is None:
            break
        found += stored.evictions
    return tuple(found)


def _draft_memory(messages: Sequence[Message]) -> str | None:
    """What the last reply that has such says about drafting in this chat."""
    replies = (message for message in reversed(messages) if message.role == "assistant")
    told = (usage.draft_memory for reply in replies if (usage := read_usage(reply)) is not None)
    memory = next((memory for memory in told if memory is not None), "")
    return memory if 0 < len(memory) <= _LONGEST_MEMORY else None


def _cut(plan: TurnPlan, text_key: str, known: Mapping[str, KnownIds]) -> str | None:
    """Why the ids of the first message that has only others cannot be used."""
    for message in plan.messages:
        stored = known.get(message.id)
        if stored is not None and stored.ids is None:
            same_text = any(key.rpartition("-")[0] == text_key for key in stored.other_keys)
            return ("summary" if plan.summarized else "system") if same_text else "model"
    return None

"""What is a chat's own: system prompt, sampling, the way its history is kept, what drafts, and the engine that it was
last run with. Owns the meaning of `Chat.settings`.

Belongs to a Conversation, and to its thread. A change is written at once, or with the first message of a new chat. What
cannot be understood in the stored settings (a newer version may have written them) is passed over, and kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeGuard, get_args

from kvchat.backend.values import (
    CACHE_TYPES,
    DRAFT_MODES,
    OVERFLOW_POLICIES,
    CacheType,
    DraftMode,
    FlashAttention,
    History,
    OverflowPolicy,
    Sampling,
)
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, stored_object
from kvchat.clean import encodable
from kvchat.conversation.open_chat import OpenChat

_FLOATS = frozenset({"temperature", "top_p", "min_p", "repeat_penalty"})
_INTEGERS = frozenset({"top_k", "repeat_last_n"})
_OPTIONAL = frozenset({"seed", "max_tokens"})  # integers or None
_LARGEST = 1 << 32  # no number that anybody chooses, and what fits where llama.cpp takes it


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The models and the cache that a chat was last run with, as they were asked for. See `EngineConfig`."""

    model_path: str
    type_k: CacheType
    type_v: CacheType
    context: int
    flash_attention: FlashAttention
    draft_path: str | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """What a chat has in place of the defaults: values of `Sampling` by name, a way to keep history, what drafts. None
    where it has none."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    history: History | None = None
    draft: DraftMode | None = None
    overflow: OverflowPolicy | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a chat has nothing of its own."""

    sampling: Sampling = field(default_factory=Sampling)
    history: History = "append"
    draft: DraftMode = "auto"
    overflow: OverflowPolicy = "stop"


def engine_choice(chat: Chat) -> EngineChoice | None:
    """With what a chat was last run, as `Preferences.set_engine` kept it; None when it was not kept."""
    stored = stored_object(chat.settings)
    model, k, v, context = (stored.get(name) for name in ("model", "type_k", "type_v", "context"))
    flash: Any = stored.get("flash_attention")
    if not isinstance(model, str) or not _is_integer(context, 0):
        return None
    if k not in CACHE_TYPES or v not in CACHE_TYPES or flash not in get_args(FlashAttention):
        return None
    draft = stored.get("draft_model")
    return EngineChoice(model, k, v, context, flash, draft if isinstance(draft, str) and draft else None)


@dataclass(frozen=True, slots=True)
class Said:
    """What holds whatever a chat has of its own; None: nobody said so."""

    draft: DraftMode | None = None
    overflow: OverflowPolicy | None = None


UNSAID = Said()


class Preferences:
    """`defaults` can be replaced by others at any time. `new` is what one command line said: it goes before what the
    chat has until that changes."""

    def __init__(self, store: StoreThread, opened: OpenChat, defaults: Defaults, new: Said = UNSAID) -> None:
        self._store = store
        self._open = opened
        self._new_draft = new.draft
        self._new_overflow = new.overflow
        self.defaults = defaults

    @property
    def sampling(self) -> Sampling:
        """The defaults, with the chat's own values in their place."""
        return replace(self.defaults.sampling, **self._own_sampling())

    @property
    def history(self) -> History:
        """The chat's own way, else the one that was told."""
        return self._own_history() or self.defaults.history

    @property
    def draft(self) -> DraftMode:
        """The chat's own, else what was told."""
        return self._new_draft or self._own_draft() or self.defaults.draft

    @property
    def overflow(self) -> OverflowPolicy:
        """The chat's own, else what was told."""
        return self._new_overflow or self._own_overflow() or self.defaults.overflow

    @property
    def overflow_said(self) -> bool:
        """Whether somebody has said for this chat what happens in a full context."""
        return self._new_overflow is not None or self._own_overflow() is not None

    @property
    def own(self) -> Own:
        """What the chat has of its own."""
        return Own(self._own_sampling(), self._own_history(), self._own_draft(), self._own_overflow())

    @property
    def engine(self) -> EngineChoice | None:
        """See `engine_choice`."""
        return engine_choice(self._open.chat)

    def set_sampling(self, sampling: Sampling) -> Future[None]:
        """Makes the values that are not the defaults the chat's own, and those that were its own before."""
        own, wanted, defaults = self._own_sampling(), asdict(sampling), asdict(self.defaults.sampling)
        changed = {name: value for name, value in wanted.items() if name in own or value != defaults[name]}
        return self._keep({"sampling": changed})

    def set_history(self, history: History) -> Future[None]:
        """Makes a way to keep history the chat's own."""
        return self._keep({"history": history})

    def set_draft(self, draft: DraftMode) -> Future[None]:
        """Makes what drafts the chat's own."""
        self._new_draft = None
        return self._keep({"draft": draft})

    def set_overflow(self, overflow: OverflowPolicy) -> Future[None]:
        """Makes what happens in a full context the chat's own."""
        self._new_overflow = None
        return self._keep({"overflow": overflow})

    def set_own(self, own: Own) -> Future[None]:
        """Makes this all that the chat has of its own; for the rest the defaults hold again."""
        stored, before = stored_object(self._open.chat.settings), self.own
        if own.draft != before.draft:
            self._new_draft = None
        if own.overflow != before.overflow:
            self._new_overflow = None
        if own.sampling or before.sampling:
            kept = stored.get("sampling")
            foreign = kept if isinstance(kept, dict) else {}
            foreign = {name: value for name, value in foreign.items() if name not in before.sampling}
            stored["sampling"] = {**foreign, **own.sampling}
        for name in ("history", "draft", "overflow"):
            wanted, had = getattr(own, name), getattr(before, name)
            if wanted is not None:
                stored[name] = wanted
            elif had is not None:
                del stored[name]
        return self._write_settings(stored)

    def set_engine(self, choice: EngineChoice) -> Future[None]:
        """Keeps what the chat was last run with."""
        kept = asdict(choice)
        model, draft = kept.pop("model_path"), kept.pop("draft_path")
        stored = {**stored_object(self._open.chat.settings), "model": model, **kept}
        stored.pop("draft_model", None)
        return self._write_settings(stored if draft is None else {**stored, "draft_model": draft})

    def set_system(self, text: str) -> Future[None]:
        """Another system prompt, from the next turn on."""
        self._open.chat = with_system(self._open.chat, encodable(text))
        return self._write(ChatStore.set_system, self._open.chat.system)

    def _keep(self, values: dict[str, object]) -> Future[None]:
        return self._write_settings({**stored_object(self._open.chat.settings), **values})

    def _write_settings(self, values: dict[str, object]) -> Future[None]:
        settings = json.dumps(values)
        if settings == self._open.chat.settings:
            return _done()
        self._open.chat = replace(self._open.chat, settings=settings)
        return self._write(ChatStore.set_settings, settings)

    def _write(self, job: Callable[[ChatStore, str, str], None], value: str) -> Future[None]:
        return self._store.run(job, self._open.chat.id, value) if self._open.saved else _done()

    def _own_history(self) -> History | None:
        stored: Any = stored_object(self._open.chat.settings).get("history")
        own: History | None = stored if stored in get_args(History) else None
        return own

    def _own_draft(self) -> DraftMode | None:
        stored: Any = stored_object(self._open.chat.settings).get("draft")
        own: DraftMode | None = stored if stored in DRAFT_MODES else None
        return own

    def _own_overflow(self) -> OverflowPolicy | None:
        stored: Any = stored_object(self._open.chat.settings).get("overflow")
        own: OverflowPolicy | None = stored if stored in OVERFLOW_POLICIES else None
        return own

    def _own_sampling(self) -> dict[str, Any]:
        stored = stored_object(self._open.chat.settings).get("sampling")
        if not isinstance(stored, dict):
            return {}
        known = [each.name for each in fields(Sampling)]
        names = [name for name in known if name in stored and _fits(name, stored[name])]
        return {name: tuple(stored[name]) if name == "stop" else stored[name] for name in names}


def with_system(chat: Chat, system: str) -> Chat:
    """The chat with this system prompt. With another one it is not on its prefix any more."""
    return chat if chat.system == system else replace(chat, system=system, prefix=None)


def _done() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done


def _fits(name: str, value: object) -> bool:
    if name in _FLOATS:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LARGEST
    if name in _INTEGERS:
        return _is_integer(value, -1)
    if name in _OPTIONAL:
        return value is None or _is_integer(value, 0)
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_integer(value: object, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < _LARGEST

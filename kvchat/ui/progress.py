"""What the engine is doing, folded from its events. Owns speeds and phases; must not know widgets or touch a chat."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Loading, Ready, TextDelta, TurnFinished
from kvchat.backend.values import ModelInfo, Usage
from kvchat.chats.types import Chat, Message
from kvchat.conversation import LiveTurn, read_usage
from kvchat.conversation.draft_words import accepted_share
from kvchat.ui.display import display_line
from kvchat.ui.status import Phase, StatusState
from kvchat.ui.wording import source


class Progress:
    """Events in, the state of the status line out."""

    def __init__(self) -> None:
        self._ready: Ready | None = None
        self._failed: LoadFailed | None = None
        self._loaded: float | None = None
        self._loading_draft = False
        self._rebuilding = False
        self._undecided = False
        self._tokens = 0
        self._first_at = 0.0
        self._last_at = 0.0

    @property
    def failed(self) -> LoadFailed | None:
        """Why there is no engine and none will come."""
        return self._failed

    def rebuild(self) -> None:
        """Another configuration was asked for: there is no engine until its Ready comes."""
        self._ready = self._failed = self._loaded = None
        self._rebuilding, self._undecided = True, False

    def undecided(self) -> None:
        """Nobody has said which model."""
        self._undecided = True

    def apply(self, event: Event, now: float) -> None:
        """Take an event over; `now` is the reading of a monotonic clock in seconds."""
        match event:
            case Loading(fraction=fraction, draft=draft):
                self._loaded, self._loading_draft = fraction, draft
            case Ready():
                self._ready, self._failed, self._loaded = event, None, None
                self._rebuilding = self._undecided = False
            case LoadFailed():
                self._ready, self._failed, self._rebuilding = None, event, False
            case EngineDied():
                self._ready, self._loaded = None, None
            case TextDelta(ids=ids):
                self._first_at = self._first_at or now
                self._last_at = now
                self._tokens += len(ids)
            case TurnFinished():
                self._tokens, self._first_at = 0, 0.0

    def state(self, chat: Chat, messages: Sequence[Message], live: LiveTurn | None, told: str = "") -> StatusState:
        """What the status line says now about this chat; `told` while no answer is written."""
        if live is not None:
            return self._busy(chat, messages, live)
        usage = last_usage(messages)
        stopped = bool(messages) and messages[-1].finish == "cancelled"
        phase: Phase = "stopped" if stopped else "idle"
        if self._failed is not None:
            phase = "failed"
        elif self._ready is None:
            phase = self._without_engine()
        return self._with_engine(
            chat,
            phase,
            told=told,
            used=usage.cells,
            prompt=usage.prompt_tokens or None,
            reused=usage.reused,
            where=source(usage),
            ttft=usage.ttft_seconds or None,
            speed=usage.decode_tokens / usage.decode_seconds if usage.decode_seconds > 0 else None,
            progress=self._loaded,
            drafted=accepted_share(usage.draft_proposed, usage.draft_accepted),
            left=usage.evicted,
        )

    def _busy(self, chat: Chat, messages: Sequence[Message], live: LiveTurn) -> StatusState:
        restored = live.restored
        used = last_usage(messages).cells if restored is None else restored.reused + restored.computed
        phase: Phase = "restoring" if live.phase == "prompt" else "reading"
        progress = speed = remaining = None
        if live.phase == "decode":
            phase, speed = "generating", self._speed()
        elif self._ready is None:
            phase, progress = "waiting", self._loaded
        elif live.progress is not None and live.progress.total:
            done, total, speed = live.progress.done, live.progress.total, live.progress.tokens_per_second
            progress = done / total
            remaining = (total - done) / speed if speed > 0 else None
        return self._with_engine(
            chat,
            phase,
            used=max(0, used + self._tokens - live.away),
            prompt=None if restored is None else restored.reused + restored.computed,
            reused=0 if restored is None else restored.reused,
            where="" if restored is None else source(restored),
            ttft=None,
            speed=speed,
            progress=progress,
            remaining=remaining,
            drafted=accepted_share(live.drafted.proposed, live.drafted.accepted) if live.drafted else None,
            left=live.evicted,
        )

    def _without_engine(self) -> Phase:
        if self._undecided:
            return "choosing"
        if self._loaded is not None:
            return "loading draft" if self._loading_draft else "loading"
        return "rebuilding" if self._rebuilding else "starting"

    def _with_engine(
        self,
        chat: Chat,
        phase: Phase,
        *,
        used: int,
        prompt: int | None,
        reused: int,
        where: str,
        ttft: float | None,
        speed: float | None,
        progress: float | None,
        remaining: float | None = None,
        drafted: float | None = None,
        left: int = 0,
        told: str = "",
    ) -> StatusState:
        ready = self._ready
        return StatusState(
            phase=phase,
            model=display_line(_named(ready.model) if ready else chat.model),
            type_k=ready.cache.type_k if ready else "",
            type_v=ready.cache.type_v if ready else "",
            used=used,
            context=ready.cache.context if ready else 0,
            prompt=prompt,
            reused=reused,
            source=where,
            ttft=ttft,
            speed=speed,
            progress=progress,
            remaining=remaining,
            drafted=drafted,
            left=left,
            told=told,
        )

    def _speed(self) -> float | None:
        seconds = self._last_at - self._first_at
        return (self._tokens - 1) / seconds if seconds > 0.2 else None


def _named(model: ModelInfo) -> str:
    """Of an adapter it says that it acts: without, the model is another one."""
    return f"{model.name} + LoRA" if model.adapters else model.name


def last_usage(messages: Sequence[Message]) -> Usage:
    """The usage of the last answer that has one, and whose prompt was read."""
    for message in reversed(messages):
        if (usage := read_usage(message)) and not usage.excess:
            return usage
    return Usage()

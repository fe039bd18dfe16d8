"""What the engine is doing, folded from its events. Owns speeds and phases; must not know widgets or touch a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Loading, Ready, TextDelta, TurnFinished
from kvchat.backend.values import Usage
from kvchat.chats.types import Chat, Message
from kvchat.conversation import LiveTurn, read_usage
from kvchat.conversation.draft_words import accepted_share
from kvchat.conversation.remote_words import reuse_is_known
from kvchat.ui.display import display_line
from kvchat.ui.status import Phase, StatusState
from kvchat.ui.wording import source


@dataclass(slots=True)
class _Pace:
    """How fast the text of a turn comes: tokens so far, and when the first and the last of them came, in seconds."""

    tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0

    @property
    def speed(self) -> float | None:
        """Tokens per second; None while they are too few to say."""
        seconds = self.last_at - self.first_at
        return (self.tokens - 1) / seconds if self.tokens > 1 and seconds > 0.2 else None


class Progress:
    """Events in, the state of the status line out. Several turns may be going on; each is counted by itself."""

    def __init__(self) -> None:
        self._ready: Ready | None = None
        self._failed: LoadFailed | None = None
        self._loaded: float | None = None
        self._loading_draft = False
        self._rebuilding = False
        self._undecided = False
        self._paces: dict[str, _Pace] = {}  # by turn

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
            case TextDelta(turn=turn, ids=ids):
                pace = self._paces.setdefault(turn, _Pace(first_at=now))
                pace.last_at = now
                pace.tokens += len(ids)
            case TurnFinished(turn=turn):
                self._paces.pop(turn, None)

    def tokens(self, turn: str) -> int:
        """How many tokens of text a turn has brought so far."""
        return self._paces.get(turn, _Pace()).tokens

    def speed(self, turn: str) -> float | None:
        """How fast the text of a turn comes, in tokens per second; None while nobody can say."""
        return self._paces.get(turn, _Pace()).speed

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
            prompt=usage.prompt_tokens if usage.prompt_tokens and reuse_is_known(usage) else None,
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
        pace = self._paces.get(live.turn, _Pace())
        progress = speed = remaining = None
        if live.phase == "decode" and not live.waiting:
            phase, speed = "generating", pace.speed
        elif self._ready is None:
            phase, progress = "waiting", self._loaded
        elif live.waiting:
            phase = "waiting"
        elif live.progress is not None and live.progress.total:
            done, total, speed = live.progress.done, live.progress.total, live.progress.tokens_per_second
            progress = done / total
            remaining = (total - done) / speed if speed > 0 else None
        return self._with_engine(
            chat,
            phase,
            used=max(0, used + pace.tokens - live.away),
            prompt=None if restored is None else restored.reused + restored.computed,
            reused=0 if restored is None else restored.reused,
            where="" if restored is None else source(restored),
            ttft=None,
            speed=speed,
            progress=progress,
            remaining=remaining,
            drafted=accepted_share(live.drafted.proposed, live.drafted.accepted) if live.drafted else None,
            left=live.evicted,
            waiting=display_line(live.waiting) if phase == "waiting" else "",
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
        waiting: str = "",
    ) -> StatusState:
        ready = self._ready
        here = ready is not None and ready.remote is None
        return StatusState(
            phase=phase,
            model=display_line(_named(ready) if ready else chat.model),
            type_k=ready.cache.type_k if ready and here else "",
            type_v=ready.cache.type_v if ready and here else "",
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
            waiting=waiting,
        )


def _named(ready: Ready) -> str:
    """Of an adapter it says that it acts: without, the model is another one. Of a server, first where it is, with an
    arrow where text leaves this machine."""
    model = ready.model
    if ready.remote is not None:
        return f"{'↗ ' if ready.remote.leaves else ''}{ready.remote.host} {model.name}"
    return f"{model.name} + LoRA" if model.adapters else model.name


def last_usage(messages: Sequence[Message]) -> Usage:
    """The usage of the last answer that has one, and whose prompt was read. A server may have counted nothing."""
    for message in reversed(messages):
        if (usage := read_usage(message)) and not usage.excess and (usage.cells or usage.remote is None):
            return usage
    return Usage()

"""An engine on a scratch store, asked turn by turn: prompts are token ids, so that their lengths are exact.

Owns the engine process of a benchmark and the wait for its answers. Must not know what is measured, or touch the
person's chats and store: all its files are in the folder that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from kvchat.backend.client import EngineClient, EngineFactory
from kvchat.backend.protocol import (
    ConfigureFailed,
    EngineDied,
    Event,
    Forget,
    Forgotten,
    Generate,
    LoadFailed,
    PromptReady,
    Ready,
    TextDelta,
    Tuned,
    TurnFinished,
)
from kvchat.backend.values import CacheInfo, DraftMode, EngineConfig, FlashAttention, PromptMessage, Sampling, Usage
from kvchat.errors import KvchatError

Kind = TypeVar("Kind", bound=Event)
TUNING = 30.0  # seconds that an engine may take to measure itself; some architectures cannot be, and say nothing
_POLL = 0.5  # seconds


class Stopped(Exception):
    """Somebody wants the measuring to end."""


class RefusedError(KvchatError):
    """The model cannot be run so; the rest can be measured."""


class Events(Protocol):
    """What the engine posts to and what is waited on. `take` raises Stopped when somebody interrupts."""

    def post(self, event: Event) -> None: ...
    def take(self, seconds: float) -> Event | None:
        """The next event; None: there was none in so many seconds."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One turn: the ids of its answer, and what it cost."""

    ids: tuple[int, ...]
    usage: Usage

    @property
    def prefill(self) -> float | None:
        """Tokens of the prompt that were computed in a second."""
        usage = self.usage
        return usage.computed / usage.prefill_seconds if usage.computed and usage.prefill_seconds > 0 else None

    @property
    def decode(self) -> float | None:
        """Tokens of the answer in a second. The first one comes with the prompt."""
        usage = self.usage
        return (usage.decode_tokens - 1) / usage.decode_seconds if usage.decode_tokens > 1 else None


class Rig:
    """The engine, from `start` to `close`."""

    def __init__(self, config: EngineConfig, folder: Path, events: Events, factory: EngineFactory) -> None:
        """`config`: but for its store, which is one in `folder`."""
        self.folder = folder
        self.log_file = folder / "engine.log"
        self._events = events
        self._factory = factory
        self._engine: EngineClient | None = None
        self._ready: Ready | None = None
        self._tuned: dict[tuple[str, str], Tuned | None] = {}
        self._turns = 0
        self.config = config

    @property
    def ready(self) -> Ready:
        """What is loaded."""
        assert self._ready is not None, "not started"
        return self._ready

    @property
    def engine(self) -> EngineClient:
        """The engine itself."""
        assert self._engine is not None, "not started"
        return self._engine

    @property
    def pid(self) -> int | None:
        """The process of the engine, where there is one."""
        found = getattr(self._engine, "pid", None)
        return found if isinstance(found, int) else None

    def start(self) -> float:
        """Start the engine; the seconds until it is ready. While it loads it may die and come again in a safer
        configuration. KvchatError: it cannot be loaded."""
        began = time.perf_counter()
        self._engine = self._factory(self.config, self._events.post, self.folder / "state", self.log_file)
        self._engine.start()
        while True:
            match self._take():
                case Ready() as ready:
                    self._ready = ready
                    return time.perf_counter() - began
                case LoadFailed(failure=failure):
                    raise KvchatError(failure.message, failure.hint)
                case EngineDied(cause=cause, restarting=False):
                    raise self._died(cause)

    def close(self) -> None:
        """End the engine; it writes its last pages."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def configure(self, config: EngineConfig) -> None:
        """Go over to another configuration. RefusedError: the model cannot have it, and the one from before stands."""
        if config == self.config:
            return
        before, self.config = self.config, config
        self.engine.configure(config)
        refused: RefusedError | None = None
        while True:
            match self.take():
                case ConfigureFailed(failure=failure):
                    refused, self.config = RefusedError(failure.message, failure.hint), before
                case Ready() as ready:
                    self._ready = ready
                    if refused is not None:
                        raise refused
                    return

    def tune(self) -> Tuned | None:
        """Wait until the engine has measured flash attention, threads and what drafts cost with these cache types,
        which it does once, while it is idle, and uses what is best; None: it does not."""
        types = self.config.type_k, self.config.type_v
        if types not in self._tuned:
            self._tuned[types] = self._tune()
        return self._tuned[types]

    def _tune(self) -> Tuned | None:
        deadline = time.monotonic() + TUNING
        while time.monotonic() < deadline:
            event = self._events.take(_POLL)
            if event is not None and isinstance(event := self._checked(event), Tuned):
                cache = self.ready.cache
                if (event.flash_attention, event.threads) != (cache.flash_attention, cache.threads):
                    self._ready = self._next(Ready)
                return event
        return None

    def tokens(self, text: str) -> tuple[int, ...]:
        """The ids of a text, with what the model's template puts round it."""
        self._turns += 1
        turn = f"bench {self._turns}"
        found: tuple[int, ...] = ()
        message = PromptMessage("user", text)
        self.engine.submit(Generate(turn, (message,), Sampling(max_tokens=1), keep_kv=False, draft="off"))
        while True:
            match self.take():
                case PromptReady(turn=each, segments=segments) if each == turn:
                    found = tuple(token for segment in segments for token in segment)
                    self.engine.cancel(turn)
                case TurnFinished(turn=each, failure=failure) if each == turn:
                    if not found and failure is not None:
                        raise KvchatError(failure.message, failure.hint)
                    return found

    def forget(self) -> None:
        """Empty the cells: what comes next is found on disk, or is not found."""
        self.engine.forget(Forget("bench"))
        self._next(Forgotten)

    def read(self, ids: Sequence[int], tokens: int, *, keep: bool = True, past: tuple[int, ...] = ()) -> Answered:
        """One turn on a prompt of these ids: it is continued as it is, greedily, by so many tokens at most. `past`:
        what the chat had before, for which pages of other cache types may be taken."""
        messages = [PromptMessage("user", "bench", tuple(ids))]
        if past:
            before = [PromptMessage("user", "bench", past[:-1]), PromptMessage("assistant", "bench", past[-1:])]
            messages = [*before, *messages]
        return self.ask(messages, tokens, keep=keep)

    def ask(
        self,
        messages: Sequence[PromptMessage],
        tokens: int,
        *,
        keep: bool = True,
        incognito: bool = False,
        draft: DraftMode = "off",
    ) -> Answered:
        """One turn. `keep`, `incognito`: see `Generate`. KvchatError when it fails."""
        self._turns += 1
        turn = f"bench {self._turns}"
        sampling = Sampling(temperature=0, max_tokens=tokens)
        request = Generate(turn, tuple(messages), sampling, keep_kv=keep, incognito=incognito, draft=draft)
        self.engine.submit(request)
        ids: list[int] = []
        while True:
            match self.take():
                case TextDelta(turn=each, ids=new) if each == turn:
                    ids += new
                case TurnFinished(turn=each, usage=usage, failure=failure) if each == turn:
                    if failure is not None:
                        raise KvchatError(failure.message, failure.hint)
                    return Answered(tuple(ids), usage)

    def take(self) -> Event:
        """The next event. KvchatError when the engine is gone: what it comes back with is something else."""
        return self._checked(self._take())

    def _checked(self, event: Event) -> Event:
        if isinstance(event, EngineDied):
            raise self._died(event.cause)
        if isinstance(event, LoadFailed):
            raise KvchatError(event.failure.message, event.failure.hint)
        return event

    def _next(self, kind: type[Kind]) -> Kind:
        while True:
            if isinstance(event := self.take(), kind):
                return event

    def _take(self) -> Event:
        while (event := self._events.take(_POLL)) is None:
            pass
        return event

    def _died(self, cause: str) -> KvchatError:
        return KvchatError(f"the engine died while it was measured: {cause}", "kvchat doctor says what works here")


def flash(cache: CacheInfo) -> FlashAttention:
    """What a context has, as it is asked for."""
    return "on" if cache.flash_attention else "off"


Told = Callable[[int, int, str], None]
"""How far it is: so many steps of so many, and what is being done."""

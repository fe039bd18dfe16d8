"""What the engine is asked ahead of a turn. Owns the questions that are open and the answers.

Belongs to a Conversation, and to its thread; token ids are read and questions sent on the store thread. Of each kind
only the newest question counts: an older one that still waits is not sent, and its answer is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kvchat.backend.client import Backend
from kvchat.backend.protocol import (
    Forecast,
    Forecasted,
    Generate,
    Outlook,
    Preview,
    Previewed,
    ReadAhead,
    ReadingAhead,
    Ready,
    Warm,
    Warmed,
)
from kvchat.backend.values import EngineConfig
from kvchat.chats.ids import new_ulid
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import KnownIds, Message
from kvchat.conversation.open_chat import OpenChat
from kvchat.conversation.summarized import Reading
from kvchat.conversation.turns import Options, TurnPlan, evictions, ids_key, request

Kind = Literal["warm", "forecast", "read ahead", "preview"]


class Outlooks:
    """The questions need a model that is ready: without one they are not asked."""

    def __init__(self, store: StoreThread, backend: Backend, opened: OpenChat) -> None:
        self._store = store
        self._backend = backend
        self._open = opened
        self._name = new_ulid()  # two may have the same chat open, each with its own questions
        self._newest: dict[Kind, str] = {}
        self.warmed: Warmed | None = None
        self.forecasted: Forecasted | None = None
        self.reading_ahead: ReadingAhead | None = None
        self.previewed: Previewed | None = None

    def forget(self) -> bool:
        """The past has changed, or the engine: open questions and answers are void. True if there was an answer."""
        known = any((self.warmed, self.forecasted, self.reading_ahead, self.previewed))
        self._newest = {}
        self.warmed = self.forecasted = self.reading_ahead = self.previewed = None
        return known

    def take(self, event: Outlook) -> bool:
        """Keeps an answer. False: it is for somebody else, or came too late."""
        match event:
            case Warmed():
                if event.turn != self._newest.get("warm"):
                    return False
                self.warmed = event
            case Forecasted():
                if event.turn != self._newest.get("forecast"):
                    return False
                self.forecasted = event
            case ReadingAhead():
                if event.turn != self._newest.get("read ahead"):
                    return False
                self.reading_ahead = event
            case Previewed():
                if event.turn != self._newest.get("preview"):
                    return False
                self.previewed = event
        return True

    def warm(self) -> None:
        """Asks for the KV of the branch, if the ids of its beginning are known."""
        self.warmed = None
        clock, read = self._open.chat.clock, self._open.reading()

        def send(turn: str, _ready: Ready, known: Mapping[str, KnownIds]) -> None:
            ids = _contiguous(known, read.messages)
            if ids:
                self._backend.warm(Warm(turn, ids, read.system, clock, evictions(read.messages, known)))

        self._ask("warm", read, send)

    def preview(self, config: EngineConfig) -> None:
        """Asks what the branch would find on disk in another configuration."""
        self.previewed = None
        read = self._open.reading()

        def send(turn: str, _ready: Ready, known: Mapping[str, KnownIds]) -> None:
            ids, gone = _contiguous(known, read.messages), evictions(read.messages, known)
            self._backend.preview(Preview(turn, ids, config, gone))

        self._ask("preview", read, send)

    def forecast(self, before: Sequence[Message], draft: str, options: Options) -> None:
        """Asks what it would take to answer `draft` behind these messages of the branch."""
        self.forecasted = None

        def ask(sent: Generate) -> None:
            how = sent.history, sent.clock, sent.past_cut, sent.evictions, sent.incognito
            self._backend.forecast(Forecast(sent.turn, sent.messages, *how))

        self._ask_of_draft("forecast", before, draft, options, ask)

    def read_ahead(self, before: Sequence[Message], draft: str, options: Options, *, done: bool) -> None:
        """Has the stable part of `draft` read, behind these messages of the branch. The last answer stands until the
        next one."""

        def ask(sent: Generate) -> None:
            how = sent.history, sent.clock, sent.keep_kv, sent.evictions, sent.overflow, sent.incognito
            self._backend.read_ahead(ReadAhead(sent.turn, sent.messages, *how, done))

        self._ask_of_draft("read ahead", before, draft, options, ask)

    def _ask_of_draft(
        self, kind: Kind, before: Sequence[Message], draft: str, options: Options, ask: Callable[[Generate], None]
    ) -> None:
        """Calls `ask` with the turn that would answer `draft`, as `_ask` does."""
        chat = self._open.chat
        past = (*before, self._open.new_message("user", before[-1].id if before else None, draft, ""))
        read = self._open.reading(past)

        def send(turn: str, ready: Ready, known: Mapping[str, KnownIds]) -> None:
            seen = replace(chat, system=read.system)
            summarized = read.summary is not None or self._open.unsummarized
            plan = TurnPlan(turn, seen, read.messages, options, summarized=summarized)
            ask(request(plan, ready.model.text_key, known))

        self._ask(kind, read, send)

    def _ask(self, kind: Kind, read: Reading, send: Callable[[str, Ready, Mapping[str, KnownIds]], None]) -> None:
        """Calls `send(turn, ready, known ids of the branch)` on the store thread, unless something newer came."""
        ready, chat = self._backend.ready, self._open.chat
        self._newest.pop(kind, None)
        if ready is None:
            return
        turn = self._newest[kind] = new_ulid()
        key = ids_key(ready.model.text_key, read.system)

        def job(store: ChatStore) -> None:
            known = {} if chat.head is None else store.known_ids(chat.head, key)
            if self._newest.get(kind) == turn:
                send(turn, ready, known)

        self._store.debounce(f"{kind} {self._name}", 0, job)


def _contiguous(known: Mapping[str, KnownIds], messages: Sequence[Message]) -> tuple[int, ...]:
    """The ids of the messages up to the first one whose are not known."""
    ids: list[int] = []
    for message in messages:
        stored = known.get(message.id)
        if stored is None or stored.ids is None:
            break
        ids += stored.ids
    return tuple(ids)

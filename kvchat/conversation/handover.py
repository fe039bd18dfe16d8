"""The way of one turn to the disk and to the backend. Owns its stage, and what is known of the turn on the way back.

Must not change a conversation: it does so itself, on its own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from kvchat.backend.client import Backend
from kvchat.backend.protocol import Generate, Ready
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Branch, Chat, Message
from kvchat.conversation.growing import GrowingReply, Ids
from kvchat.conversation.turns import TurnPlan, evictions, ids_key, request
from kvchat.formats.past import Eviction

Stage = Literal["saving", "unsaved", "waiting", "sent", "refused"]


class HandOver:
    """The way of one turn to the disk and to the backend: the only state of a conversation that two threads touch.

    The store thread runs `commit`, `send` and `finish`; the conversation's thread reads `stage` and may `withdraw`. One
    lock guards the stage, which moves only forward: "saving" -> "unsaved", or "waiting" -> "sent" or "refused".
    "unsaved": the commit failed, nothing was submitted. "refused": it is committed, but could not be submitted. It
    never changes the conversation: that reads the stage, on its own thread, before it does or tells anything.
    """

    def __init__(self, backend: Backend, plan: TurnPlan) -> None:
        self._backend = backend
        self._plan = plan
        self._lock = threading.Lock()
        self._stage: Stage = "saving"
        self._withdrawn = False
        self._request: Generate | None = None
        self._evictions: list[Eviction] = []
        self.around: tuple[str, ...] = ()  # what stands in the place of the first new message; there once it is saved

    def take_around(self) -> tuple[str, ...]:
        """`around`, once it is saved, the first time that somebody asks: later the branch itself knows better."""
        around, self.around = self.around, ()
        return around

    @property
    def stage(self) -> Stage:
        """How far it is."""
        with self._lock:
            return self._stage

    @property
    def waits(self) -> bool:
        """Whether the backend is yet to have the turn."""
        return self.stage in ("saving", "waiting")

    def withdraw(self) -> bool:
        """Takes the turn back; False when the backend has it already. What is being committed is committed all the
        same."""
        with self._lock:
            self._withdrawn = self._stage in ("saving", "waiting")
            return self._withdrawn

    def first_ids(self, segments: tuple[tuple[int, ...], ...]) -> list[int]:
        """The ids that the reply begins with, by the segments of the PromptReady: none, or those of the part that is
        continued."""
        sent, segment = self._past(segments)[-1]
        return list(segment if sent.ids is None else sent.ids) if self._plan.continue_reply else []

    def new_ids(self, segments: tuple[tuple[int, ...], ...]) -> dict[str, tuple[int, ...]]:
        """The segments that are not what was sent, by message id. Also known ids can change: where a template hides the
        replies, everything stands in the last message."""
        past = zip(self._plan.messages, self._past(segments), strict=True)
        return {message.id: segment for message, (sent, segment) in past if sent.ids != segment}

    def evicted(self, eviction: Eviction) -> tuple[Eviction, ...]:
        """All that left the context while the reply was made, also in earlier turns that it goes on from; the last one
        now."""
        with self._lock:
            self._evictions.append(eviction)
            return tuple(self._evictions)

    def _past(self, segments: tuple[tuple[int, ...], ...]) -> list[tuple[PromptMessage, tuple[int, ...]]]:
        """What was sent of each message of the plan, and what came back."""
        with self._lock:
            assert self._request is not None, "an event of a turn comes after its submit"
            pairs = list(zip(self._request.messages, segments, strict=True))
        return pairs[len(pairs) - len(self._plan.messages) :]

    def commit(self, store: ChatStore, change: Callable[[ChatStore], None], ready: Ready | None) -> None:
        """Makes the change that the turn begins with, then sends it if the model is ready. KvchatError as raised."""
        try:
            change(store)
        except BaseException:  # whatever it is: a turn that never ends would lock the chat
            with self._lock:
                self._stage = "unsaved"
            raise
        with self._lock:
            self._stage = "waiting"
        if ready is not None:
            self.send(store, ready)

    def give_up(self, saved: Future[None]) -> None:
        """The commit is over; if it could not even begin, since there is no database, nothing was saved."""
        with self._lock:
            if saved.exception() is not None and self._stage == "saving":
                self._stage = "unsaved"

    def send(self, store: ChatStore, ready: Ready) -> None:
        """Submits the turn with the ids that are stored for the model, unless it was withdrawn. Where another model is
        taking over, the turn waits for that. KvchatError as raised by the store or the backend."""
        try:
            key = ids_key(ready.model.text_key, self._plan.chat.system)
            known = store.known_ids(self._plan.messages[-1].id, key)
            with self._lock:
                now = self._backend.ready
                fits = now is not None and now.model.text_key == ready.model.text_key
                if fits and self._stage == "waiting" and not self._withdrawn:
                    self._evictions = list(evictions(self._plan.messages[-1:], known))
                    self._request = request(self._plan, ready.model.text_key, known)
                    self._backend.submit(self._request)
                    self._stage = "sent"
        except BaseException:
            with self._lock:
                self._stage = "refused"
            raise

    def finish(self, store: ChatStore, reply: Message, at: float, ids: Mapping[str, Sequence[int]] | None) -> None:
        """Writes the end of the reply, if its beginning is on disk."""
        if self.stage != "unsaved":
            store.finish(reply, at, ids)


@dataclass(frozen=True, slots=True)
class Beside:
    """What a turn has that is one of several for the same prompt. `leader`: the turn whose cells it shares, None for
    that one itself."""

    sampling: Sampling
    leader: str | None


@dataclass(slots=True)
class Turn:
    """What a Conversation remembers of the turn that it started last; only its own thread reads and writes it.

    `write_key` is the one of the reply's debounced writes. `chat` and `branch` are those from before the turn. `ready`
    is None while the turn waits for the model. `beside`: it is one of several.
    """

    hand_over: HandOver
    write_key: str
    chat: Chat
    branch: Branch
    system: str
    ready: Ready | None
    reply: GrowingReply
    beside: Beside | None = None

    @property
    def key(self) -> str:
        """Under which the turn's token ids are kept. For a turn that has been sent."""
        assert self.ready is not None
        return ids_key(self.ready.model.text_key, self.system)

    @property
    def model(self) -> str:
        """The name of the model that answers, "" while the turn waits for one."""
        return "" if self.ready is None else self.ready.model.name

    def partial(self, message: str) -> Callable[[ChatStore], None]:
        """Writes what there is of the reply now as the text of a message."""
        so_far, model, key = self.reply.so_far(), self.model, self.key

        def write(store: ChatStore) -> None:
            text, ids = so_far()
            store.update_partial(message, text, model, None if ids is None else {key: ids})

        return write

    @property
    def reply_ids(self) -> dict[str, Ids] | None:
        """The ids of the reply so far by their key, as ChatStore takes them."""
        _, ids = self.reply.so_far()()
        return None if ids is None else {self.key: ids}

"""The turn that is going on. Owns its way from the first commit to the last, and that there is one at a time.

Belongs to a Conversation, and to its thread. What runs elsewhere, on the store thread, is in `HandOver`; its outcome is
taken over by `settle`. Must not decide what a turn is about: it is given the messages.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from dataclasses import asdict, replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import (
    Drafted,
    Evicted,
    LoadFailed,
    Loading,
    PromptProgress,
    PromptReady,
    Ready,
    Restored,
    TextDelta,
    TurnEvent,
    TurnFinished,
    Waits,
)
from kvchat.backend.values import Failure, FinishReason, Usage
from kvchat.chats.ids import new_ulid
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, Message
from kvchat.conversation.growing import GrowingReply
from kvchat.conversation.handover import Beside, HandOver, Turn
from kvchat.conversation.open_chat import OpenChat
from kvchat.conversation.prefixes import count_use
from kvchat.conversation.turns import LiveTurn, Options, TurnPlan, read_usage, told_sampling
from kvchat.errors import KvchatError

WENT_ON = "this chat went on in another kvchat: what was said there is kept, and stands beside your message"
PARTIAL_SECONDS = 0.5  # between two commits of a reply that is being written


class Turning:
    """Begins turns, follows them by their events, and ends them in one place."""

    def __init__(self, store: StoreThread, backend: Backend, opened: OpenChat) -> None:
        self._store = store
        self._backend = backend
        self._open = opened
        self._turn: Turn | None = None
        self._behind = False  # text has come that is not in the branch yet
        self._load_failure: Failure | None = None
        self.live: LiveTurn | None = None
        self.went_on = ""

    def check_idle(self) -> None:
        """KvchatError while the last turn is not over."""
        if self.live is not None:
            raise KvchatError("an answer is being written", "wait for its end, or stop it first")
        if self._turn is not None and self._turn.hand_over.stage == "saving":
            raise KvchatError("the last message is still being saved", "try again in a moment")

    def check_model(self) -> None:
        """KvchatError when there is no model that would ever answer."""
        if self._load_failure is not None and self._backend.ready is None:
            raise KvchatError(self._load_failure.message, self._load_failure.hint)

    @property
    def unsaved(self) -> KvchatError | None:
        """Why the reply of the last turn is not on disk as it stands here."""
        return None if self._turn is None else self._store.failure(self._turn.write_key)

    def begin(
        self,
        chat: Chat,
        messages: tuple[Message, ...],
        new: tuple[Message, ...],
        past: tuple[Message, ...],
        options: Options,
        *,
        edited: bool = False,
    ) -> Future[None]:
        """Starts the turn whose branch is `messages`, of which `new` are not on disk and `past` are for the engine."""
        ready = self._backend.ready
        hand_over = self.prepare(chat, messages, new, past, options, ready, edited=edited)
        chat = self._open.chat

        def change(store: ChatStore) -> None:
            if new:
                hand_over.around = store.add_turn(chat, new)
            else:
                store.reopen(chat, messages[-1].id)

        saved = self._store.run(lambda store: hand_over.commit(store, change, ready))
        saved.add_done_callback(hand_over.give_up)
        return saved

    def prepare(
        self,
        chat: Chat,
        messages: tuple[Message, ...],
        new: tuple[Message, ...],
        past: tuple[Message, ...],
        options: Options,
        ready: Ready | None,
        *,
        edited: bool = False,
        beside: Beside | None = None,
    ) -> HandOver:
        """As `begin`, for a caller that commits, with what it commits to. `ready`: the backend's."""
        reply, turn_id, before = messages[-1], new_ulid(), (self._open.chat, self._open.branch)
        self.went_on = ""
        self._open.branch = self._open.grown(messages, len(new))
        self._open.chat = chat = replace(chat, head=reply.id, updated=time.time(), deleted_at=None)
        self.live = LiveTurn(turn_id, reply.id, time.monotonic())
        read = self._open.reading(past)
        plan = TurnPlan(
            turn_id,
            replace(chat, system=read.system),
            read.messages,
            options,
            continue_reply=past[-1].id == reply.id,
            edited=edited,
            summarized=read.summary is not None or self._open.unsummarized,
            alternative_of=None if beside is None else beside.leader,
        )
        hand_over = HandOver(self._backend, plan)
        reply_key = f"reply {reply.id}"
        self._turn = Turn(hand_over, reply_key, *before, read.system, ready, GrowingReply(reply.text), beside)
        return hand_over

    @property
    def reply(self) -> Message:
        """The last message of the branch, as it is by now."""
        self.catch_up()
        return self._open.messages[-1]

    @property
    def tokens(self) -> int:
        """So many tokens have come of the reply of the last turn."""
        return 0 if self._turn is None else self._turn.reply.count

    @property
    def taken_back(self) -> bool:
        """Whether the last turn could not even begin, or there was none."""
        return self._turn is None

    def has(self, message_id: str) -> bool:
        """Whether a message is in the branch."""
        return message_id in self._open.branch.siblings

    def move(self, opened: OpenChat) -> None:
        """The branch of the turn is shown in `opened` from now on, and written there."""
        self.catch_up()
        opened.adopt(self._open.chat, self._open.branch)
        self._open = opened

    def stop(self) -> None:
        """Stops the turn that is going on. One that the backend has ends with its TurnFinished, another one at once."""
        if self.live is None or self._turn is None:
            raise KvchatError("no answer is being written", "there is nothing to stop")
        if self._turn.hand_over.withdraw():
            self._end("cancelled", None)
        else:
            self._backend.cancel(self.live.turn)

    def settle(self) -> None:
        """Takes over what became of the turn on the store thread."""
        if self._turn is None:
            return
        stage = self._turn.hand_over.stage
        if stage != "saving" and self._open.has_more_siblings(self._turn.hand_over.take_around()):
            self.went_on = WENT_ON
        if stage == "unsaved":
            self._take_back(self._turn)
        elif stage == "refused" and self.live is not None:
            self._end("error", None)

    def apply(self, event: Loading | Ready | LoadFailed | TurnEvent) -> bool:
        """Takes over what an event changes. False: nothing, it is about another turn or none."""
        match event:
            case Ready():
                self._load_failure = None
                return self._send_waiting(event)
            case LoadFailed(failure=failure):
                self._load_failure = failure
                return self._give_up_waiting()
            case Loading():  # another model, after one that could not be loaded
                self._load_failure = None
                return False
        if self.live is None or self._turn is None or event.turn != self.live.turn:
            return False
        self._advance(event, self.live, self._turn)
        return True

    def _advance(self, event: TurnEvent, live: LiveTurn, turn: Turn) -> None:
        match event:
            case Waits():
                self.live = replace(live, waiting=event.reason)
            case PromptReady():
                self._keep_segments(event, turn)
                self.live = replace(live, phase="prompt", system_tokens=event.system_tokens, waiting="")
            case Restored():
                self.live = replace(live, phase="prefill", restored=event, away=0)
            case PromptProgress():
                self.live = replace(live, phase="prefill", progress=event, waiting="")
            case TextDelta():
                self._extend(event, live, turn)
            case Drafted():
                self.live = replace(live, drafted=event)
            case Evicted():
                self._keep_eviction(event, live, turn)
            case TurnFinished():
                self._end(event.reason, event.usage)

    def _send_waiting(self, ready: Ready) -> bool:
        if self.live is None or self._turn is None or not self._turn.hand_over.waits:
            return False
        self._turn.ready = ready
        self._store.debounce(f"send {self.live.turn}", 0, self._turn.hand_over.send, ready)
        return True

    def _give_up_waiting(self) -> bool:
        if self.live is None or self._turn is None or not self._turn.hand_over.withdraw():
            return False
        self._end("error", None)
        return True

    def _keep_segments(self, event: PromptReady, turn: Turn) -> None:
        turn.reply.know_ids(turn.hand_over.first_ids(event.segments))
        new = turn.hand_over.new_ids(event.segments)
        if new:
            self._store.debounce(f"ids {event.turn}", 0, ChatStore.set_ids, turn.key, new)

    def _keep_eviction(self, event: Evicted, live: LiveTurn, turn: Turn) -> None:
        if event.why != "reasoning":  # that is no part of the prompt any more
            tokens = event.eviction.tokens
            self.live = replace(live, evicted=live.evicted + tokens, away=live.away + tokens)
        log = turn.hand_over.evicted(event.eviction)
        name = f"evictions {live.message}"
        self._store.debounce(name, 0, ChatStore.set_evictions, live.message, turn.key, log)

    def _extend(self, event: TextDelta, live: LiveTurn, turn: Turn) -> None:
        self.live = replace(live, phase="decode", thought=event.thought, waiting="")
        turn.reply.add(event.text, event.ids)
        self._behind = True
        self._store.debounce(turn.write_key, PARTIAL_SECONDS, turn.partial(live.message))

    def catch_up(self) -> None:
        """Makes the last message of the branch what the reply is by now. Its text is joined here, and not with every
        piece that comes."""
        if self._turn is not None and self._behind:
            last = self._open.messages[-1]
            self._open.replace_last(replace(last, text=self._turn.reply.text, model=self._turn.model))
        self._behind = False

    def _take_back(self, turn: Turn) -> None:
        """Nothing was saved. What else was changed of the chat meanwhile, such as its settings, stays."""
        before = turn.chat
        self._open.branch = turn.branch
        self._open.chat = replace(
            self._open.chat,
            title=self._open.chat.title if before.title else "",
            head=before.head,
            updated=before.updated,
            model=before.model,
            deleted_at=before.deleted_at,
        )
        self.live = self._turn = None
        self._behind = False

    def _end(self, reason: FinishReason, usage: Usage | None) -> None:
        """The one way out of a turn. Its last words take the place of a partial text that still waits to be written."""
        turn, now = self._turn, time.time()
        assert turn is not None
        self.catch_up()
        so_far = self._open.messages[-1]
        reply = replace(
            so_far,
            finish=reason,
            model=turn.model or so_far.model,
            usage=so_far.usage if usage is None else _told(_added(usage, read_usage(so_far)), turn.beside),
        )
        self._open.replace_last(reply)
        self._open.chat = replace(self._open.chat, updated=now, model=reply.model or self._open.chat.model)
        self.live = None
        first = so_far.usage is None and (turn.beside is None or turn.beside.leader is None)
        if usage is not None and turn.ready is not None and first:
            count_use(self._store, self._open.chat, self._open.messages, usage, turn.ready)
        self._store.debounce(turn.write_key, 0, turn.hand_over.finish, reply, now, turn.reply_ids)


def _told(usage: Usage, beside: Beside | None) -> str:
    """As it is kept with the reply."""
    return json.dumps(asdict(usage) | ({} if beside is None else told_sampling(beside.sampling)))


def _added(usage: Usage, before: Usage | None) -> Usage:
    """The usage of a turn that went on with a reply, which had its reasoning in part from the turn before, and let
    tokens go then. Where the prompt did not fit, the reply is as it was."""
    if before is None:
        return usage
    if usage.excess and not before.excess:
        return before
    return replace(
        usage,
        reasoning_seconds=usage.reasoning_seconds + before.reasoning_seconds,
        overflow=usage.overflow or (before.overflow if before.evicted else None),
        evicted=usage.evicted + before.evicted,
        evictions=usage.evictions + before.evictions,
        reasoning_evicted=usage.reasoning_evicted + before.reasoning_evicted,
    )

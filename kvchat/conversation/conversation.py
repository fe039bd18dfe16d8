"""One open chat. Owns its branch of messages and the turn that is going on: the one place where chats and backend meet.

Plain methods for the app and for `ask`; no widgets. All of them belong to one thread (the app's event loop, or the loop
of `ask`), the only one that changes a Conversation. What runs elsewhere, on the store thread, is in `HandOver`; its
outcome is taken over by `_settle` at the beginning of every method and property here.
The futures that are returned resolve on the store thread, when the disk has the message and the backend has the turn
(or the turn waits for the model). A future with an error means: look at `live` and `messages` again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace

from kvchat.backend.protocol import (
    EngineDied,
    Event,
    Failure,
    FinishReason,
    History,
    LoadFailed,
    Loading,
    PromptProgress,
    PromptReady,
    Ready,
    Restored,
    Sampling,
    TextDelta,
    TurnFinished,
    Usage,
)
from kvchat.chats.ids import new_ulid
from kvchat.chats.resolve import title_of
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, Message, Role
from kvchat.clean import encodable
from kvchat.conversation.handover import HandOver, Turn
from kvchat.conversation.turns import Backend, LiveTurn, Options, TurnPlan
from kvchat.errors import KvchatError

PARTIAL_SECONDS = 0.5  # between two commits of a reply that is being written
_RESUMABLE: frozenset[str | None] = frozenset({None, "length", "context", "cancelled", "error", "died"})


class Conversation:
    """A chat that goes on. Made with `start` or `open`."""

    def __init__(
        self,
        store: StoreThread,
        backend: Backend,
        chat: Chat,
        messages: Sequence[Message] = (),
        *,
        sampling: Sampling,
        history: History = "append",
        keep_kv: bool = True,
    ) -> None:
        """`messages` is the branch that ends with the chat's head."""
        self._store = store
        self._backend = backend
        self._chat = chat
        self._messages = tuple(messages)
        self._options = Options(sampling, history, keep_kv)
        self._live: LiveTurn | None = None
        self._turn: Turn | None = None
        self._load_failure: Failure | None = None

    @classmethod
    def start(
        cls,
        store: StoreThread,
        backend: Backend,
        *,
        sampling: Sampling,
        system: str = "",
        history: History = "append",
        keep_kv: bool = True,
        clock: float | None = None,
    ) -> Conversation:
        """A new chat, written with its first message. `clock`: the time that the template sees, now if None."""
        now = time.time()
        clock = now if clock is None else clock
        chat = Chat(new_ulid(), "", now, now, encodable(system), clock, model="", head=None)
        return cls(store, backend, chat, sampling=sampling, history=history, keep_kv=keep_kv)

    @classmethod
    def open(
        cls,
        store: StoreThread,
        backend: Backend,
        chat_id: str,
        *,
        sampling: Sampling,
        system: str | None = None,
        history: History = "append",
        keep_kv: bool = True,
    ) -> Future[Conversation]:
        """The chat with this id, as its head stands on disk. `system`, if given, replaces its system prompt from the
        next turn on. The future has a KvchatError when there is no such chat."""

        def read(chats: ChatStore) -> Conversation:
            chat = chats.get(chat_id)
            messages = chats.path(chat.head)
            if system is not None:
                chat = replace(chat, system=encodable(system))
            return cls(store, backend, chat, messages, sampling=sampling, history=history, keep_kv=keep_kv)

        return store.run(read)

    # ------------------------------------------------------------------ what is there

    @property
    def chat(self) -> Chat:
        """The chat as of the last turn. It is on disk once it has a message."""
        self._settle()
        return self._chat

    @property
    def messages(self) -> tuple[Message, ...]:
        """The branch, root to head. While a turn is going on, the last one is the reply so far."""
        self._settle()
        return self._messages

    @property
    def live(self) -> LiveTurn | None:
        """The turn that is going on."""
        self._settle()
        return self._live

    # ------------------------------------------------------------------ what a person does
    # All of these raise KvchatError at once when they make no sense now.

    def submit(self, text: str) -> Future[None]:
        """Adds a user message at the head, and asks for the reply."""
        self._check_idle()
        return self._ask(self._messages, text, edited=False)

    def edit(self, message_id: str, text: str) -> Future[None]:
        """Asks with `text` in place of a user message of this branch. The old branch stays in the tree."""
        self._check_idle()
        for index, message in enumerate(self._messages):
            if message.id == message_id and message.role == "user":
                return self._ask(self._messages[:index], text, edited=True)
        raise KvchatError("this message cannot be edited", "only your own messages of the branch that is shown can be")

    def regenerate(self) -> Future[None]:
        """Asks for another reply to the last user message. The old reply stays in the tree."""
        self._check_idle()
        past = self._messages
        while past and past[-1].role == "assistant":
            past = past[:-1]
        if not past:
            raise KvchatError("there is no answer to write again", "send a message first")
        reply = self._new_message("assistant", past[-1].id, "", None)
        return self._begin(self._chat, (*past, reply), (reply,), past, edited=False)

    def resume(self) -> Future[None]:
        """Goes on with a reply that did not come to its end: the same message, its text and ids so far.

        A reply without any text yet is asked for as a new one is: there is nothing that the engine could continue.
        """
        self._check_idle()
        reply = self._messages[-1] if self._messages else None
        if reply is None or reply.role != "assistant" or reply.finish not in _RESUMABLE:
            raise KvchatError("there is no unfinished answer to go on with", "send a message, or regenerate the answer")
        reply = replace(reply, finish=None)
        messages = (*self._messages[:-1], reply)
        return self._begin(self._chat, messages, (), messages if reply.text else messages[:-1], edited=False)

    def stop(self) -> Future[None]:
        """Stops the turn that is going on; what there is of the reply stays. One that the backend has ends with its
        TurnFinished, another one at once."""
        self._settle()
        if self._live is None or self._turn is None:
            raise KvchatError("no answer is being written", "there is nothing to stop")
        if self._turn.hand_over.withdraw():
            self._end("cancelled", None)
        else:
            self._backend.cancel(self._live.turn)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    # ------------------------------------------------------------------ what the engine says

    def apply(self, event: Event) -> bool:
        """Takes over what an event changes. False: nothing, it is about another turn or none."""
        self._settle()
        match event:
            case Ready():
                self._load_failure = None
                return self._send_waiting(event)
            case LoadFailed(failure=failure):
                self._load_failure = failure
                return self._give_up_waiting()
            case Loading() | EngineDied():
                return False
        if self._live is None or self._turn is None or event.turn != self._live.turn:
            return False
        self._advance(event, self._live, self._turn)
        return True

    def _advance(
        self,
        event: PromptReady | Restored | PromptProgress | TextDelta | TurnFinished,
        live: LiveTurn,
        turn: Turn,
    ) -> None:
        match event:
            case PromptReady():
                self._keep_segments(event, turn)
                self._live = replace(live, phase="prompt")
            case Restored():
                self._live = replace(live, phase="prefill", restored=event)
            case PromptProgress():
                self._live = replace(live, phase="prefill", progress=event)
            case TextDelta():
                self._extend(event, live, turn)
            case TurnFinished():
                self._end(event.reason, event.usage)

    def _send_waiting(self, ready: Ready) -> bool:
        if self._live is None or self._turn is None or self._turn.ready is not None:
            return False
        self._turn.ready = ready
        self._store.debounce(f"send {self._live.turn}", 0, self._turn.hand_over.send, ready)
        return True

    def _give_up_waiting(self) -> bool:
        if self._live is None or self._turn is None or not self._turn.hand_over.withdraw():
            return False
        self._end("error", None)
        return True

    def _keep_segments(self, event: PromptReady, turn: Turn) -> None:
        turn.ids = turn.hand_over.first_ids(event.segments)
        new = turn.hand_over.new_ids(event.segments)
        if new:
            self._store.debounce(f"ids {event.turn}", 0, ChatStore.set_ids, turn.key, new)

    def _extend(self, event: TextDelta, live: LiveTurn, turn: Turn) -> None:
        self._live = replace(live, phase="decode", text=live.text + event.text)
        if turn.ids is not None:
            turn.ids += event.ids
        reply = replace(self._messages[-1], text=self._live.text, model=turn.model)
        self._messages = (*self._messages[:-1], reply)
        self._store.debounce(
            f"reply {reply.id}",
            PARTIAL_SECONDS,
            ChatStore.update_partial,
            reply.id,
            reply.text,
            reply.model,
            turn.reply_ids,
        )

    # ------------------------------------------------------------------ beginning and end of a turn

    def _check_idle(self) -> None:
        self._settle()
        if self._live is not None:
            raise KvchatError("an answer is being written", "wait for its end, or stop it first")
        if self._turn is not None and self._turn.hand_over.stage == "saving":
            raise KvchatError("the last message is still being saved", "try again in a moment")
        if self._load_failure is not None and self._backend.ready is None:
            raise KvchatError(self._load_failure.message, self._load_failure.hint)

    def _ask(self, past: tuple[Message, ...], text: str, *, edited: bool) -> Future[None]:
        text = encodable(text)
        if not text.strip():
            raise KvchatError("an empty message cannot be sent", "write something first")
        user = self._new_message("user", past[-1].id if past else None, text, "")
        reply = self._new_message("assistant", user.id, "", None)
        chat = self._chat if self._chat.title else replace(self._chat, title=title_of(text))
        return self._begin(chat, (*past, user, reply), (user, reply), (*past, user), edited=edited)

    def _begin(
        self,
        chat: Chat,
        messages: tuple[Message, ...],
        new: tuple[Message, ...],
        past: tuple[Message, ...],
        *,
        edited: bool,
    ) -> Future[None]:
        """Starts the turn whose branch is `messages`, of which `new` are not on disk and `past` are for the engine."""
        reply = messages[-1]
        turn_id, ready, before = new_ulid(), self._backend.ready, (self._chat, self._messages)
        self._chat = chat = replace(chat, head=reply.id, updated=time.time())
        self._messages = messages
        self._live = LiveTurn(turn_id, reply.id, time.monotonic(), reply.text)
        plan = TurnPlan(turn_id, chat, past, self._options, continue_reply=past[-1].id == reply.id, edited=edited)
        hand_over = HandOver(self._backend, plan)
        self._turn = Turn(hand_over, *before, chat.system, ready)

        def change(store: ChatStore) -> None:
            if new:
                store.add_turn(chat, new)
            else:
                store.reopen(chat, reply.id)

        saved = self._store.run(lambda store: hand_over.commit(store, change, ready))
        saved.add_done_callback(hand_over.give_up)
        return saved

    def _settle(self) -> None:
        """Takes over what became of the turn on the store thread."""
        if self._turn is None:
            return
        stage = self._turn.hand_over.stage
        if stage == "unsaved":
            self._chat, self._messages = self._turn.chat, self._turn.messages
            self._live = self._turn = None
        elif stage == "refused" and self._live is not None:
            self._end("error", None)

    def _end(self, reason: FinishReason, usage: Usage | None) -> None:
        """The one way out of a turn. Its last words take the place of a partial text that still waits to be written."""
        turn, now = self._turn, time.time()
        assert turn is not None
        so_far = self._messages[-1]
        reply = replace(
            so_far,
            finish=reason,
            model=turn.model or so_far.model,
            usage=so_far.usage if usage is None else json.dumps(asdict(usage)),
        )
        self._messages = (*self._messages[:-1], reply)
        self._chat = replace(self._chat, updated=now, model=reply.model or self._chat.model)
        self._live = None
        self._store.debounce(f"reply {reply.id}", 0, turn.hand_over.finish, reply, now, turn.reply_ids)

    def _new_message(self, role: Role, parent: str | None, text: str, finish: str | None) -> Message:
        return Message(new_ulid(), self._chat.id, parent, role, text, time.time(), finish)

"""One open chat: the one place where chats and backend meet. Owns its turns and moves, and which make sense when.

Plain methods for the app and for `ask`; no widgets. All of them belong to one thread (the app's event loop, or the loop
of `ask`), the only one that changes a Conversation. What runs on the store thread is taken over by `_settle` at the
beginning of every method and property here.
The futures that are returned resolve on the store thread, when the disk has the change and the backend has the turn, if
there is one (or the turn waits for the model). A future with an error means: look at `live` and `messages` again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from kvchat.backend.client import Backend
from kvchat.backend.fidelity import Guarded, Measured, Measuring
from kvchat.backend.protocol import (
    ConfigureFailed,
    EngineDied,
    Event,
    Forecasted,
    Forgotten,
    Pinned,
    Pinning,
    Previewed,
    ReadingAhead,
    Ready,
    Summarized,
    Summarizing,
    Titled,
    Tuned,
    Warmed,
)
from kvchat.backend.values import DraftMode, History, OverflowPolicy, Sampling
from kvchat.chats.ids import new_ulid
from kvchat.chats.resolve import proper_title, title_of
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Branch, Chat, Message
from kvchat.clean import encodable
from kvchat.conversation.picking import Picking
from kvchat.conversation.preferences import UNSAID, Said, with_system
from kvchat.conversation.sight import Sight, take_back
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError

_RESUMABLE: frozenset[str | None] = frozenset({None, "length", "context", "cancelled", "error", "died"})


class Conversation(Picking):
    """A chat that goes on. Made with `start` or `open`."""

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
        draft: DraftMode = "auto",
        overflow: OverflowPolicy = "stop",
        new: Said = UNSAID,
        clock: float | None = None,
        prefix: str | None = None,
    ) -> Conversation:
        """A new chat, written with its first message. `new` as in `open`. `clock`: the time that the template sees, now
        if None. `prefix`: the id of the one whose text `system` is, and whose clock `clock`."""
        now = time.time()
        clock = now if clock is None else clock
        chat = Chat(new_ulid(), "", now, now, encodable(system), clock, model="", head=None, prefix=prefix)
        return cls(
            store,
            backend,
            chat,
            Branch(),
            sampling=sampling,
            history=history,
            keep_kv=keep_kv,
            draft=draft,
            overflow=overflow,
            new=new,
        )

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
        draft: DraftMode = "auto",
        overflow: OverflowPolicy = "stop",
        new: Said = UNSAID,
    ) -> Future[Conversation]:
        """The chat with this id, as its head stands on disk. `system`, if given, replaces its system prompt from the
        next turn on; `new` holds, until another is set, whatever the chat has of its own. The future has a
        KvchatError when there is no such chat."""

        def read(chats: ChatStore) -> Conversation:
            chat = chats.get(chat_id)
            branch = chats.branch(chat.id, chat.head)
            if system is not None:
                chat = with_system(chat, encodable(system))
            return cls(
                store,
                backend,
                chat,
                branch,
                sampling=sampling,
                history=history,
                keep_kv=keep_kv,
                draft=draft,
                overflow=overflow,
                new=new,
            )

        return store.run(read)

    # ------------------------------------------------------------------ asking
    # All that a person does raises KvchatError at once when it makes no sense now.

    def submit(self, text: str) -> Future[None]:
        """Adds a user message at the head, and asks for the reply."""
        self._check_ready()
        return self._ask(self._past_of_submit(), text, edited=False)

    def edit(self, message_id: str, text: str) -> Future[None]:
        """Asks with `text` in place of a user message of this branch. The old branch stays in the tree."""
        self._check_ready()
        index = self._open.place(message_id)
        if self._open.messages[index].role != "user":
            raise KvchatError("an answer cannot be edited", "only your own messages can be")
        return self._ask(self._open.messages[:index], text, edited=True)

    def regenerate(self, message_id: str | None = None) -> Future[None]:
        """Asks for another reply in place of this one, or to this user message; None: the last one of the branch. What
        was there before stays in the tree."""
        self._check_ready()
        past = self._asked(message_id)
        reply = self._open.new_message("assistant", past[-1].id, "", None)
        return self._begin(self._open.chat, (*past, reply), (reply,), past)

    def resume(self) -> Future[None]:
        """Goes on with a reply that did not come to its end: the same message, its text and ids so far.

        A reply without any text yet is asked for as a new one is: there is nothing that the engine could continue.
        """
        self._check_ready()
        reply = self._open.messages[-1] if self._open.messages else None
        if reply is None or reply.role != "assistant" or reply.finish not in _RESUMABLE:
            raise KvchatError("there is no unfinished answer to go on with", "send a message, or regenerate the answer")
        reply = replace(reply, finish=None)
        messages = (*self._open.messages[:-1], reply)
        return self._begin(self._open.chat, messages, (), messages if reply.text else messages[:-1])

    def ask_alternatives(self, samplings: Sequence[Sampling], text: str | None = None) -> Future[None]:
        """Asks for several replies at once, one with each of `samplings`: to a new message, or to the last one beside
        the replies that it has. The first is shown; see `alternatives` and `pick`."""
        self._check_ready()
        if not samplings:
            raise KvchatError("no answer was asked for", "ask for two or more")
        if self._alternatives.is_working:
            raise KvchatError("other answers are still being written", "wait for their end, or stop them first")
        self._outlooks.forget()
        chat, past = self._open.chat, self._asked() if text is None else self._past_of_submit()
        new: tuple[Message, ...] = ()
        if text is not None:
            chat, user = self._question(past, text)
            past, new = (*past, user), (user,)
        replies = [self._open.new_message("assistant", past[-1].id, "", None) for _ in samplings]
        return self._alternatives.begin(self._turning, chat, past, replies, self._options(), samplings, new=new)

    # ------------------------------------------------------------------ the tree; not while a turn is going on

    def show_sibling(self, message_id: str, step: int) -> Future[None]:
        """Shows the sibling so many places after this message of the branch (before it, if negative), and what is
        newest below it."""
        self._settle()
        self._open.place(message_id)
        target = self._branches.sibling(message_id, step)
        if self._alternatives.has(message_id) and self._alternatives.has(target):
            return self.pick(target)
        return self.show_message(target)

    def show_message(self, message_id: str) -> Future[None]:
        """Shows the branch that has this message of the chat, down to what is newest below it."""
        self._check_idle()
        self._alternatives.leave(self._turning)
        return self._branches.show_message(message_id)

    def delete(self, message_id: str) -> Future[None]:
        """Deletes a message of the branch and all below it. Shown then: its next sibling, or else the one before it, or
        else what came before the message."""
        self._check_idle()
        self._alternatives.leave(self._turning)
        self._alternatives.delete_below(message_id)
        return self._branches.delete(message_id)

    def undo_delete(self) -> Future[None]:
        """Takes back the last deletion since the chat was opened that was not taken back yet."""
        self._check_idle()
        self._alternatives.leave(self._turning)
        return self._branches.undo_delete()

    def undo_eviction(self) -> Future[Sight]:
        """Takes back the last eviction of the branch that a policy made: the next turn goes on from what was there
        before it. What the branch was before that; KvchatError in the future where there is none."""
        self._check_ready()
        ready = self._backend.ready
        if ready is None:
            raise KvchatError("no model is ready yet", "wait until it is")
        self._outlooks.forget()
        read = self._open.reading()
        return self._store.run(take_back, read.messages, ids_key(ready.model.text_key, read.system))

    def rename(self, title: str) -> Future[None]:
        """Another title, for a chat that has a message. Also during a turn."""
        self._settle()
        if not self._open.saved:
            raise KvchatError("this chat has no message yet", "its title comes with the first one")
        title = proper_title(title)
        self._open.chat = replace(self._open.chat, title=title, title_by="person")
        return self._store.run(ChatStore.rename, self._open.chat.id, title)

    # ------------------------------------------------------------------ what the engine says

    def apply(self, event: Event) -> bool:
        """Takes over what an event changes. False: nothing, it is about another turn or none."""
        self._settle()
        match event:
            case Warmed() | Forecasted() | ReadingAhead() | Previewed():
                return self._outlooks.take(event)
            case Titled():
                return self._titling.take(event)
            case Summarizing() | Summarized():
                return self._summaries.take(event)
            case EngineDied() | ConfigureFailed() | Tuned() | Measuring() | Measured() | Guarded():
                return False
            case Pinning() | Pinned() | Forgotten():
                return False
        void = isinstance(event, Ready) and self._outlooks.forget()
        return self._alternatives.apply(event, self._turning) or void

    # ------------------------------------------------------------------ inside

    def _ask(self, past: tuple[Message, ...], text: str, *, edited: bool) -> Future[None]:
        chat, user = self._question(past, text)
        reply = self._open.new_message("assistant", user.id, "", None)
        return self._begin(chat, (*past, user, reply), (user, reply), (*past, user), edited=edited)

    def _question(self, past: tuple[Message, ...], text: str) -> tuple[Chat, Message]:
        """A new message of the person's after `past`, and the chat with a title."""
        text = encodable(text)
        if not text.strip():
            raise KvchatError("an empty message cannot be sent", "write something first")
        user = self._open.new_message("user", past[-1].id if past else None, text, "")
        return self._open.chat if self._open.saved else replace(self._open.chat, title=title_of(text)), user

    def _past_of_submit(self) -> tuple[Message, ...]:
        if self._open.messages and self._open.messages[-1].role == "user":
            raise KvchatError("the last message still waits for its answer", "ask for that (regenerate), or edit it")
        return self._open.messages

    def _asked(self, message_id: str | None = None) -> tuple[Message, ...]:
        """The branch up to the message of the person's to which this reply belongs, or the last one."""
        end = len(self._open.messages) if message_id is None else self._open.place(message_id) + 1
        past = self._open.messages[:end]
        while past and past[-1].role == "assistant":
            past = past[:-1]
        if not past:
            raise KvchatError("there is no answer to write again", "send a message first")
        return past

    def _begin(
        self,
        chat: Chat,
        messages: tuple[Message, ...],
        new: tuple[Message, ...],
        past: tuple[Message, ...],
        *,
        edited: bool = False,
    ) -> Future[None]:
        self._outlooks.forget()
        self._alternatives.leave(self._turning)
        return self._turning.begin(chat, messages, new, past, self._options(), edited=edited)

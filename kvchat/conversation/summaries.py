"""A summary that is to take the place of the oldest messages. Owns the one that is asked for and the one that waits to
be taken; nothing changes for the model until it is.

Belongs to a Conversation, and to its thread; tokens are counted and questions sent on the store thread.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import Ready, Summarize, Summarized, Summarizing
from kvchat.backend.values import Failure
from kvchat.chats.ids import new_ulid
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message, Summary
from kvchat.clean import encodable
from kvchat.conversation.open_chat import OpenChat
from kvchat.conversation.sight import Sight, look
from kvchat.conversation.summarized import Reading
from kvchat.conversation.summary_choice import Choice, choose, obstacle
from kvchat.conversation.turns import Options, TurnPlan, evictions, ids_key, request
from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class Proposal:
    """A summary that waits to be taken, of `tokens`, and what it would take the place of."""

    text: str
    tokens: int
    model: str
    choice: Choice


@dataclass(slots=True)
class _Asked:
    turn: str
    model: str
    choice: Choice | None = None  # set on the store thread, before the engine has the question


class Summaries:
    """One summary at a time, of the branch that is shown."""

    def __init__(self, store: StoreThread, backend: Backend, opened: OpenChat) -> None:
        self._store = store
        self._backend = backend
        self._open = opened
        self._asked: _Asked | None = None
        self._proposal: Proposal | None = None
        self.progress = 0.0
        self.failure: Failure | None = None  # why the last one that was asked for cannot be had

    @property
    def is_making(self) -> bool:
        """Whether one is asked for."""
        return self._asked is not None

    @property
    def proposal(self) -> Proposal | None:
        """The one that waits, while it fits to the branch that is shown."""
        proposal = self._proposal
        if proposal is None:
            return None
        messages, count = self._open.reading().messages, proposal.choice.messages
        fits = len(messages) > count and messages[count - 1].id == proposal.choice.last
        return proposal if fits else None

    # ------------------------------------------------------------------ asking

    def choice(self) -> Future[Choice | None]:
        """What a summary would take the place of now; None for nothing."""
        ready, read = self._ready(), self._open.reading()
        return self._store.run(_choice, read, ready)

    def begin(self, options: Options) -> Future[Choice]:
        """Asks for one. KvchatError in the future when there is nothing that it could take the place of."""
        ready, read, chat = self._ready(), self._open.reading(), self._open.chat
        if self._asked is not None:
            raise KvchatError("a summary is being written", "wait for it, or /summary drop stops it")
        if ready.remote is not None:
            raise KvchatError(f"{ready.remote.host} is not asked for summaries", "a model of this machine writes one")
        if not ready.cache.pages:
            raise KvchatError("this model has no room beside the chat", "take another overflow policy")
        asked = self._asked = _Asked(new_ulid(), ready.model.name)
        self._proposal = self.failure = None
        self.progress = 0.0

        def send(store: ChatStore) -> Choice:
            choice = _choice(store, read, ready)
            if choice is None:
                raise obstacle(read.messages, _sight(store, read, ready), ready.cache.context)
            known = store.known_ids(read.messages[-1].id, ids_key(ready.model.text_key, read.system))
            seen = replace(chat, system=read.system)
            plan = TurnPlan(asked.turn, seen, read.messages[: choice.messages], options)
            sent = request(plan, ready.model.text_key, known)
            gone = evictions(read.messages, known)
            asked.choice = choice
            if self._asked is asked:  # else it was dropped meanwhile
                command = Summarize(asked.turn, sent.messages, choice.most, sent.history, sent.clock, gone)
                self._backend.summarize(command)
            return choice

        sent = self._store.run(send)
        sent.add_done_callback(lambda future: self._forget(asked) if future.exception() is not None else None)
        return sent

    def drop(self) -> None:
        """Neither the one that is being written nor the one that waits is wanted."""
        asked, self._asked, self._proposal = self._asked, None, None
        if asked is not None and asked.choice is not None:
            self._backend.cancel(asked.turn)

    def take(self, event: Summarizing | Summarized) -> bool:
        """Takes over what the engine tells. False: it is about another one."""
        asked = self._asked
        if asked is None or event.turn != asked.turn or asked.choice is None:
            return False
        if isinstance(event, Summarizing):
            self.progress = min(1.0, event.done / max(1, event.total))
            return True
        self._asked = None
        self.failure = event.failure or _unfit(event, asked.choice)
        if self.failure is None:
            self._proposal = Proposal(event.text, event.tokens, asked.model, asked.choice)
        return True

    def _forget(self, asked: _Asked) -> None:
        if self._asked is asked:
            self._asked = None

    def _ready(self) -> Ready:
        ready = self._backend.ready
        if ready is None:
            raise KvchatError("no model is ready yet", "wait until it is")
        return ready

    # ------------------------------------------------------------------ what stands in the place of messages

    def problem(self, text: str) -> str:
        """Why a text cannot be the summary that waits, or the one that stands; "" where it can."""
        try:
            _proper(text, self._stood_for(self.proposal))
        except KvchatError as error:
            return f"{error.message}: {error.hint}"
        return ""

    def _stood_for(self, proposal: Proposal | None) -> tuple[Message, ...]:
        read = self._open.reading()
        more = read.messages[: proposal.choice.messages] if proposal is not None else ()
        return (*read.replaced, *more)

    def accept(self, text: str) -> Future[None]:
        """The summary that waits, in these words, takes the place of its messages from the next turn on."""
        proposal = self.proposal
        if proposal is None:
            raise KvchatError("no summary waits to be taken", "/summary has one written")
        choice = proposal.choice
        text = _proper(text, self._stood_for(proposal))
        tokens = _tokens(proposal.tokens, proposal.text, text)
        summary = Summary(new_ulid(), choice.last, text, time.time(), proposal.model, tokens, choice.replaced)
        self._proposal = None
        branch = self._open.branch
        self._open.branch = replace(branch, summaries=(*branch.summaries, summary))
        return self._store.run(ChatStore.put_summary, summary)

    def edit(self, text: str) -> Future[None]:
        """Other words for the summary that stands."""
        summary = self._open.reading().summary
        if summary is None:
            raise KvchatError("no summary stands in this chat", "/summary has one written")
        text = _proper(text, self._stood_for(None))
        changed = replace(summary, text=text, tokens=_tokens(summary.tokens, summary.text, text))
        self._replace(summary, (changed,))
        return self._store.run(ChatStore.put_summary, changed)

    def remove(self) -> Future[None]:
        """The messages are read themselves again, or by the summary from before the one that stands."""
        summary = self._open.reading().summary
        if summary is None:
            raise KvchatError("no summary stands in this chat", "there is nothing to undo")
        self._replace(summary, ())
        self._open.unsummarized = True
        return self._store.run(ChatStore.remove_summary, summary.id)

    def _replace(self, summary: Summary, others: tuple[Summary, ...]) -> None:
        branch = self._open.branch
        kept = tuple(each for old in branch.summaries for each in (others if old.id == summary.id else (old,)))
        self._open.branch = replace(branch, summaries=kept)


def _choice(store: ChatStore, read: Reading, ready: Ready) -> Choice | None:
    """On the store thread."""
    return choose(read.messages, _sight(store, read, ready), ready.cache.context)


def _sight(store: ChatStore, read: Reading, ready: Ready) -> Sight:
    return look(store, read, ids_key(ready.model.text_key, read.system))


def _unfit(event: Summarized, choice: Choice) -> Failure | None:
    """Why a summary is of no use."""
    if not event.text.strip():
        return Failure("the model wrote no summary", "/summary tries again, another policy does without")
    if event.tokens >= choice.replaced:
        return Failure(
            f"the summary has {event.tokens:,} tokens, and would stand for {choice.replaced:,}: it makes no room",
            "the messages stay as they are",
        )
    return None


def _proper(text: str, replaced: tuple[Message, ...]) -> str:
    text = encodable(text).strip()
    if not text:
        raise KvchatError("an empty summary says nothing", "write a few words, or leave it")
    longest = sum(len(message.text) for message in replaced)
    if len(text) >= longest:
        raise KvchatError(
            f"the summary is longer than what it stands for: {len(text):,} characters, not fewer than {longest:,}",
            "shorten it",
        )
    return text


def _tokens(tokens: int, before: str, text: str) -> int:
    """About how many tokens a text has that was `before`."""
    return tokens if text == before.strip() else max(1, round(tokens * len(text) / max(1, len(before))))

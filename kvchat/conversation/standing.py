"""What of an open chat stays for the model when its context is full: pinned messages, and a summary of what went. The
part of a Conversation that is about this; all of it raises KvchatError at once when it makes no sense now.

Reading is settled first: `_settle` stands at the beginning of every method and property.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from kvchat.backend.values import Failure
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Summary
from kvchat.conversation.parts import Parts
from kvchat.conversation.summaries import Proposal
from kvchat.conversation.summarized import Reading
from kvchat.conversation.summary_choice import Choice


class Standing(Parts):
    """See `Conversation`."""

    def pin(self, message_id: str, pinned: bool) -> Future[None]:
        """Whether a message of the branch stays in the context, whatever else leaves it; from the next turn on."""
        self._check_idle()
        self._outlooks.forget()
        place, branch = self._open.place(message_id), self._open.branch
        messages = list(branch.messages)
        messages[place] = replace(messages[place], pinned=pinned)
        self._open.branch = replace(branch, messages=tuple(messages))
        return self._store.run(ChatStore.set_pinned, message_id, pinned)

    @property
    def reading(self) -> Reading:
        """What the model reads of the branch."""
        self._settle()
        return self._open.reading()

    @property
    def summary(self) -> Summary | None:
        """The one that stands in the place of the oldest messages."""
        self._settle()
        return self._open.reading().summary

    # ------------------------------------------------------------------ one that is being made

    @property
    def summary_progress(self) -> float | None:
        """How much of a summary that is being written is done, 0 to 1; None: none is."""
        self._settle()
        return self._summaries.progress if self._summaries.is_making else None

    @property
    def summary_failure(self) -> Failure | None:
        """Why the last one that was asked for cannot be had."""
        self._settle()
        return self._summaries.failure

    @property
    def proposal(self) -> Proposal | None:
        """The summary that waits to be taken."""
        self._settle()
        return self._summaries.proposal

    def summary_choice(self) -> Future[Choice | None]:
        """What a summary would take the place of now; None: nothing that would help."""
        self._settle()
        return self._summaries.choice()

    def summarize(self) -> Future[Choice]:
        """Has a summary of the oldest messages written, beside the chat: turns go first. What it is to stand for;
        KvchatError in the future when there is nothing."""
        self._check_ready()
        return self._summaries.begin(self._options())

    def drop_summary(self) -> None:
        """Neither the summary that is being written nor the one that waits is wanted."""
        self._settle()
        self._summaries.drop()

    def summary_problem(self, text: str) -> str:
        """Why these words cannot stand for the messages that a summary is for; "" where they can."""
        self._settle()
        return self._summaries.problem(text)

    # ------------------------------------------------------------------ one that stands; from the next turn on

    def take_summary(self, text: str) -> Future[None]:
        """The summary that waits takes the place of its messages, in these words."""
        self._check_idle()
        self._outlooks.forget()
        return self._summaries.accept(text)

    def edit_summary(self, text: str) -> Future[None]:
        """Other words for the summary that stands."""
        self._check_idle()
        self._outlooks.forget()
        return self._summaries.edit(text)

    def undo_summary(self) -> Future[None]:
        """The messages are read themselves again, or by the summary from before."""
        self._check_idle()
        self._outlooks.forget()
        return self._summaries.remove()

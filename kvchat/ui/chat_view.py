"""Keeps the transcript equal to a branch of messages. Owns what is shown already; must not change a conversation.

The last message determines the branch that ends with it, so comparing it, and the length, is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvchat.chats.types import Message
from kvchat.ui.entry import ThoughtCost
from kvchat.ui.transcript import Transcript
from kvchat.ui.wording import NO_MARKS, Siblings, entries, entry, footer, heading, thought_cost


class ChatView:
    """Shows the difference between what is shown and what is."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._last = ""
        self._count = 0
        self._live: str | None = None
        self._model = ""
        self._characters = 0  # of the live message's text, that are shown
        self._siblings: Siblings = lambda _: ()
        self._marks: Mapping[str, str] = NO_MARKS
        self._thought = 0  # tokens of reasoning in the live message

    def sync(
        self,
        messages: Sequence[Message],
        live: str | None,
        model: str,
        siblings: Siblings,
        thought: int = 0,
        marks: Mapping[str, str] = NO_MARKS,
    ) -> None:
        """Show `messages`; `live` is the id of the one that is being written, by `model`, with so many tokens of
        `thought`. `marks`: how much of a message is still seen, by its id; others than before are another mapping."""
        self._siblings = siblings
        before, self._marks = self._marks, marks
        self._thought = thought
        if live is not None and not messages[-1].model:
            messages = (*messages[:-1], replace(messages[-1], model=model))
        if self._same_branch(messages):
            self._sync_last(messages, live)
        elif self._count and self._live is None and self._longer_branch(messages):
            self._add(messages, live)
        else:
            self._show(messages, live)
            return
        if marks is not before:
            self._mark(messages, live, before)

    def _mark(self, messages: Sequence[Message], live: str | None, before: Mapping[str, str]) -> None:
        for message in messages:
            if message.id != live and self._marks.get(message.id, "") != before.get(message.id, ""):
                self._transcript.rename(message.id, None, self._footer(message, last=message is messages[-1]))

    def _footer(self, message: Message, *, last: bool) -> str:
        return footer(message, resumable=last, mark=self._marks.get(message.id, ""))

    def _same_branch(self, messages: Sequence[Message]) -> bool:
        return len(messages) == self._count and (not messages or messages[-1].id == self._last)

    def _longer_branch(self, messages: Sequence[Message]) -> bool:
        return len(messages) > self._count and messages[self._count - 1].id == self._last

    def _sync_last(self, messages: Sequence[Message], live: str | None) -> None:
        if live is not None and self._live is None:
            self._show(messages, live)  # an answer goes on
            return
        if self._live is None:
            return
        message = messages[-1]
        if message.model != self._model:
            self._model = message.model
            self._transcript.rename(message.id, heading(message, self._siblings))
        if new := message.text[self._characters :]:
            self._transcript.append(message.id, new, ThoughtCost(self._thought))
            self._characters = len(message.text)
        if live is None:
            self._transcript.finish(message.id, self._footer(message, last=True), thought_cost(message))
            self._live = None

    def _add(self, messages: Sequence[Message], live: str | None) -> None:
        before = messages[self._count - 1]
        if before.role == "assistant":
            self._transcript.finish(before.id, self._footer(before, last=False), thought_cost(before))
        for message in messages[self._count :]:
            last, mark = message is messages[-1], self._marks.get(message.id, "")
            self._transcript.add(entry(message, self._siblings, last=last, live=message.id == live, mark=mark))
        self._transcript.to_end()
        self._remember(messages, live)

    def _show(self, messages: Sequence[Message], live: str | None) -> None:
        self._transcript.show(entries(messages, live, self._siblings, self._marks))
        self._remember(messages, live)

    def _remember(self, messages: Sequence[Message], live: str | None) -> None:
        self._count = len(messages)
        self._last = messages[-1].id if messages else ""
        self._live = live
        self._model = messages[-1].model if messages else ""
        self._characters = len(messages[-1].text) if messages else 0

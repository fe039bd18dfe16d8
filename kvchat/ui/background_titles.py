"""Titles for chats that have been answered. Owns which of them still want one, and which was asked for last.

The engine finds a title when it has nothing else to do, one at a time; a question that a turn came before is put again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvchat.backend.protocol import Event, Titled
from kvchat.conversation import Conversation


class Titles:
    """Asks for the chats in which a turn has begun or ended since they were opened."""

    def __init__(self, conversations: Callable[[], Iterable[Conversation]], enabled: bool) -> None:
        """`conversations`: those that are told of events. `enabled`: the person wants titles."""
        self._conversations = conversations
        self._enabled = enabled
        self._turned: list[Conversation] = []
        self._asked: str | None = None  # the turn of the newest question that is not answered

    def wants(self, conversation: Conversation) -> bool:
        """Whether a title is still to be found for a chat."""
        return conversation in self._turned and conversation.wants_title

    def turned(self, conversation: Conversation) -> None:
        """A turn began or ended: what was asked before is not answered any more."""
        if self._enabled and conversation not in self._turned:
            self._turned.append(conversation)
        self._asked = None
        self._ask()

    def apply(self, event: Event) -> None:
        """A question was answered; the conversation knows it already. The answer to an older one is no reason to ask
        again: with two on their way that would never end."""
        if isinstance(event, Titled) and event.turn == self._asked:
            self._asked = None
            self._ask()

    def _ask(self) -> None:
        present = tuple(self._conversations())
        self._turned = [each for each in self._turned if each in present and (each.is_working or each.wants_title)]
        if self._asked is not None or any(each.is_working for each in present):
            return
        first = next(iter(self._turned), None)
        self._asked = first.ask_title() if first is not None else None

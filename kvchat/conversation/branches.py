"""Moves in the tree of an open chat: to a sibling, away from what is deleted, and back. Owns the move that is going on
and the deletions that can be taken back.

Belongs to a Conversation, and to its thread. The move itself is made on the store thread, in one transaction; `settle`
takes over the branch that it leads to. Must not ask a model for anything.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Branch
from kvchat.conversation.open_chat import OpenChat
from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class _Deletion:
    """What takes a deletion back: its time, and what was shown before."""

    at: float
    head: str | None


@dataclass(slots=True)
class _Move:
    """One change on the store thread. `branch` and `deletions` are set there, before the future is done."""

    deletions: tuple[_Deletion, ...]
    branch: Branch | None = None
    future: Future[None] = field(default_factory=Future)


class Branches:
    """All methods but `settle` raise KvchatError at once when they make no sense. They are not called during a turn.

    Deletions can be taken back in turn, the last one first, as long as the chat is open.
    """

    def __init__(self, store: StoreThread, opened: OpenChat) -> None:
        self._store = store
        self._open = opened
        self._move: _Move | None = None
        self._deletions: tuple[_Deletion, ...] = ()

    def check_idle(self) -> None:
        """KvchatError while a move is going on."""
        if self._move is not None:
            raise KvchatError("the chat is just being changed", "try again in a moment")

    def settle(self) -> bool:
        """Takes over where a move has led. True if another branch is shown now."""
        move = self._move
        if move is None or not move.future.done():
            return False
        self._move = None
        if move.branch is None:  # the future says why
            return False
        self._deletions = move.deletions
        self._open.show(move.branch)
        return True

    def sibling(self, message_id: str, step: int) -> str:
        """The sibling so many places after the message of the branch (before it, if negative)."""
        self._open.place(message_id)
        siblings = self._open.branch.siblings[message_id]
        target = siblings.index(message_id) + step
        if not 0 <= target < len(siblings):
            raise KvchatError(
                "there is no other version in this direction", f"this is one of {len(siblings)}, write another one"
            )
        return siblings[target]

    def show_message(self, message_id: str) -> Future[None]:
        """Shows the branch that has this message, down to the newest message below it."""
        chat = self._open.chat.id
        return self._begin(lambda store, _: store.show(chat, message_id))

    def delete(self, message_id: str) -> Future[None]:
        """Deletes a message of the branch and all below it."""
        message, head = self._open.messages[self._open.place(message_id)], self._open.branch.head

        def job(store: ChatStore, move: _Move) -> Branch:
            at, branch = store.delete_message(message)
            move.deletions = (*move.deletions, _Deletion(at, head))
            return branch

        return self._begin(job)

    def undo_delete(self) -> Future[None]:
        """Takes back the last deletion; what was shown before is shown again."""
        if not self._deletions:
            raise KvchatError("nothing was deleted since this chat was opened", "there is nothing to undo")
        *earlier, last = self._deletions
        chat = self._open.chat.id

        def job(store: ChatStore, move: _Move) -> Branch:
            move.deletions = tuple(earlier)
            return store.undelete(chat, last.at, last.head)

        return self._begin(job)

    def _begin(self, job: Callable[[ChatStore, _Move], Branch]) -> Future[None]:
        move = _Move(self._deletions)

        def run(store: ChatStore) -> None:
            move.branch = job(store, move)

        move.future = self._store.run(run)
        self._move = move
        return move.future

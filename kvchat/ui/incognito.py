"""Chats that leave no trace: what the app says about them, and where those lie that `/incognito` starts.

Owns their stores in memory. Must not know what is said in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvchat.chats.thread import StoreThread
from kvchat.errors import KvchatError

if TYPE_CHECKING:
    from kvchat.ui.room import Room

BEGUN = (
    "Incognito: this chat, its drafts and its KV are in memory alone. They are gone when it is left, or kvchat ends; "
    "/export writes it into a file."
)
ALL_BEGUN = (
    "Incognito: chats, drafts and KV are in memory alone, and gone when kvchat ends. "
    "Those on disk are not looked at; /export writes a chat into a file."
)
LEAVE = "This incognito chat will be gone."
NO_EDITOR = KvchatError("an editor gets the draft in a file", "in an incognito chat, write here")
WRITE, WRITE_INCOGNITO = "Write a message", "Write a message (incognito: nothing of it is kept)"


class Incognito:
    """The chats in memory beside those on disk, each by itself: none finds what was said in another."""

    def __init__(self) -> None:
        self._stores: list[StoreThread] = []

    def open(self, on_failure: Callable[[KvchatError], None]) -> StoreThread:
        """Where another one lies."""
        self._stores.append(StoreThread(None, on_failure))
        return self._stores[-1]

    @property
    def used(self) -> bool:
        """Whether there was one."""
        return bool(self._stores)

    def close(self) -> None:
        """Let all of them go."""
        for store in self._stores:
            store.close()


def placeholder(*, incognito: bool) -> str:
    """What stands in a prompt in which nothing is written."""
    return WRITE_INCOGNITO if incognito else WRITE


def begun(room: Room) -> None:
    """A chat is shown: say what is special about it, before anything is written there."""
    conversation = room.conversation
    if conversation.incognito and not conversation.messages:
        room.sync()
        room.transcript.note(BEGUN if not room.desk.keeps(conversation) else ALL_BEGUN)


def leave(room: Room, then: Callable[[], object]) -> None:
    """Go on with `then`, which shows another chat; where the open one is gone then, if the person wants that."""
    if room.desk.keeps(room.conversation) or not room.conversation.messages:
        then()
        return
    from kvchat.ui.dialogs import Confirm

    def answered(sure: bool | None) -> None:
        if sure:
            then()

    room.screen.app.push_screen(Confirm(LEAVE, "let it go"), answered)

"""Pinned messages in the app: what the key and `/pin` do. Owns nothing; `Sights` has the mark below a message."""

from __future__ import annotations

from kvchat.chats.types import Message
from kvchat.ui.room import Room

PINNED = "Pinned: it stays in the context, whatever leaves it. The same takes the pin away."
FREE = "Not pinned any more."


def toggle(room: Room, message: Message) -> None:
    """Pin a message, or take its pin away."""
    conversation, pinned = room.conversation, not message.pinned

    def done(_: None) -> None:
        room.toast(PINNED if pinned else FREE)
        room.sights.look()

    room.try_to(lambda: conversation.pin(message.id, pinned), done, "not pinned")


def toggle_last(room: Room) -> None:
    """The same with the last message of the person's."""
    mine = [message for message in room.conversation.messages if message.role == "user"]
    if mine:
        toggle(room, mine[-1])
    else:
        room.toast("There is nothing to pin yet.")

"""What is said of an answer in a chat that is not open. Pure functions from turns to words; must not know widgets."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.chats.types import Chat, Message
from kvchat.conversation import LiveTurn
from kvchat.ui.display import display_line
from kvchat.ui.meters import shortened
from kvchat.ui.sidebar_rows import UNTITLED, ChatState

LONGEST_TITLE = 40  # cells
_ENDINGS = {
    "context": "its context is full",
    "died": "the answer was cut short, the engine died",
    "error": "the answer failed",
}
_UNSENT = "the message could not be sent"
DONE, FAILED = ChatState("done"), ChatState("failed")


def going_on(live: LiveTurn, tokens: int, *, engine: bool) -> ChatState:
    """A turn of which so many tokens of text have come; `engine`: there is one."""
    if live.waiting:
        return ChatState("waiting", "waits", live.waiting)
    if live.phase == "decode":
        return ChatState("answering", f"{tokens:,} tok")
    if not engine:
        return ChatState("waiting", "waits", "for the engine")
    progress = live.progress
    if live.phase == "prefill" and progress is not None and progress.total:
        return ChatState("answering", f"{progress.done / progress.total:.0%} read")
    return ChatState("answering", "queued" if live.phase == "queued" else "reading")


def called(chat: Chat) -> str:
    """A chat in a sentence."""
    return f"“{shortened(display_line(chat.title) or UNTITLED, LONGEST_TITLE)}”"


def ended(chat: Chat, reply: Message | None, *, complete: bool) -> str:
    """How an answer ended that nobody looked at; `reply` is None when not even the message was saved."""
    if complete:
        return f"{called(chat)} has answered"
    return f"{called(chat)}: {_UNSENT if reply is None else _ENDINGS.get(reply.finish or '', 'it was stopped')}"


def how_many(chats: Sequence[object]) -> str:
    """Answers that are being written."""
    return "1 answer" if len(chats) == 1 else f"{len(chats)} answers"

"""What is said about a chat's history: how it is kept, and what the template was seen to do. Pure; says only what the
engine reported."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.backend.protocol import Ready
from kvchat.backend.values import History
from kvchat.chats.types import Message
from kvchat.conversation import read_usage

_WAYS = {
    "append": "history append: what was rendered stays as it was, only what is new goes to the model",
    "exact": "history exact: the whole chat is rendered again each time, as the template says",
}


def history_words(history: History, ready: Ready | None, messages: Sequence[Message]) -> str:
    """The way of this chat, and the template in a line of its own."""
    usages = [usage for message in messages if (usage := read_usage(message)) is not None]
    cut = sum(usage.cut == "template" for usage in usages)
    answers = f"{len(usages)} answer{'' if len(usages) == 1 else 's'}"
    if not usages:
        seen = "no answer here yet to see what it does to the past"
    elif cut:
        seen = f"it rendered the past otherwise in {cut} of {answers} here (cut: template)"
    else:
        seen = f"it changed nothing of the past in {answers} here"
    name = f"template {ready.model.template}" if ready is not None else "template"
    notes = [note for note in ready.notes if "template" in note] if ready is not None else []
    return "\n".join([_WAYS[history], f"{name}: {seen}", *notes])

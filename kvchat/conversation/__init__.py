"""One open chat, for the app and for `ask` alike: submit, regenerate, edit, resume, stop, apply(event)."""

from kvchat.conversation.conversation import Conversation
from kvchat.conversation.turns import Backend, LiveTurn, Phase

__all__ = ["Backend", "Conversation", "LiveTurn", "Phase"]

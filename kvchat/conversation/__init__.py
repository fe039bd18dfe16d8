"""One open chat, for the app and for `ask` alike: what a person can do with it, and apply(event)."""

from kvchat.conversation.conversation import Conversation
from kvchat.conversation.preferences import EngineChoice
from kvchat.conversation.turns import Backend, LiveTurn, Phase

__all__ = ["Backend", "Conversation", "EngineChoice", "LiveTurn", "Phase"]

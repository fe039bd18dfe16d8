"""One open chat, for the app and for `ask` alike: what a person can do with it, and apply(event)."""

from kvchat.backend.client import Backend
from kvchat.conversation.alternatives import Alternative
from kvchat.conversation.conversation import Conversation
from kvchat.conversation.preferences import Defaults, EngineChoice, Own, Said, engine_choice
from kvchat.conversation.sight import Seen, Sight
from kvchat.conversation.summaries import Proposal
from kvchat.conversation.summarized import Reading
from kvchat.conversation.summary_choice import Choice
from kvchat.conversation.turns import LiveTurn, Phase, read_usage

__all__ = [
    "Alternative",
    "Backend",
    "Choice",
    "Conversation",
    "Defaults",
    "EngineChoice",
    "LiveTurn",
    "Own",
    "Phase",
    "Proposal",
    "Reading",
    "Said",
    "Seen",
    "Sight",
    "engine_choice",
    "read_usage",
]

"""What is said about a full context, in the app and without a screen alike. Pure; says only what the engine told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvchat.backend.protocol import Ready, Way
from kvchat.backend.values import OverflowPolicy, Usage
from kvchat.chats.types import Message
from kvchat.conversation.sight import Seen, Sight
from kvchat.conversation.summary_choice import Choice

POLICIES: dict[OverflowPolicy, str] = {
    "stop": "the answer ends, nothing leaves",
    "shift": "the oldest turns leave, whole ones",
    "sinks": "the first tokens and the last ones stay, the oldest between them leave",
    "prune": "of the middle, what attracts the least attention leaves",
    "summarize": "the model sums up the oldest turns, and you can change the summary before it takes their place",
}
"""What a policy does when the context is full."""

RECURRENT = "a recurrent state cannot let single tokens go"
UNREADABLE = "the cache of this architecture cannot be taken apart"
ELSEWHERE = "its context is on a server"


def cannot_evict(ready: Ready) -> str:
    """Why nothing can leave the context that was built; "" where it can."""
    if ready.remote is not None:
        return ELSEWHERE
    if ready.model.attention in ("recurrent", "hybrid"):
        return RECURRENT
    return "" if ready.cache.pages else UNREADABLE


def impossible(policy: OverflowPolicy, ready: Ready) -> str:
    """Why the context that was built cannot have a policy; "" where it can. A summary needs no token to leave."""
    if policy == "stop":
        return ""
    if policy == "summarize" and ready.remote is None:
        return "" if ready.cache.pages else UNREADABLE
    return cannot_evict(ready)


def tokens_text(count: int) -> str:
    """A number of tokens."""
    return f"{count:,} token{'' if count == 1 else 's'}"


def evicted_words(usage: Usage) -> list[str]:
    """What left the context in a turn."""
    found = []
    if usage.evicted > 0:
        policy = f" ({usage.overflow})" if usage.overflow in POLICIES and usage.overflow != "stop" else ""
        found.append(f"let {tokens_text(usage.evicted)} go{policy}")
    if usage.reasoning_evicted > 0:
        found.append(f"reasoning of earlier answers left: {tokens_text(usage.reasoning_evicted)}")
    return found


def summary_forecast(choice: Choice) -> str:
    """What a summary would take the place of, and what it costs."""
    before, after = f"{choice.replaced:,} tokens of {choice.messages} messages", f"{choice.most:,} at most"
    return f"{before} become {after}, and {choice.again:,} are read again"


def summary_done(messages: int, before: int, after: int) -> str:
    """What a summary stands for."""
    return f"a summary of {tokens_text(after)} stands for {_messages(messages)} with {tokens_text(before)}"


def mark_replaced(message: Message) -> str:
    """How a message is seen in whose place a summary stands."""
    return "seen word for word beside the summary" if message.pinned else "seen through a summary"


def _messages(count: int) -> str:
    return f"the oldest {count} messages"


def mark(seen: Seen) -> str:
    """How much of a message the model still sees; "" for all of it."""
    whole, there = seen.tokens - seen.kept, seen.live - seen.kept
    if there >= whole:
        return ""
    if whole - there == seen.thought:
        return "its reasoning is not seen any more"
    return f"{min(99, max(1, round(100 * there / whole)))} % still seen" if there > 0 else "not seen any more"


def forecast(way: Way, sight: Sight, messages: Sequence[Message]) -> str:
    """What a policy would let go: how many tokens, and of which messages."""
    return f"{tokens_text(way.tokens)}: {_which(way, sight.messages, messages)}"


def _which(way: Way, known: Mapping[str, Seen], messages: Sequence[Message]) -> str:
    if not way.ranges:
        return "here and there in the middle, what attracts the least attention"
    touched = [message for message in messages if message.id in known and known[message.id].left(way.ranges)]
    if way.policy != "shift":
        return f"the oldest after the first ones, in {len(touched)} message{'' if len(touched) == 1 else 's'}"
    turns = sum(message.role == "assistant" for message in touched)
    return f"the oldest {turns} turns" if turns > 1 else "the oldest turn"

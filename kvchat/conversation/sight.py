"""How much of each message of a branch is still in the context, and which eviction was the last.

Owns the counting, from the ids and evictions that are stored. On the store thread; must not know an engine or a screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvchat.chats.store import ChatStore
from kvchat.chats.types import KnownIds, Message
from kvchat.conversation.turns import evictions, read_usage
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction, Range, count, joined, live


@dataclass(frozen=True, slots=True)
class Seen:
    """A message's tokens begin at `start` of the chat's log; of `tokens`, `live` are still in the context."""

    start: int
    tokens: int
    live: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last eviction that a policy made: `tokens` would be in the context again without it, and what came after it,
    `behind` tokens, was computed without them."""

    tokens: int
    behind: int


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a branch, by message, up to the first one without ids. `last` None: nothing can be undone."""

    messages: Mapping[str, Seen] = field(default_factory=dict)
    last: Last | None = None

    @property
    def live(self) -> int:
        """Tokens that are in the context."""
        return sum(each.live for each in self.messages.values())


@dataclass(frozen=True, slots=True)
class _Log:
    """The branch as the store has it; `undone`: the reply with the last eviction of a policy, and which of its own."""

    known: Mapping[str, KnownIds]
    gone: Sequence[Range]
    undone: tuple[str, int] | None


def look(store: ChatStore, messages: Sequence[Message], key: str) -> Sight:
    """How much of the branch is seen; `key` is that of the ids."""
    return _sight(messages, _read(store, messages, key))


def take_back(store: ChatStore, messages: Sequence[Message], key: str) -> Sight:
    """Drop the record of the last eviction that a policy made. What the branch was before; KvchatError where there is
    none."""
    log = _read(store, messages, key)
    if log.undone is None:
        raise KvchatError("nothing has left the context of this chat", "there is nothing to take back")
    message, place = log.undone
    there = log.known[message].evictions
    store.set_evictions(message, key, (*there[:place], *there[place + 1 :]))
    return _sight(messages, log)


def _read(store: ChatStore, messages: Sequence[Message], key: str) -> _Log:
    known = store.known_ids(messages[-1].id, key) if messages else {}
    gone = joined(part for each in evictions(messages, known) for part in each.ranges)
    return _Log(known, gone, _undone(messages, known))


def _undone(messages: Sequence[Message], known: Mapping[str, KnownIds]) -> tuple[str, int] | None:
    """The last eviction of a policy: reasoning, that would only leave again, left before those of the same reply."""
    for message in reversed(messages):
        there = known[message.id].evictions if message.id in known else ()
        usage = read_usage(message)
        made = len(there) if usage is None else min(len(there), usage.evictions)
        if made:
            return message.id, len(there) - 1
    return None


def _sight(messages: Sequence[Message], log: _Log) -> Sight:
    seen: dict[str, Seen] = {}
    at = 0
    for message in messages:
        stored = log.known.get(message.id)
        if stored is None or stored.ids is None:
            break
        start, at = at, at + len(stored.ids)
        seen[message.id] = Seen(start, len(stored.ids), count(live(start, at, log.gone)))
    if log.undone is None or log.undone[0] not in seen:
        return Sight(seen)
    message_id, place = log.undone
    return Sight(seen, _last(log.known[message_id].evictions[place], at, log.gone))


def _last(eviction: Eviction, end: int, gone: Sequence[Range]) -> Last:
    return Last(eviction.tokens, count(live(min(eviction.at, end), end, gone)))

"""How much of each message of a branch is still in the context, and which eviction was the last.

Owns the counting, from the ids and evictions that are stored. On the store thread; must not know an engine or a screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvchat.chats.store import ChatStore
from kvchat.chats.types import KnownIds, Message, Summary
from kvchat.conversation.summarized import Reading
from kvchat.conversation.turns import evictions, read_usage
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction, Past, Range, count, joined, live, resolve


@dataclass(frozen=True, slots=True)
class Seen:
    """A message's tokens begin at `start` of the chat's log. Of `tokens`, `live` are still in the context; of those
    that are not, `thought` left because they were reasoning. `kept`: the system prompt before its own, which stays."""

    start: int
    tokens: int
    live: int
    thought: int = 0
    kept: int = 0

    def left(self, ranges: Sequence[Range]) -> int:
        """How many of its tokens lie in ranges, which are in order and disjoint."""
        return self.tokens - count(live(self.start, self.start + self.tokens, ranges))


@dataclass(frozen=True, slots=True)
class Last:
    """The last eviction that a policy made: `tokens` would be in the context again without it, and what came after it,
    `behind` tokens, was computed without them."""

    tokens: int
    behind: int


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a branch, by message, up to the first one without ids. `last` None: nothing can be undone.
    `past`: its present history, as a page store has it. `summary` is read in place of the messages `replaced`."""

    messages: Mapping[str, Seen] = field(default_factory=dict)
    last: Last | None = None
    past: Past = Past(())  # noqa: RUF009 (it is frozen)
    summary: Summary | None = None
    replaced: frozenset[str] = frozenset()

    @property
    def live(self) -> int:
        """Tokens that are in the context."""
        return sum(each.live for each in self.messages.values())


@dataclass(frozen=True, slots=True)
class _Log:
    """The branch as the store has it: what left it, what of that as reasoning, and the reply with the last eviction of
    a policy."""

    known: Mapping[str, KnownIds]
    gone: Sequence[Range]
    thoughts: Sequence[Range]
    undone: str | None


def look(store: ChatStore, read: Reading, key: str) -> Sight:
    """How much of the branch is seen; `key` is that of the ids."""
    found = _sight(read.messages, _read(store, read.messages, key))
    return replace(found, summary=read.summary, replaced=frozenset(message.id for message in read.replaced))


def take_back(store: ChatStore, messages: Sequence[Message], key: str) -> Sight:
    """Drop the record of the last eviction that a policy made. What the branch was before; KvchatError where there is
    none."""
    log = _read(store, messages, key)
    if log.undone is None:
        raise KvchatError("nothing has left the context of this chat", "there is nothing to take back")
    store.set_evictions(log.undone, key, log.known[log.undone].evictions[:-1])
    return _sight(messages, log)


def _read(store: ChatStore, messages: Sequence[Message], key: str) -> _Log:
    known = store.known_ids(messages[-1].id, key) if messages else {}
    gone = joined(part for each in evictions(messages, known) for part in each.ranges)
    first = (_split(message, known)[0] for message in messages)
    thoughts = joined(part for found in first for each in found for part in each.ranges)
    undone = next((message.id for message in reversed(messages) if _split(message, known)[1]), None)
    return _Log(known, gone, thoughts, undone)


def _split(message: Message, known: Mapping[str, KnownIds]) -> tuple[Sequence[Eviction], Sequence[Eviction]]:
    """What left in the turn of a reply: reasoning, which goes first, and what a policy let go. Without its usage (the
    engine died) they are not told apart."""
    stored, usage = known.get(message.id), read_usage(message)
    there = () if stored is None or stored.ids is None else stored.evictions
    first = 1 if usage is not None and usage.reasoning_evicted else 0
    return there[:first], there[first:]


def _sight(messages: Sequence[Message], log: _Log) -> Sight:
    seen: dict[str, Seen] = {}
    usages = (read_usage(message) for message in reversed(messages))  # an earlier one may be of another system prompt
    kept = next((usage.system_tokens for usage in usages if usage is not None and usage.system_tokens), 0)
    ids: list[int] = []
    for message in messages:
        stored = log.known.get(message.id)
        if stored is None or stored.ids is None:
            break
        start, at = len(ids), len(ids) + len(stored.ids)
        ids += stored.ids
        left = count(live(start, at, log.gone))
        thought = at - start - count(live(start, at, log.thoughts))
        seen[message.id] = Seen(start, at - start, left, thought, min(kept, left))
        kept = 0
    past, _ = resolve(tuple(ids), evictions(messages, log.known))
    if log.undone is None or log.undone not in seen:
        return Sight(seen, None, past)
    eviction, end = log.known[log.undone].evictions[-1], len(ids)
    return Sight(seen, Last(eviction.tokens, count(live(min(eviction.at, end), end, log.gone))), past)

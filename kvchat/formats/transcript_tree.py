"""Other programs' message trees made ours. Owns what becomes of nodes that are left out; must not know a file format.

Ours holds what a person and a model said to each other, in turns. A node that is neither is left out, and what hangs on
it goes to the one above. Two of the same role in a row become one where no branch begins between them: programs that
call tools write an answer in several pieces.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvchat.errors import FormatError
from kvchat.formats.transcript import TranscriptMessage

_BETWEEN = "\n\n"  # where two become one


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a tree. `message` is None for one that is left out, `left_out` says as what, "" for what nobody
    misses. `also` are parts of the message that are left out. `created` is None where no time is known."""

    id: str
    parent: str | None
    created: float | None
    message: TranscriptMessage | None = None
    left_out: str = ""
    also: Sequence[str] = ()


@dataclass(slots=True)
class Grown:
    """What became of a tree: the messages, each after its parent, in the order of their times; which message stands for
    each node; what was left out."""

    messages: list[TranscriptMessage] = field(default_factory=list)
    stands_for: dict[str, str | None] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def shown(self, node: object) -> TranscriptMessage | None:
        """The message that stands for a node, else the newest one; None when there is none."""
        name = self.stands_for.get(str(node))
        newest = self.messages[-1] if self.messages else None
        return next((message for message in self.messages if message.id == name), newest)


def grow(nodes: Mapping[str, Node], started: float) -> Grown:
    """The tree of these nodes. One without a time has that of the node above, the first ones `started`. FormatError
    when they are no tree."""
    ordered = _ordered(nodes, started)
    grown = Grown()
    places: dict[str, int] = {}
    kept: Counter[str | None] = Counter()  # how many messages hang on each message
    above: dict[str, str | None] = {}
    for node, _ in ordered:
        above[node.id] = hangs_on = _kept_above(node, nodes, above)
        kept[hangs_on] += node.message is not None
    for node, created in ordered:
        grown.skipped.update([node.left_out] if node.left_out else [])
        grown.skipped.update(node.also)
        hangs_on = above[node.id]
        parent = None if hangs_on is None else grown.stands_for[hangs_on]
        if node.message is None:
            grown.stands_for[node.id] = parent
            continue
        before = None if parent is None else grown.messages[places[parent]]
        if before is not None and before.role == node.message.role and kept[hangs_on] == 1:
            grown.messages[places[before.id]] = _joined(before, node.message)
            grown.stands_for[node.id] = before.id
            continue
        places[node.id] = len(grown.messages)
        grown.messages.append(replace(node.message, id=node.id, parent=parent, created=created))
        grown.stands_for[node.id] = node.id
    return grown


def _kept_above(node: Node, nodes: Mapping[str, Node], above: Mapping[str, str | None]) -> str | None:
    """The nearest node above that has a message; parents come before."""
    if node.parent is None or node.parent not in nodes:
        return None
    return node.parent if nodes[node.parent].message is not None else above[node.parent]


def _ordered(nodes: Mapping[str, Node], started: float) -> list[tuple[Node, float]]:
    """All nodes with their times, each after its parent, else by time, else in the order of the file."""
    children: dict[str | None, list[tuple[int, Node]]] = {}
    for number, node in enumerate(nodes.values()):
        children.setdefault(node.parent if node.parent in nodes else None, []).append((number, node))
    waiting = [(node.created or started, number, node) for number, node in children.get(None, [])]
    heapq.heapify(waiting)
    ordered: list[tuple[Node, float]] = []
    while waiting:
        created, _, node = heapq.heappop(waiting)
        ordered.append((node, created))
        for number, child in children.get(node.id, []):
            heapq.heappush(waiting, (child.created or created, number, child))
    if len(ordered) < len(nodes):
        raise FormatError("its messages run in a circle")
    return ordered


def _joined(first: TranscriptMessage, second: TranscriptMessage) -> TranscriptMessage:
    return replace(
        first,
        text=first.text + _BETWEEN + second.text,
        finish=second.finish,
        model=second.model or first.model,
        usage=second.usage or first.usage,
    )

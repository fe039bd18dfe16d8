"""What drafts tokens ahead of the model: the interface of all drafters, and what they hand over.

Owns the contract between a drafter and the verification of its drafts; must not know the target's cells, its logits,
or whether a draft pays: that is measured by who asks for drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kvchat.formats.past import Eviction

DrafterKind = Literal["ngram", "model"]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may follow. `trust` names a class of drafts that are accepted about equally often, by which their
    acceptance is learned: small, from 0 on, the same in every session (it is remembered with the chat). Empty
    `tokens`: nothing was found, or the drafter still has to read what stands before."""

    tokens: tuple[int, ...] = ()
    trust: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """So many leading tokens a drafter holds once it has begun, which takes about so many seconds."""

    tokens: int
    seconds: float = 0.0


class Drafter(Protocol):
    """Something that guesses the next tokens of a chat. Its drafts are checked, so that a wrong one costs time only.

    In one turn: `reach` at will, `begin` once, then `draft` again and again, then `finish` once, on every path. Between
    two calls of `draft` the ids only grow: those of the call before, the tokens of its draft that stood, and the
    target's next one. All of it runs on the engine thread; whoever calls measures the seconds.
    """

    @property
    def kind(self) -> DrafterKind: ...

    @property
    def pair(self) -> str:
        """What it is and for which model it drafts, in every session the same: how often its drafts stand is remembered
        by that. Empty where it makes no difference."""
        ...

    @property
    def share(self) -> float:
        """Its size in parts of that of the model for which it drafts; 0 for a lookup."""
        ...

    @property
    def read_seconds(self) -> float:
        """Seconds that it takes to read a token of the past; 0: not known yet."""
        ...

    def reach(self, ids: Sequence[int]) -> Reach:
        """How far `begin` would come with `ids`; nothing is changed."""
        ...

    def evicted(self, log: Sequence[Eviction]) -> None:
        """What has left the target's cells so far of the ids of the next calls. Comes before all others in a turn,
        and again when something more has left."""
        ...

    def begin(self, ids: Sequence[int]) -> None:
        """A turn begins to decode after the prompt `ids`. May bring back from the disk what was kept for them, and must
        not compute: the first token is waiting. Raises KvchatError when it cannot draft in this turn."""
        ...

    def behind(self, ids: Sequence[int]) -> int:
        """How many tokens of `ids` it must still read before it can draft after them at once; 0 for a lookup. The
        last one does not count."""
        ...

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        """At most `most` (1 or more) tokens to follow `ids`, of which the last one is not in the target's cells yet.

        One that is behind reads one bounded chunk in such a call and returns an empty draft until it has caught up. All
        tokens are within the target's vocabulary. Raises Aborted when interrupted, KvchatError when it fails; then it
        is not asked again in this turn.
        """
        ...

    def finish(self, ids: Sequence[int]) -> None:
        """The turn is over and `ids` is what was told, and what may be kept on disk. Also after a failure; raises
        nothing. It may be asked to `begin` with any other ids next."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...

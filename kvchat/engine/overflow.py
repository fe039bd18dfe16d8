"""What leaves a full context. Owns the choice, for each policy; must not evict, decode or read a key itself.

Tokens leave in blocks, so that what stays is the same for many turns and what comes after an eviction is found again.
What never leaves: the system prompt with the first tokens of all, pinned messages, and the end of what is there.

`shift` drops the oldest turns, whole ones. `sinks` keeps the first tokens and a window of the last ones (Xiao et al.,
StreamingLLM, arXiv 2309.17453), with positions kept. `prune` keeps of the middle what has keys of a low L2 norm, which
attracts attention (Devoto et al., arXiv 2406.11430), within a budget of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from kvchat.formats.past import Range, count, joined, live

Evicting = Literal["shift", "sinks", "prune"]
EVICTING: tuple[Evicting, ...] = ("shift", "sinks", "prune")

SINKS = 4  # first tokens that softmax needs, whatever they say
BLOCK = 64  # tokens that leave at once, at least; and so many new ones come before more have to
MARGIN = 32  # free cells below which room is made ahead of need, when it can be: text that is held back may forbid it
_SHARE = 4  # and at least this part of the context, where there are so many
_WINDOW = 4  # `prune` keeps this part of its budget for the last tokens

Norms = Callable[[Sequence[Range]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Full:
    """A context that is full. Positions are those of the history.

    `length` tokens, `holes` of them gone; `cells` in all; `needed` for what comes next. `kept`: what never leaves.
    `turns`: messages of a person with their replies, the oldest first, without the one that is going on. `budget`: the
    most cells that `prune` leaves in use.
    """

    length: int
    holes: Sequence[Range]
    cells: int
    needed: int
    kept: Sequence[Range]
    turns: Sequence[Range]
    budget: int

    @property
    def used(self) -> int:
        return self.length - count(self.holes)

    @property
    def lacking(self) -> int:
        """Cells that must become free."""
        return max(0, self.used + self.needed - self.cells)

    @property
    def block(self) -> int:
        """Cells that shall become free at once: then there is room for a block behind what is needed."""
        return max(self.ahead, self.cells // _SHARE)

    @property
    def ahead(self) -> int:
        """Cells that must become free so that nothing else has to leave within a block of tokens."""
        return max(0, self.used + self.needed + MARGIN - self.cells) + BLOCK

    def free(self, start: int, end: int) -> list[Range]:
        """What may leave of [start, end)."""
        return live(start, end, joined([*self.holes, *self.kept]))


def choose(policy: Evicting, full: Full, norms: Norms) -> list[Range]:
    """What leaves: ranges in order, disjoint. Empty: nothing may leave, or not enough of it. `norms`: the mean L2 norm
    of the keys of the tokens in these ranges, shape (tokens,), over layers and heads."""
    if policy == "shift":
        found = _oldest_turns(full)
    elif policy == "sinks":
        found = _after_sinks(full)
    else:
        found = _least_attractive(full, norms)
    return found if count(found) >= max(1, full.lacking) else []


def _oldest_turns(full: Full) -> list[Range]:
    found: list[Range] = []
    for start, end in full.turns:
        if count(found) >= full.block:
            break
        found += full.free(start, end)
    return joined(found)


def _after_sinks(full: Full) -> list[Range]:
    """The oldest tokens after the first ones. The last ones stay, as many as may be asked for."""
    window = max(BLOCK, full.cells // _SHARE)
    free = full.free(SINKS, max(SINKS, full.length - window))
    return _first(free, full.block)


def _least_attractive(full: Full, norms: Norms) -> list[Range]:
    budget = min(full.budget, full.cells)
    free = full.free(SINKS, max(SINKS, full.length - max(BLOCK, budget // _WINDOW)))
    wanted = max(full.ahead, full.used + full.needed - budget)
    positions = np.concatenate([np.arange(start, end) for start, end in free]) if free else np.empty(0, np.int64)
    if not len(positions):
        return []
    order = np.argsort(-norms(free), kind="stable")[:wanted]
    return runs(np.sort(positions[order]))


def runs(positions: npt.NDArray[np.int64]) -> list[Range]:
    """Ascending positions as ranges."""
    ends = np.flatnonzero(np.diff(positions) > 1)
    starts = positions[np.concatenate(([0], ends + 1))]
    lasts = positions[np.concatenate((ends, [len(positions) - 1]))]
    return [(int(start), int(last) + 1) for start, last in zip(starts, lasts, strict=True)]


def _first(ranges: Sequence[Range], most: int) -> list[Range]:
    """The first `most` tokens of ranges."""
    found: list[Range] = []
    for start, end in ranges:
        taken = min(end - start, most)
        if taken > 0:
            found.append((start, start + taken))
        most -= taken
    return found

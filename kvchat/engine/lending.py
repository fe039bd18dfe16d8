"""The beginning of a chat in cells that another chat has: who has it, and how many cells are in use in all.

Owns the search and the count; the cells belong to their `Cells`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvchat.engine.cells import Cells
from kvchat.formats.past import Past, shared


@dataclass(frozen=True, slots=True)
class Loan:
    """The first `length` tokens of `cells`. `snapshot` leads a recurrent state there; None: it is there, or there is
    none."""

    cells: Cells
    length: int
    snapshot: memoryview | None = None


def best_loan(lenders: Iterable[Cells], wanted: Past) -> Loan | None:
    """The longest beginning of a history that somebody has."""
    loans = [loan for cells in lenders if (loan := _loan(cells, wanted)).length]
    return max(loans, key=lambda loan: loan.length, default=None)


def _loan(cells: Cells, wanted: Past) -> Loan:
    same, stand = shared(cells.past, wanted)
    length = cells.intact(same, stand)
    if cells.memory.length < length:
        return Loan(cells, 0)  # the memory is swapped out, or spoilt
    if not cells.memory.recurrent:
        return Loan(cells, length if cells.memory.can_truncate(length) else 0)
    if length == len(cells) == cells.memory.length:
        return Loan(cells, length)
    snapshot = cells.snapshot_before(length)
    return Loan(cells, snapshot.length, snapshot.blob) if snapshot is not None else Loan(cells, 0)


def occupied(all_cells: Iterable[Cells]) -> int:
    """Cells in use, each counted once: what was lent is counted with its lender while that has it, else once. Where
    some of it came from a third chat they are counted too often, if anything."""
    total, orphans = 0, dict[object, int]()
    for cells in all_cells:
        memory = cells.memory
        total += cells.held - memory.shared
        if memory.shared and memory.lender is not None and not memory.is_lent_still:
            orphans[memory.lender] = max(memory.shared, orphans.get(memory.lender, 0))
    return total + sum(orphans.values())

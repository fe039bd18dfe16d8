"""How many bytes pages may take, and which ones go.

Owns the order of eviction; must not know what a chat is: callers say which pages are protected.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.problems import StoreUnwritable

LARGEST_AUTOMATIC = 8 * 2**30
AUTOMATIC_SHARE = 10  # one part in so many of the disk that is free or ours


def effective_budget(budget: int, folder: Path, used: int) -> int:
    """`budget` in bytes; 0 chooses 8 GiB or a tenth of what would be free without us, the smaller."""
    if budget:
        return budget
    while not folder.exists():
        folder = folder.parent
    return min(LARGEST_AUTOMATIC, (shutil.disk_usage(folder).free + used) // AUTOMATIC_SHARE)


def make_room(
    folder: PageFolder, index: PageIndex, excess: int, protected: Collection[bytes], *, drafts_only: bool = False
) -> None:
    """Delete pages until `excess` bytes are gone: those of drafts first, then those with the fewest seconds saved per
    byte and age (see `worth`), leaves before roots, never a pinned or protected one. Raises StoreUnwritable, with
    nothing more to delete or when deleting fails.
    """
    while excess > 0:
        leaves = index.leaves(len(protected) + 1, drafts_only=drafts_only)  # one is not protected, if there is one
        victim = next((row for row in leaves if row.key not in protected), None)
        if victim is None:
            raise StoreUnwritable(
                "KV is not saved: the budget of the page store is used up by what may not be deleted",
                "raise --kv-budget, or let a pinned prefix go",
            )
        folder.remove(victim.namespace, victim.key)  # its parent may be the next one
        index.remove([(victim.namespace, victim.key)])
        excess -= victim.bytes

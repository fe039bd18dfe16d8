"""What the chat's cells hold: ids, what each cost, the keys of its pages, and snapshots to go back to.

Owns this record, and is the only one that changes it and the cells together, so that they never disagree. Must not
tokenize, sample, or touch the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvchat.engine.memory import Memory
from kvchat.formats.page import chain_tokens
from kvchat.formats.rows import Part, Rows
from kvchat.kv.store import PAGE_TOKENS

MOST_SNAPSHOTS = 3
MOST_SNAPSHOT_BYTES = 256 * 2**20  # of all of them; the newest is kept in any case


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What leads back to the state after the first `length` tokens."""

    length: int
    blob: memoryview


class Cells:
    """The tokens in the chat's cells, in position order, with the seconds that computing each one took."""

    def __init__(self, memory: Memory, root: bytes) -> None:
        """`root`: the key of the empty history."""
        self.memory = memory
        self._root = root
        self._ids: list[int] = []
        self._seconds: list[float] = []
        self._keys: list[bytes] = []  # of the leading full pages, as far as they were asked for or restored
        self._snapshots: list[Snapshot] = []
        self.pages_on_disk = 0  # full pages from the beginning that the store is known to have

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        return self._ids

    def seconds_of(self, start: int, end: int) -> float:
        return sum(self._seconds[start:end])

    def history_key(self, page: int) -> bytes:
        """Key of the history in front of full page number `page`: what is computed there has it for a parent.

        Pages that were restored keep the keys that they were found under, with their tags.
        """
        while len(self._keys) < page:
            start = len(self._keys) * PAGE_TOKENS
            parent = self._keys[-1] if self._keys else self._root
            self._keys.append(chain_tokens(parent, "", self._ids[start : start + PAGE_TOKENS]))
        return self._keys[page - 1] if page else self._root

    def copy_out(self, start: int, end: int) -> Mapping[Part, Rows]:
        """Rows of tokens [start, end), as Memory.copy_out. A model without keys and values has none."""
        return {} if self.memory.layout.parts == ("state",) else self.memory.copy_out(start, end)

    def append(self, tokens: Sequence[int], seconds: float) -> None:
        """Tokens that were just decoded, and how long that took."""
        self._ids.extend(tokens)
        self._seconds.extend([seconds / len(tokens)] * len(tokens))

    def restored(self, ids: Sequence[int], seconds: Sequence[float], keys: Sequence[bytes], kept: int) -> None:
        """The cells now hold `ids`, all of them; the first `kept` are as they were. `seconds`: of the others; `keys`:
        of the leading full pages."""
        self._seconds = [*self._seconds[:kept], *seconds]
        self._ids = list(ids)
        self._keys = list(keys)
        self._snapshots = [each for each in self._snapshots if each.length <= kept]

    # ---------------------------------------------------------------- going back

    def reachable(self, length: int) -> int:
        """To how many tokens, at most `length`, the cells can be cut."""
        if self.memory.can_truncate(length):
            return length
        return max((each.length for each in self._snapshots if each.length <= length), default=0)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, or fewer where the memory cannot go back so far."""
        kept = min(length, len(self._ids))
        if (kept < len(self._ids) or self.memory.spoilt) and not self.memory.truncate(kept):
            kept = self._rewind(kept)
        del self._ids[kept:], self._seconds[kept:], self._keys[kept // PAGE_TOKENS :]
        self._snapshots = [each for each in self._snapshots if each.length <= kept]
        self.pages_on_disk = min(self.pages_on_disk, kept // PAGE_TOKENS)

    def resync(self) -> None:
        """After a decode that failed: believe the cells."""
        self.truncate(len(self._ids) if self.memory.spoilt else min(len(self._ids), self.memory.length))

    def take_snapshot(self) -> Snapshot | None:
        """Remember the present recurrent state. None: there is none, or it is remembered. Raises KvchatError."""
        length = len(self._ids)
        if not self.memory.recurrent or not length or any(each.length == length for each in self._snapshots):
            return None
        taken = Snapshot(length, self.memory.snapshot())
        room = MOST_SNAPSHOT_BYTES - taken.blob.nbytes
        kept: list[Snapshot] = []
        for each in reversed(self._snapshots):
            room -= each.blob.nbytes
            if room < 0 or len(kept) == MOST_SNAPSHOTS - 1:
                break
            kept.insert(0, each)
        self._snapshots = [*kept, taken]
        return taken

    def _rewind(self, length: int) -> int:
        fitting = [each for each in self._snapshots if each.length <= length]
        if fitting and self.memory.rewind(fitting[-1].blob, fitting[-1].length):
            return fitting[-1].length
        self.memory.clear()
        return 0


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids are the same."""
    length = min(len(a), len(b))
    if list(a[:length]) == list(b[:length]):
        return length
    return next(i for i in range(length) if a[i] != b[i])

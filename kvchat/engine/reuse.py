"""What to keep, restore and compute: resident prefix, then pages, then nothing.

Owns the record of what the chat's cells hold (ids and what each cost), and is the only one that changes both
together: the list of ids and the cells never disagree. Must not tokenize, sample or write pages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvchat.engine.context import SCRATCH, Context
from kvchat.errors import KvchatError
from kvchat.formats.page import chain_tokens
from kvchat.formats.state import BlobBuffer, State
from kvchat.kv.store import PAGE_TOKENS, Match, PageDamaged, PageMissing, PageStore


@dataclass(frozen=True, slots=True)
class Reuse:
    """How the beginning of a prompt came to be in the cells: token counts, seconds, why it ended early."""

    resident: int = 0
    pages: int = 0
    checkpoint: int = 0
    seconds: float = 0.0
    saved_seconds: float = 0.0
    cut: str | None = None

    @property
    def reused(self) -> int:
        return self.resident + self.pages + self.checkpoint


class Cells:
    """The tokens in the chat's cells, in position order, with the seconds that computing each one took."""

    def __init__(self, context: Context, store: PageStore | None) -> None:
        """`store` None: KV of this architecture is not kept on disk."""
        self._context = context
        self._store = store
        self._ids: list[int] = []
        self._seconds: list[float] = []
        self._keys: list[bytes] = []  # of the leading full pages, as far as they were asked for or restored
        self._pages_on_disk = 0

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        return self._ids

    @property
    def pages_on_disk(self) -> int:
        """Full pages from the beginning that the store is known to have."""
        return self._pages_on_disk

    def seconds_of(self, start: int, end: int) -> float:
        return sum(self._seconds[start:end])

    def page_saved(self) -> None:
        self._pages_on_disk += 1

    def history_key(self, page: int) -> bytes:
        """Key of the history in front of full page number `page`: what is computed there has it for a parent.

        Pages that were restored keep the keys that they were found under, with their tags.
        """
        assert self._store is not None
        while len(self._keys) < page:
            start = len(self._keys) * PAGE_TOKENS
            parent = self._keys[-1] if self._keys else self._store.namespace.root
            self._keys.append(chain_tokens(parent, "", self._ids[start : start + PAGE_TOKENS]))
        return self._keys[page - 1] if page else self._store.namespace.root

    def copy_out(self, start: int, end: int) -> State:
        """Keys and values of tokens [start, end). Raises KvchatError."""
        state = self._context.copy_out(start, end)
        if not np.array_equal(state.positions, np.arange(start, end)):
            raise KvchatError(f"the cells of tokens {start} to {end} are not where they should be", "KV is not saved")
        return state

    def append(self, tokens: Sequence[int], seconds: float) -> None:
        """Tokens that were just decoded, and how long that took."""
        self._ids.extend(tokens)
        self._seconds.extend([seconds / len(tokens)] * len(tokens))

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens; nothing is kept where the memory cannot go back so far."""
        kept = min(length, len(self._ids))
        if kept < len(self._ids) and not self._context.truncate(kept):
            self._context.clear()
            kept = 0
        del self._ids[kept:], self._seconds[kept:], self._keys[kept // PAGE_TOKENS :]
        self._pages_on_disk = min(self._pages_on_disk, kept // PAGE_TOKENS)

    def resync(self) -> None:
        """After a decode that failed: believe the cells."""
        self.truncate(min(len(self._ids), self._context.length))

    def prepare(self, ids: Sequence[int], past: int, *, keep: bool) -> Reuse:
        """Bring as much of `ids` as possible into the cells, all but the last one, whose logits are wanted.

        `past`: number of leading ids that the chat had before. `keep` False: start from nothing.
        """
        began = time.perf_counter()
        if not keep:
            self.truncate(0)
            return Reuse(cut="no-kv" if past else None)
        wanted = ids[:-1]
        resident = _common(self._ids, wanted)
        if resident < len(self._ids):
            self.truncate(resident)
            resident = len(self._ids)
        cut = "architecture" if self._store is None else None
        if self._store is not None:
            cut = self._restore(self._store, wanted)
        reuse = Reuse(
            resident=resident,
            pages=len(self._ids) - resident,
            seconds=time.perf_counter() - began,
            saved_seconds=sum(self._seconds),
        )
        if reuse.reused >= min(past - 1, len(wanted)):
            return reuse
        return replace(reuse, cut=cut or self._reason(wanted, len(self._ids)))

    def stored(self, ids: Sequence[int]) -> int:
        """How many leading tokens the store has."""
        return self._store.match(ids).tokens if self._store is not None else 0

    def resident(self, ids: Sequence[int]) -> int:
        """How many leading tokens are in the cells."""
        return _common(self._ids, ids)

    def outlook(self, ids: Sequence[int]) -> tuple[int, int]:
        """What `prepare` would find for this prompt, without doing it: resident tokens, tokens from pages."""
        wanted = ids[:-1]
        resident = self.resident(wanted)
        return resident, max(0, self.stored(wanted) - resident)

    def reason(self, ids: Sequence[int]) -> str:
        """Why a prompt's past would not be found to its end."""
        return "architecture" if self._store is None else self._reason(ids[:-1], sum(self.outlook(ids)))

    def _reason(self, wanted: Sequence[int], found: int) -> str:
        """Why the store did not have what the chat had beyond the tokens found."""
        elsewhere = self._store.reason_elsewhere(wanted, found) if self._store is not None else None
        return elsewhere or "missing page"

    def _restore(self, store: PageStore, wanted: Sequence[int]) -> str | None:
        """Append what the store has beyond the resident tokens; the reason if a page turned out to be bad."""
        cut = None
        while True:
            match = store.match(wanted)
            full = sum(1 for hit in match.hits if hit.take == hit.rows == PAGE_TOKENS)
            self._pages_on_disk = full
            if match.tokens <= len(self._ids):
                return cut
            try:
                self._load(store, match)
            except PageDamaged:
                cut = "corrupt page"
            except PageMissing:
                cut = cut or "missing page"
            except KvchatError:
                self.resync()
                return "refused"
            else:
                store.used([hit for hit in match.hits if hit.start + hit.take > len(self._ids)])
                self._record(match, wanted)
                return cut

    def _load(self, store: PageStore, match: Match) -> None:
        have = len(self._ids)
        blob = BlobBuffer(
            self._context.layers, np.arange(have, match.tokens, dtype=np.int32), self._context.v_trans, SCRATCH
        )
        for hit in match.hits:
            skip = max(0, have - hit.start)
            if skip < hit.take:
                store.read(hit, skip, blob.views(hit.start + skip - have, hit.take - skip))
        self._context.copy_in(blob.finish())

    def _record(self, match: Match, wanted: Sequence[int]) -> None:
        self._keys = [hit.key for hit in match.hits if hit.take == hit.rows == PAGE_TOKENS]
        for hit in match.hits:
            skip = max(0, len(self._ids) - hit.start)
            if skip < hit.take:
                self._ids.extend(wanted[hit.start + skip : hit.start + hit.take])
                self._seconds.extend([hit.seconds / hit.rows] * (hit.take - skip))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    length = min(len(a), len(b))
    if list(a[:length]) == list(b[:length]):
        return length
    return next(i for i in range(length) if a[i] != b[i])

"""Takes a sequence-state blob apart, to the byte: what `llama_kv_cache::state_write` and its kin put into it.

Knows nothing of kvchat's own reader, which the tests compare with the same facts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

MAGIC = 0xAF143CD8


@dataclass(frozen=True)
class KvSection:
    """`keys`, `values`: (type, bytes of the row of a cell) for each layer; a transposed V is counted the same way.
    `planes`: x, y and token id of each cell of an M-RoPE model."""

    positions: tuple[int, ...]
    planes: tuple[tuple[int, int, int], ...]
    transposed: bool
    layers: int
    keys: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StateSection:
    """`rolling`, `states`: (type, bytes) of R and of S for each recurrent layer. `layers`: of the whole model."""

    position: int
    layers: int
    rolling: tuple[tuple[int, int], ...]
    states: tuple[tuple[int, int], ...]


class Reader:
    """Reads a blob from front to back; struct.error where it is shorter than it says."""

    def __init__(self, blob: bytes) -> None:
        self._blob, self.offset = blob, 0
        magic, _ = self._take("Ii")
        assert magic == MAGIC

    @property
    def left(self) -> int:
        return len(self._blob) - self.offset

    def kv(self, plane: bool, with_values: bool) -> KvSection:
        streams, cells = self._take("II")
        assert streams == 1
        assert cells > 0
        positions, planes = [], []
        for _ in range(cells):
            position, sequences = self._take("iI")
            planes += [self._take("iii")] if plane else []
            assert (sequences, self._take("i")) == (1, (0,))
            positions.append(position)
        transposed, layers = self._take("II")
        keys = self._rows(layers, cells)
        values: tuple[tuple[int, int], ...] = ()
        if with_values:
            values = self._columns(layers, cells) if transposed else self._rows(layers, cells)
        return KvSection(tuple(positions), tuple(planes), bool(transposed), layers, keys, values)

    def state(self, recurrent: int) -> StateSection:
        """`recurrent`: layers that have a state; the blob does not say how many."""
        cells, position, sequences, transposed, layers = self._take("IiIII")
        assert (cells, sequences, transposed) == (1, 0, 0)
        return StateSection(position, layers, self._rows(recurrent, 1), self._rows(recurrent, 1))

    def _rows(self, layers: int, cells: int) -> tuple[tuple[int, int], ...]:
        return tuple(self._row(cells) for _ in range(layers))

    def _row(self, cells: int) -> tuple[int, int]:
        kind, size = self._take("iQ")
        self._skip(size * cells)
        return kind, size

    def _columns(self, layers: int, cells: int) -> tuple[tuple[int, int], ...]:
        found = []
        for _ in range(layers):
            kind, element, width = self._take("iII")
            self._skip(element * width * cells)
            found.append((kind, element * width))
        return tuple(found)

    def _take(self, fields: str) -> Sequence[int]:
        values = struct.unpack_from("<" + fields, self._blob, self.offset)
        self.offset += struct.calcsize("<" + fields)
        return values

    def _skip(self, count: int) -> None:
        self.offset += count

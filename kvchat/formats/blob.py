"""A sequence-state blob in the making: one buffer for llama.cpp, filled in place.

Owns where each row lies in a blob that is written (`formats.state` has the layout); must not know where rows come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvchat.formats.rows import Bytes, Part, PartShape, Positions
from kvchat.formats.state import (
    CELL_BYTES,
    COUNTS,
    ELEMENT_BYTES,
    ELEMENT_DTYPES,
    MAGIC,
    PLANE_CELL_BYTES,
    PREFIX,
    ROWS,
    STATE_CELL,
    STREAM,
    TRANSPOSED,
)


@dataclass(frozen=True, slots=True)
class PartCells:
    """A part to be written: its shape, and the positions of its cells in the order in which they shall lie, int32
    (cells,). A recurrent state has one cell, that of the last token."""

    shape: PartShape
    positions: Sequence[int] | Positions


class BlobBuffer:
    """A blob for `llama_state_seq_set_data_ext`. Rows that are never written through `views` are undefined."""

    def __init__(self, parts: Mapping[Part, PartCells], seq_id: int = 0, ids: Sequence[int] | None = None) -> None:
        """`parts` in llama.cpp's order. `seq_id` is what the cells say; llama.cpp ignores it on load. `ids`: token ids
        by position, for models with two-dimensional positions; else None.

        Raises ValueError when a transposed V is asked for with a type that has no elements of whole bytes, or when only
        some layers have keys and values.
        """
        tokens = None if ids is None else np.asarray(ids, np.int32)
        sizes = [_size(part, cells, tokens is not None) for part, cells in parts.items()]
        self._blob = np.empty(PREFIX.size + sum(sizes), np.uint8)
        self._blob[: PREFIX.size] = np.frombuffer(PREFIX.pack(MAGIC, seq_id), np.uint8)
        self._parts: dict[Part, _Part] = {}
        offset = PREFIX.size
        for (part, cells), size in zip(parts.items(), sizes, strict=True):
            self._parts[part] = _Part(self._blob[offset : offset + size], part, cells, seq_id, tokens)
            offset += size

    def views(self, part: Part, start: int, count: int) -> list[memoryview]:
        """Writable buffers for cells [start, start + count) of a part, in payload order, without empty ones.

        Those of a transposed V hold good until the next call for this part or `finish`, which takes over what is in
        them.
        """
        return self._parts[part].views(start, count)

    def finish(self) -> memoryview:
        """The whole blob, writable bytes, once all rows are in."""
        for part in self._parts.values():
            part.turn()
        return self._blob.data


def _size(part: Part, cells: PartCells, plane: bool) -> int:
    shape, count = cells.shape, len(cells.positions)
    heads = sum(ROWS.size * (2 if layer.v_row or part == "state" else 1) for layer in shape.layers)
    if part == "state":
        return STATE_CELL.size + COUNTS.size + heads + shape.cell_bytes
    if not count:
        return STREAM.size
    return (
        STREAM.size
        + count * (PLANE_CELL_BYTES if plane else CELL_BYTES)
        + COUNTS.size
        + heads
        + count * shape.cell_bytes
    )


class _Part:
    """One part, written into its stretch of the blob.

    A transposed V is filled through rows on the side, a window of cells at a time, which are turned while they are
    still in the processor's cache.
    """

    def __init__(self, blob: Bytes, part: Part, cells: PartCells, seq_id: int, ids: Positions | None) -> None:
        self._blob = blob
        self._offset = 0
        self._rows: list[Bytes] = []
        self._columns: list[npt.NDArray[np.uint16 | np.uint32]] = []  # transposed V: (elements, cells) per layer
        self._side: list[Bytes] = []  # V rows of the window, (cells of the window, v_row) per layer
        self._window = slice(0)
        positions = np.asarray(cells.positions, np.int32)
        if part == "state":
            self._put_state(cells.shape, int(positions[0]))
        else:
            self._put_cells(cells.shape, positions, seq_id, ids)

    def views(self, start: int, count: int) -> list[memoryview]:
        self.turn()
        rows = [rows[start : start + count] for rows in self._rows]
        if self._columns:
            self._window = slice(start, start + count)
            if not self._side or len(self._side[0]) != count:
                self._side = [np.empty((count, len(to) * to.itemsize), np.uint8) for to in self._columns]
            rows += self._side
        return [each.reshape(-1).data for each in rows if each.shape[1]]

    def turn(self) -> None:
        if self._side:
            for target, rows in zip(self._columns, self._side, strict=True):
                target[:, self._window] = rows.view(target.dtype).T

    def _put_state(self, shape: PartShape, position: int) -> None:
        self._put(STATE_CELL.pack(1, position, 0))
        self._put(COUNTS.pack(0, shape.model_layers))
        for layer in shape.layers:
            self._put_rows(layer.k_type, layer.k_row, 1)
        for layer in shape.layers:
            self._put_rows(layer.v_type, layer.v_row, 1)

    def _put_cells(self, shape: PartShape, positions: Positions, seq_id: int, ids: Positions | None) -> None:
        count = len(positions)
        if len({layer.v_row > 0 for layer in shape.layers}) > 1:
            raise ValueError("either all layers have V rows or none")
        self._put(STREAM.pack(1, count))
        if not count:
            return
        fields = (CELL_BYTES if ids is None else PLANE_CELL_BYTES) // 4
        cells = self._skip(count * fields * 4).view("<i4").reshape(-1, fields)
        cells[:, 0], cells[:, 1], cells[:, -1] = positions, 1, seq_id
        if ids is not None:  # text alone: both coordinates are the position
            cells[:, 2], cells[:, 3], cells[:, 4] = positions, positions, ids[positions]
        self._put(COUNTS.pack(int(shape.v_trans), len(shape.layers)))
        for layer in shape.layers:
            self._put_rows(layer.k_type, layer.k_row, count)
        for layer in shape.layers:
            if layer.v_row and shape.v_trans:
                self._put_columns(layer.v_type, layer.v_row, count)
            elif layer.v_row:
                self._put_rows(layer.v_type, layer.v_row, count)

    def _put_rows(self, ggml_type: int, row: int, count: int) -> None:
        self._put(ROWS.pack(ggml_type, row))
        self._rows.append(self._skip(count * row).reshape(count, row))

    def _put_columns(self, ggml_type: int, row: int, count: int) -> None:
        size = ELEMENT_BYTES.get(ggml_type, 0)
        if not size or row % size:
            raise ValueError("only V of whole elements can be transposed")
        self._put(TRANSPOSED.pack(ggml_type, size, row // size))
        self._columns.append(self._skip(count * row).view(ELEMENT_DTYPES[size]).reshape(row // size, count))

    def _put(self, raw: bytes) -> None:
        self._skip(len(raw))[:] = np.frombuffer(raw, np.uint8)

    def _skip(self, size: int) -> Bytes:
        self._offset += size
        return self._blob[self._offset - size : self._offset]

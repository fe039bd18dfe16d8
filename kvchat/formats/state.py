"""llama.cpp's sequence-state blob <-> rows of each of its parts.

Owns the byte layout that `llama_state_seq_get_data_ext` writes for one unified stream (llama.cpp, `llama-kv-cache.cpp`,
`llama-kv-cache-iswa.cpp`, `llama-memory-recurrent.cpp`, `llama-memory-hybrid.cpp`: `state_write`). Must not know
models, sequences, files or why a row is wanted.

The blob, little endian, without padding:

    u32 0xaf143cd8, i32 seq_id, then the parts, in the order full, window, state, as far as the memory has them

A part of keys and values (layers that keep all tokens, or a window):

    u32 streams (1), u32 cells; nothing more without cells
    per cell: i32 position, u32 number of sequences (1), [M-RoPE: i32 x, i32 y, i32 token], i32 seq_id
    u32 v_trans, u32 layers
    per layer: i32 ggml_type, u64 row_bytes, K rows
    rows of V:       per layer: i32 ggml_type, u64 row_bytes, V rows
    transposed V:    per layer: i32 ggml_type, u32 element_bytes, u32 elements, then for each element its value in
                     every cell
    MLA:             no V at all

A recurrent state:

    u32 cells (1); i32 position, u32 number of sequences (0); u32 s_trans (0), u32 layers of the model
    per recurrent layer: i32 ggml_type, u64 row_bytes, R row; then per recurrent layer the same of S
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvchat.errors import FormatError
from kvchat.formats.rows import Bytes, LayerShape, Part, PartShape, Positions, Rows

__all__ = ["ELEMENT_BYTES", "MAGIC", "Layout", "parse"]

MAGIC = 0xAF143CD8
ELEMENT_BYTES = {0: 4, 1: 2, 30: 2}  # ggml types F32, F16, BF16: the only ones that a transposed V can have

PREFIX = struct.Struct("<Ii")
STREAM = struct.Struct("<II")
COUNTS = struct.Struct("<II")
ROWS = struct.Struct("<iQ")
TRANSPOSED = struct.Struct("<iII")
STATE_CELL = struct.Struct("<IiI")
_LARGEST_ROW = 1 << 40
CELL_BYTES, PLANE_CELL_BYTES = 12, 24
ELEMENT_DTYPES: dict[int, np.dtype[np.uint16] | np.dtype[np.uint32]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parts the blobs of a model have, whether there is a V (MLA: no), and whether positions are two-dimensional
    (M-RoPE). No parts: these blobs cannot be read."""

    parts: tuple[Part, ...]
    has_v: bool = True
    plane: bool = False

    def only(self, *parts: Part) -> Layout:
        """The layout of a blob without the other parts."""
        return Layout(tuple(part for part in self.parts if part in parts), self.has_v, self.plane)


class _Cursor:
    """Reads a blob from front to back and never past its end."""

    def __init__(self, blob: Bytes) -> None:
        self._blob = blob
        self._offset = 0

    @property
    def left(self) -> int:
        return len(self._blob) - self._offset

    def unpack(self, layout: struct.Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, what).tobytes())

    def take(self, size: int, what: str) -> Bytes:
        if size > self.left:
            raise FormatError(f"state blob ends within its {what}: {size} bytes wanted, {self.left} left")
        self._offset += size
        return self._blob[self._offset - size : self._offset]


def parse(blob: memoryview | bytes, layout: Layout) -> Mapping[Part, Rows]:
    """Read a blob. A part without cells is left out. Raises FormatError when it is malformed or has several streams."""
    cursor = _Cursor(np.frombuffer(blob, np.uint8))
    magic, _ = cursor.unpack(PREFIX, "prefix")
    if magic != MAGIC:
        raise FormatError(f"not a sequence state: magic {magic:#x}, expected {MAGIC:#x}")
    found: dict[Part, Rows] = {}
    for part in layout.parts:
        rows = _state(cursor) if part == "state" else _cells(cursor, layout)
        if rows is not None:
            found[part] = rows
    if cursor.left:
        raise FormatError(f"sequence state has {cursor.left} bytes too many: the model has another kind of memory")
    return found


def _cells(cursor: _Cursor, layout: Layout) -> Rows | None:
    streams, cells = cursor.unpack(STREAM, "cell count")
    if streams != 1:
        raise FormatError(f"sequence state has {streams} streams, only a unified cache can be read")
    if cells == 0:
        return None
    cell_bytes = PLANE_CELL_BYTES if layout.plane else CELL_BYTES
    positions = _positions(cursor.take(cells * cell_bytes, "cells"), cell_bytes // 4)
    transposed, layers = cursor.unpack(COUNTS, "layer count")
    if transposed > 1 or layers * ROWS.size > cursor.left:
        raise FormatError(f"sequence state is malformed: v_trans {transposed}, {layers} layers, {cursor.left} bytes")
    k_parts = [_rows(cursor, cells) for _ in range(layers)]
    if not layout.has_v:
        v_parts = [(0, np.empty((cells, 0), np.uint8))] * layers
    elif transposed:
        v_parts = [_transposed_rows(cursor, cells) for _ in range(layers)]
    else:
        v_parts = [_rows(cursor, cells) for _ in range(layers)]
    order = None if bool(np.all(positions[1:] > positions[:-1])) else _order(positions)
    return Rows(
        PartShape(_shapes(k_parts, v_parts), bool(transposed)),
        positions if order is None else positions[order],
        tuple(k if order is None else k[order] for _, k in k_parts),
        tuple(v if order is None else v[order] for _, v in v_parts),
    )


def _state(cursor: _Cursor) -> Rows | None:
    (cells,) = cursor.unpack(struct.Struct("<I"), "recurrent state")
    if cells > 1:
        raise FormatError(f"sequence state has {cells} recurrent states")
    position = sequences = 0
    if cells:
        position, sequences = cursor.unpack(struct.Struct("<iI"), "recurrent state")
    transposed, layers = cursor.unpack(COUNTS, "recurrent state")
    if sequences or transposed or position < 0:
        raise FormatError(f"recurrent state is malformed: position {position}, s_trans {transposed}")
    rows = []
    while cursor.left:
        rows.append(_rows(cursor, cells, empty=True))
    if len(rows) % 2 or len(rows) > 2 * layers:
        raise FormatError(f"recurrent state has {len(rows)} rows for {layers} layers")
    half = len(rows) // 2
    if not cells:
        return None
    return Rows(
        PartShape(_shapes(rows[:half], rows[half:]), False, layers),
        np.array([position], np.int32),
        tuple(row for _, row in rows[:half]),
        tuple(row for _, row in rows[half:]),
    )


def _shapes(k: Sequence[tuple[int, Bytes]], v: Sequence[tuple[int, Bytes]]) -> tuple[LayerShape, ...]:
    return tuple(
        LayerShape(k_type, k_rows.shape[1], v_type, v_rows.shape[1])
        for (k_type, k_rows), (v_type, v_rows) in zip(k, v, strict=True)
    )


def _positions(raw: Bytes, fields: int) -> Positions:
    cells = raw.view("<i4").reshape(-1, fields)
    if not np.all(cells[:, 1] == 1):
        raise FormatError("sequence state has cells that do not belong to exactly one sequence")
    positions = np.ascontiguousarray(cells[:, 0], np.int32)
    if positions.min() < 0:
        raise FormatError(f"sequence state has a negative position: {positions.min()}")
    return positions


def _order(positions: Positions) -> npt.NDArray[np.intp]:
    order = np.argsort(positions, kind="stable")
    if not np.all(np.diff(positions[order]) > 0):
        raise FormatError("sequence state has one position twice")
    return order


def _rows(cursor: _Cursor, cells: int, *, empty: bool = False) -> tuple[int, Bytes]:
    ggml_type, row = cursor.unpack(ROWS, "layer header")
    if row == 0 and not empty:
        raise FormatError("sequence state has a layer with rows of 0 bytes")
    if row > _LARGEST_ROW:  # without cells the size of the blob says nothing about it
        raise FormatError(f"sequence state has a layer with rows of {row} bytes")
    return ggml_type, cursor.take(cells * row, "rows").reshape(cells, row)


def _transposed_rows(cursor: _Cursor, cells: int) -> tuple[int, Bytes]:
    ggml_type, size, elements = cursor.unpack(TRANSPOSED, "layer header")
    if ELEMENT_BYTES.get(ggml_type) != size or elements == 0:
        raise FormatError(f"transposed V of type {ggml_type} with {elements} elements of {size} bytes")
    raw = cursor.take(cells * size * elements, "rows")
    columns = raw.view(ELEMENT_DTYPES[size]).reshape(elements, cells)
    return ggml_type, np.ascontiguousarray(columns.T).view(np.uint8)

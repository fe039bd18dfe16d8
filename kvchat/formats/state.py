"""llama.cpp's sequence-state blob of a plain KV cache <-> positions, K rows, V rows.

Owns the byte layout that `llama_state_seq_get_data_ext` writes (llama.cpp, `llama-kv-cache.cpp`, `state_write_meta`
and `state_write_data`) for one unified stream. Must not know models, sequences, files or why a row is wanted.

The blob, little endian, without padding:

    u32 0xaf143cd8, i32 seq_id, u32 streams (1), u32 cells
    per cell: i32 position, u32 number of sequences (1), i32 seq_id
    u32 v_trans, u32 layers
    per layer: i32 ggml_type, u64 row_bytes, K rows
    rows of V:       per layer: i32 ggml_type, u64 row_bytes, V rows
    transposed V:    per layer: i32 ggml_type, u32 element_bytes, u32 elements, then for each element its value in
                     every cell
    MLA:             no V part at all

A *payload* is what all of kvchat passes around: the K rows of every layer, then the V rows of every layer, each in
row layout and in position order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvchat.errors import FormatError

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int32]

MAGIC = 0xAF143CD8
ELEMENT_BYTES = {0: 4, 1: 2, 30: 2}  # ggml types F32, F16, BF16: the only ones that a transposed V can have

_PREFIX = struct.Struct("<IiII")
_COUNTS = struct.Struct("<II")
_ROWS = struct.Struct("<iQ")
_TRANSPOSED = struct.Struct("<iII")
_CELL_BYTES = 12
_ELEMENT_DTYPES: dict[int, np.dtype[np.uint16] | np.dtype[np.uint32]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer of one cell: ggml type numbers and bytes of its K row and its V row (0 with MLA: there is no V)."""

    k_type: int
    k_row: int
    v_type: int
    v_row: int


class State:
    """A parsed blob. Arrays are views of it wherever the bytes allow that; they keep it alive."""

    __slots__ = ("_k", "_v", "layers", "positions", "v_trans")

    def __init__(
        self,
        positions: Positions,
        layers: tuple[LayerShape, ...],
        v_trans: bool,
        k: tuple[Bytes, ...],
        v: tuple[Bytes, ...],
    ) -> None:
        """`positions` int32 (cells,), ascending; `k` and `v` uint8 (cells, row bytes) per layer, in that order."""
        self.positions = positions
        self.layers = layers
        self.v_trans = v_trans
        self._k = k
        self._v = v

    def k(self, layer: int) -> Bytes:
        """K rows of a layer, uint8 (cells, k_row), in position order."""
        return self._k[layer]

    def v(self, layer: int) -> Bytes:
        """V rows of a layer, uint8 (cells, v_row), in position order; v_row is 0 with MLA."""
        return self._v[layer]

    def payload_parts(self) -> list[memoryview]:
        """The payload as contiguous buffers: K rows of every layer, then V rows of every layer that has any."""
        rows = (*self._k, *(v for v, shape in zip(self._v, self.layers, strict=True) if shape.v_row))
        return [row.reshape(-1).data for row in rows]


class _Cursor:
    """Reads a blob from front to back and never past its end."""

    def __init__(self, blob: Bytes) -> None:
        self._blob = blob
        self.offset = 0

    @property
    def left(self) -> int:
        return len(self._blob) - self.offset

    def unpack(self, layout: struct.Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, what).tobytes())

    def take(self, size: int, what: str) -> Bytes:
        if size > self.left:
            raise FormatError(f"state blob ends within its {what}: {size} bytes wanted, {self.left} left")
        self.offset += size
        return self._blob[self.offset - size : self.offset]


def parse(blob: memoryview | bytes) -> State:
    """Read a blob. Raises FormatError when it is malformed, has several streams, or has M-RoPE cells."""
    cursor = _Cursor(np.frombuffer(blob, np.uint8))
    magic, _, streams, cells = cursor.unpack(_PREFIX, "prefix")
    if magic != MAGIC:
        raise FormatError(f"not a sequence state: magic {magic:#x}, expected {MAGIC:#x}")
    if streams != 1:
        raise FormatError(f"sequence state has {streams} streams, only a unified cache can be read")
    if cells == 0:
        _expect_end(cursor)
        return State(np.empty(0, np.int32), (), False, (), ())
    positions = _positions(cursor.take(cells * _CELL_BYTES, "cells"))
    transposed, layers = cursor.unpack(_COUNTS, "layer count")
    if transposed > 1 or layers == 0 or layers * _ROWS.size > cursor.left:
        raise FormatError(f"sequence state is malformed: v_trans {transposed}, {layers} layers, {cursor.left} bytes")
    k_parts = [_rows(cursor, cells) for _ in range(layers)]
    if not cursor.left:
        v_parts = [(0, np.empty((cells, 0), np.uint8))] * layers
    elif transposed:
        v_parts = [_transposed_rows(cursor, cells) for _ in range(layers)]
    else:
        v_parts = [_rows(cursor, cells) for _ in range(layers)]
    _expect_end(cursor)
    order = None if bool(np.all(positions[1:] > positions[:-1])) else _order(positions)
    return State(
        positions if order is None else positions[order],
        tuple(
            LayerShape(k_type, k.shape[1], v_type, v.shape[1])
            for (k_type, k), (v_type, v) in zip(k_parts, v_parts, strict=True)
        ),
        bool(transposed),
        tuple(k if order is None else k[order] for _, k in k_parts),
        tuple(v if order is None else v[order] for _, v in v_parts),
    )


def _expect_end(cursor: _Cursor) -> None:
    if cursor.left:
        raise FormatError(f"sequence state has {cursor.left} bytes too many: not a plain KV cache")


def _positions(raw: Bytes) -> Positions:
    cells = raw.view("<i4").reshape(-1, 3)
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


def _rows(cursor: _Cursor, cells: int) -> tuple[int, Bytes]:
    ggml_type, row = cursor.unpack(_ROWS, "layer header")
    if row == 0:
        raise FormatError("sequence state has a layer with rows of 0 bytes")
    return ggml_type, cursor.take(cells * row, "rows").reshape(cells, row)


def _transposed_rows(cursor: _Cursor, cells: int) -> tuple[int, Bytes]:
    ggml_type, size, elements = cursor.unpack(_TRANSPOSED, "layer header")
    if ELEMENT_BYTES.get(ggml_type) != size or elements == 0:
        raise FormatError(f"transposed V of type {ggml_type} with {elements} elements of {size} bytes")
    raw = cursor.take(cells * size * elements, "rows")
    columns = raw.view(_ELEMENT_DTYPES[size]).reshape(elements, cells)
    return ggml_type, np.ascontiguousarray(columns.T).view(np.uint8)


class BlobBuffer:
    """A blob for `llama_state_seq_set_data_ext`, made once and filled in place.

    `layers`: shapes of all layers of the cache; `positions`: int32 (cells,), one per cell in the order in which the
    cells shall lie; `v_trans`: whether the cache holds V transposed (flash attention off). `seq_id` is what the cells
    say; llama.cpp ignores it on load. Rows that are never written through `views` are undefined.

    A transposed V is filled through rows on the side, a window of cells at a time, which are turned while they are
    still in the processor's cache.
    """

    def __init__(
        self, layers: Sequence[LayerShape], positions: Sequence[int] | Positions, v_trans: bool, seq_id: int = 0
    ) -> None:
        """Raises ValueError when a transposed V is asked for with a type that has no elements of whole bytes."""
        cells = len(positions)
        has_v = any(shape.v_row for shape in layers)
        if has_v and not all(shape.v_row for shape in layers):
            raise ValueError("either all layers have V rows or none")
        if (
            v_trans
            and has_v
            and any(shape.v_row % ELEMENT_BYTES.get(shape.v_type, shape.v_row + 1) for shape in layers)
        ):
            raise ValueError("only V of whole elements can be transposed")
        rows = sum(shape.k_row + shape.v_row for shape in layers)
        heads = len(layers) * _ROWS.size * (2 if has_v else 1)
        size = _PREFIX.size + (_COUNTS.size + heads + cells * (_CELL_BYTES + rows) if cells else 0)
        self._blob = np.empty(size, np.uint8)
        self._rows: list[Bytes] = []
        self._columns: list[npt.NDArray[np.uint16 | np.uint32]] = []  # transposed V: (elements, cells) per layer
        self._side: list[Bytes] = []  # V rows of the window, (cells of the window, v_row) per layer
        self._window = slice(0)
        self._offset = 0
        self._put(_PREFIX.pack(MAGIC, seq_id, 1, cells))
        if not cells:
            return
        self._put_cells(np.asarray(positions, np.int32), seq_id)
        self._put(_COUNTS.pack(int(v_trans), len(layers)))
        for shape in layers:
            self._put(_ROWS.pack(shape.k_type, shape.k_row))
            self._rows.append(self._skip(cells * shape.k_row).reshape(cells, shape.k_row))
        for shape in layers if has_v else ():
            if v_trans:
                self._put_columns(shape, cells)
            else:
                self._put(_ROWS.pack(shape.v_type, shape.v_row))
                self._rows.append(self._skip(cells * shape.v_row).reshape(cells, shape.v_row))

    def views(self, start: int, count: int) -> list[memoryview]:
        """Writable buffers for cells [start, start + count), in payload order: K rows of every layer, then V rows.

        Those of a transposed V hold good until the next call of `views` or `finish`, which takes over what is in them.
        """
        self._turn()
        rows = [rows[start : start + count] for rows in self._rows]
        if self._columns:
            self._window = slice(start, start + count)
            if not self._side or len(self._side[0]) != count:
                self._side = [np.empty((count, len(to) * to.itemsize), np.uint8) for to in self._columns]
            rows += self._side
        return [each.reshape(-1).data for each in rows]

    def finish(self) -> memoryview:
        """The whole blob, writable bytes, once all rows are in."""
        self._turn()
        return self._blob.data

    def _turn(self) -> None:
        if self._side:
            for target, rows in zip(self._columns, self._side, strict=True):
                target[:, self._window] = rows.view(target.dtype).T

    def _put(self, raw: bytes) -> None:
        self._skip(len(raw))[:] = np.frombuffer(raw, np.uint8)

    def _skip(self, size: int) -> Bytes:
        self._offset += size
        return self._blob[self._offset - size : self._offset]

    def _put_cells(self, positions: Positions, seq_id: int) -> None:
        cells = self._skip(len(positions) * _CELL_BYTES).view("<i4").reshape(-1, 3)
        cells[:, 0] = positions
        cells[:, 1] = 1
        cells[:, 2] = seq_id

    def _put_columns(self, shape: LayerShape, cells: int) -> None:
        size = ELEMENT_BYTES[shape.v_type]
        elements = shape.v_row // size
        self._put(_TRANSPOSED.pack(shape.v_type, size, elements))
        self._columns.append(self._skip(cells * shape.v_row).view(_ELEMENT_DTYPES[size]).reshape(elements, cells))

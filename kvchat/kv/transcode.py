"""Rows of one cache type -> rows of another, as llama.cpp itself would have stored them.

Owns the arithmetic: to float32, rotated or turned back, to the other type. The conversions themselves are passed in;
must not know where rows come from or lie. A recurrent state is float32 whatever the cache types are, and stays so.

llama.cpp rotates rows of quantized types by Walsh-Hadamard blocks, which are orthonormal and their own inverse
(llama-kv-cache.cpp, `ggml_gen_hadamard`; the size of the blocks is `Geometry.rotation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvchat.errors import KvchatError
from kvchat.formats.ggml import GGML_NUMBERS, GGML_TYPES, GgmlType, type_named
from kvchat.formats.rows import Bytes, LayerShape, Part, PartShape, Rows
from kvchat.kv.geometry import Geometry
from kvchat.kv.namespace import Namespace

__all__ = ["TYPES", "Bytes", "Floats", "Form", "Quants", "Transcoder", "form_of", "precision", "shapes_as"]

Floats = npt.NDArray[np.float32]

TYPES = ("f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types that rows can have, from the most exact one on: those that ggml quantizes without an importance matrix."""

_CHUNK = 1 << 16  # elements at a time: float32 that stays in the processor's cache
_LARGEST_F16 = 65504.0


class Quants(Protocol):
    """Conversions between a ggml type and float32; arrays are contiguous."""

    def decode(self, type_name: str, raw: Bytes, out: Floats) -> None:
        """`raw`: uint8; `out`: float32 (n,), n the number of elements in `raw`."""

    def encode(self, type_name: str, values: Floats, out: Bytes) -> None:
        """`values`: float32 (n,); `out`: uint8, room for n elements. Raises KvchatError when it cannot be converted."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a cache are stored: types by ggml's names, `rotation`: rotated where llama.cpp does that."""

    type_k: str
    type_v: str
    rotation: bool = True

    @property
    def name(self) -> str:
        """The types as people say them: "q8_0", "q8_0/q4_0"."""
        return self.type_k if self.type_k == self.type_v else f"{self.type_k}/{self.type_v}"


def form_of(namespace: Namespace) -> Form:
    """How rows in the pages of a namespace are stored."""
    return Form(namespace.type_k, namespace.type_v, namespace.rotation)


def precision(form: Form) -> tuple[float, int]:
    """Orders forms by what of a value they keep: the bits of K and V together; of two alike, f16 before bf16."""
    kinds = [type_named(name) for name in (form.type_k, form.type_v)]
    ranks = [TYPES.index(kind.name) if kind.name in TYPES else len(TYPES) for kind in kinds]
    return sum(kind.bits() for kind in kinds), -sum(ranks)


def shapes_as(shapes: Sequence[LayerShape], form: Form) -> tuple[LayerShape, ...]:
    """The shapes that these layers have in another form. Raises KvchatError when a row is no whole number of blocks."""
    return tuple(
        LayerShape(
            GGML_NUMBERS[form.type_k],
            _row_as(shape.k_type, shape.k_row, form.type_k),
            GGML_NUMBERS[form.type_v] if shape.v_row else shape.v_type,
            _row_as(shape.v_type, shape.v_row, form.type_v),
        )
        for shape in shapes
    )


class Transcoder:
    """Turns rows of one form into those of another. May be used by any one thread at a time."""

    def __init__(self, quants: Quants, geometry: Geometry, source: Form, target: Form) -> None:
        """Raises KvchatError for a type that cannot be converted."""
        for name in {source.type_k, source.type_v, target.type_k, target.type_v}:
            if name not in TYPES:
                raise KvchatError(f"rows of type {name} cannot be converted", f"types: {', '.join(TYPES)}")
            kind = type_named(name)
            quants.encode(name, np.zeros(kind.block, np.float32), np.empty(kind.bytes, np.uint8))
        self._quants = quants
        self._geometry = geometry
        self.source, self.target = source, target
        self._floats = np.empty(_CHUNK, np.float32)
        self._turned = np.empty(_CHUNK, np.float32)

    def rows(self, part: Part, rows: Rows) -> Rows:
        """A part of a cache in the other form; V is not transposed. Raises KvchatError as `shapes_as`."""
        if part == "state":
            return rows
        shapes = shapes_as(rows.shape.layers, self.target)
        cells, layers = len(rows.positions), range(len(shapes))
        k = tuple(np.empty((cells, shape.k_row), np.uint8) for shape in shapes)
        v = tuple(np.empty((cells, shape.v_row), np.uint8) for shape in shapes)
        for layer in layers:
            self._convert(part, 0, rows.k(layer), k[layer].reshape(-1))
            self._convert(part, 1, rows.v(layer), v[layer].reshape(-1))
        return Rows(PartShape(shapes), rows.positions, k, v)

    def fill(
        self, part: Part, shapes: Sequence[LayerShape], sources: Sequence[memoryview], targets: Sequence[memoryview]
    ) -> None:
        """Fill buffers of `targets` from those of `sources`, both in payload order: K rows of every layer, then V rows
        of every layer that has any. `shapes`: those of either. ValueError when the buffers are not those of the layers
        and of one number of cells."""
        sides = [0] * len(shapes) + [1] * sum(shape.v_row > 0 for shape in shapes)
        for side, source, target in zip(sides, sources, targets, strict=True):
            self._convert(part, side, np.frombuffer(source, np.uint8), np.frombuffer(target, np.uint8))

    def _convert(self, part: Part, side: int, raw: Bytes, out: Bytes) -> None:
        """All elements of K (`side` 0) or V rows of a layer; `out`: uint8 (bytes,)."""
        before, after = self._kind(self.source, side), self._kind(self.target, side)
        block = self._turn(part, side)
        raw = np.ascontiguousarray(raw).reshape(-1)
        if part == "state" or (before == after and not block):
            out[:] = raw
            return
        count = raw.nbytes // before.bytes * before.block
        if raw.nbytes % before.bytes or out.nbytes * after.block != count * after.bytes or (block and count % block):
            raise ValueError(f"{raw.nbytes} bytes of {before.name} do not become {out.nbytes} bytes of {after.name}")
        for start in range(0, count, _CHUNK):
            end = min(start + _CHUNK, count)
            values = self._floats[: end - start]
            self._quants.decode(before.name, _elements(raw, before, start, end), values)
            if block:
                turned = self._turned[: end - start]
                np.matmul(values.reshape(-1, block), _hadamard(block), out=turned.reshape(-1, block))
                values = turned
            if after.name == "f16":
                np.clip(values, -_LARGEST_F16, _LARGEST_F16, out=values)
            self._quants.encode(after.name, values, _elements(out, after, start, end))

    def _kind(self, form: Form, side: int) -> GgmlType:
        return type_named(form.type_v if side else form.type_k)

    def _turn(self, part: Part, side: int) -> int:
        """Elements of the blocks to be rotated or turned back, which is the same; 0: both forms or neither are
        rotated."""
        blocks = [
            self._geometry.rotation(part, form.type_k, form.type_v)[side] if form.rotation else 0
            for form in (self.source, self.target)
        ]
        return max(blocks) if min(blocks) == 0 else 0


def _row_as(number: int, row: int, type_name: str) -> int:
    before, after = GGML_TYPES[number], type_named(type_name)
    elements = row // before.bytes * before.block
    if elements % after.block:
        raise KvchatError(f"a row of {elements} elements cannot be stored as {after.name} (blocks of {after.block})")
    return elements // after.block * after.bytes


def _elements(raw: Bytes, kind: GgmlType, start: int, end: int) -> Bytes:
    return raw[start // kind.block * kind.bytes : end // kind.block * kind.bytes]


@cache
def _hadamard(size: int) -> Floats:
    """The orthonormal Walsh-Hadamard matrix in Sylvester's order, float32 (size, size)."""
    matrix: Floats = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.divide(matrix, np.sqrt(size), dtype=np.float32)

"""Rows of a cache, part by part: what a state blob is taken apart into.

Owns the values that the parts of a state have in common; must not know the bytes of a blob or of a page.

A *payload* is what all of kvchat passes around: the K rows of every layer, then the V rows of every layer, each in row
layout and in position order. A recurrent state is one row per layer: its rolling part R stands for K, its state S for
V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int32]

Part = Literal["full", "window", "state"]
"""Layers that keep all tokens, layers that keep a window of them, a recurrent state."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer of one cell: ggml type numbers and bytes of its K row and its V row (0 with MLA: there is no V)."""

    k_type: int
    k_row: int
    v_type: int
    v_row: int


@dataclass(frozen=True, slots=True)
class PartShape:
    """What llama.cpp says about a part: the shapes of its layers, and whether V is transposed (flash attention off).

    `model_layers`: layers of the whole model, which stands in front of a recurrent state only.
    """

    layers: tuple[LayerShape, ...]
    v_trans: bool = False
    model_layers: int = 0

    @property
    def cell_bytes(self) -> int:
        """Bytes of one cell's payload."""
        return sum(shape.k_row + shape.v_row for shape in self.layers)


class Rows:
    """One part of a parsed blob. Arrays are views of it wherever the bytes allow that; they keep it alive."""

    __slots__ = ("_k", "_v", "positions", "shape")

    def __init__(self, shape: PartShape, positions: Positions, k: tuple[Bytes, ...], v: tuple[Bytes, ...]) -> None:
        """`positions` int32 (cells,), ascending; `k` and `v` uint8 (cells, row bytes) per layer, in that order."""
        self.shape = shape
        self.positions = positions
        self._k = k
        self._v = v

    def k(self, layer: int) -> Bytes:
        """K rows of a layer, uint8 (cells, k_row), in position order."""
        return self._k[layer]

    def v(self, layer: int) -> Bytes:
        """V rows of a layer, uint8 (cells, v_row), in position order; v_row is 0 with MLA."""
        return self._v[layer]

    def between(self, start: int, end: int) -> Rows:
        """The cells of positions [start, end), those of them that are there: views."""
        low, high = (int(at) for at in np.searchsorted(self.positions, (start, end)))
        k, v = (tuple(each[low:high] for each in side) for side in (self._k, self._v))
        return Rows(self.shape, self.positions[low:high], k, v)

    def detached(self) -> Rows:
        """The same rows in memory of their own, so that they do not keep a whole blob alive."""
        k, v = (tuple(each.copy() for each in side) for side in (self._k, self._v))
        return Rows(self.shape, self.positions, k, v)

    def payload(self) -> list[memoryview]:
        """The payload as contiguous buffers: K rows, then V rows, without empty ones."""
        return [each.reshape(-1).data for each in (*self._k, *self._v) if each.shape[1]]


def joined(pieces: list[Rows]) -> Rows:
    """Pieces of one part, in position order, as one. There is at least one."""
    if len(pieces) == 1:
        return pieces[0]
    layers = range(len(pieces[0].shape.layers))
    return Rows(
        pieces[0].shape,
        np.concatenate([piece.positions for piece in pieces]),
        tuple(np.concatenate([piece.k(layer) for piece in pieces]) for layer in layers),
        tuple(np.concatenate([piece.v(layer) for piece in pieces]) for layer in layers),
    )

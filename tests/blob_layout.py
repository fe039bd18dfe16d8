"""The blob layout written out by hand, after llama.cpp's `state_write_meta` and `state_write_data` (llama-kv-cache.cpp,
llama-memory-recurrent.cpp), and blobs of every kind of memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvchat.formats.rows import LayerShape, Part, PartShape
from kvchat.formats.state import Layout

F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30

GQA = (LayerShape(F16, 8, F16, 4), LayerShape(F16, 6, F16, 12))
QUANTIZED = (LayerShape(Q8_0, 34, Q4_0, 18), LayerShape(Q8_0, 34, Q4_0, 18))
MLA = (LayerShape(F16, 10, 0, 0), LayerShape(F16, 10, 0, 0))
WIDE = (LayerShape(F32, 4, F32, 8),)
BRAIN = (LayerShape(Q8_0, 34, BF16, 6),)
NARROW = (LayerShape(F16, 2, F16, 6), LayerShape(F16, 4, F16, 2), LayerShape(F16, 2, F16, 2))
STATE = (LayerShape(F32, 12, F32, 20), LayerShape(F32, 8, F32, 16))
NO_R = (LayerShape(F32, 0, F32, 20), LayerShape(F32, 12, F32, 8))
NO_S = (LayerShape(F32, 12, F32, 0),)

SEEDS: dict[Part, int] = {"full": 0, "window": 51, "state": 17}


def row(kind: str, layer: int, position: int, size: int, part: Part = "full") -> bytes:
    """The bytes of a row; every row and every place in it differs from its neighbours."""
    seed = position * 31 + layer * 7 + (100 if kind == "v" else 0) + SEEDS[part]
    return bytes((seed + 3 * i) % 256 for i in range(size))


@dataclass(frozen=True)
class Blob:
    """What a blob holds: the shape of each part with the positions of its cells, and token ids by position where cells
    are two-dimensional. `v_less`: the parts have no V at all."""

    parts: Mapping[Part, tuple[PartShape, Sequence[int]]]
    ids: Sequence[int] | None = None
    v_less: bool = False

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.parts), not self.v_less, self.ids is not None)

    @property
    def filled(self) -> dict[Part, tuple[PartShape, Sequence[int]]]:
        """The parts that have cells."""
        return {part: found for part, found in self.parts.items() if found[1]}

    def encoded(self, seq_id: int = 0) -> bytes:
        out = struct.pack("<Ii", 0xAF143CD8, seq_id)
        for part, (shape, positions) in self.parts.items():
            out += state(shape, positions) if part == "state" else cells(part, shape, positions, seq_id, self.ids)
        return out

    def payload(self, part: Part, positions: Sequence[int]) -> list[bytes]:
        """K rows of every layer, then V rows of every layer, without layers that have none."""
        shape, _ = self.parts[part]
        sizes = [("k", layer, each.k_row) for layer, each in enumerate(shape.layers)]
        sizes += [("v", layer, each.v_row) for layer, each in enumerate(shape.layers)]
        return [b"".join(row(kind, i, at, size, part) for at in positions) for kind, i, size in sizes if size]


def cells(part: Part, shape: PartShape, positions: Sequence[int], seq_id: int, ids: Sequence[int] | None) -> bytes:
    out = struct.pack("<II", 1, len(positions))
    if not positions:
        return out
    for at in positions:
        plane = b"" if ids is None else struct.pack("<iii", at, at, ids[at])
        out += struct.pack("<iI", at, 1) + plane + struct.pack("<i", seq_id)
    out += struct.pack("<II", int(shape.v_trans), len(shape.layers))
    for i, each in enumerate(shape.layers):
        out += struct.pack("<iQ", each.k_type, each.k_row)
        out += b"".join(row("k", i, at, each.k_row, part) for at in positions)
    for i, each in enumerate(shape.layers):
        rows = [row("v", i, at, each.v_row, part) for at in positions]
        if each.v_row and shape.v_trans:
            size = {F32: 4, F16: 2, BF16: 2}[each.v_type]
            out += struct.pack("<iII", each.v_type, size, each.v_row // size)
            for start in range(0, each.v_row, size):
                out += b"".join(raw[start : start + size] for raw in rows)
        elif each.v_row:
            out += struct.pack("<iQ", each.v_type, each.v_row) + b"".join(rows)
    return out


def state(shape: PartShape, positions: Sequence[int]) -> bytes:
    out = struct.pack("<I", len(positions)) + b"".join(struct.pack("<iI", at, 0) for at in positions)
    out += struct.pack("<II", 0, shape.model_layers)
    for i, each in enumerate(shape.layers):
        out += struct.pack("<iQ", each.k_type, each.k_row)
        out += b"".join(row("k", i, at, each.k_row, "state") for at in positions)
    for i, each in enumerate(shape.layers):
        out += struct.pack("<iQ", each.v_type, each.v_row)
        out += b"".join(row("v", i, at, each.v_row, "state") for at in positions)
    return out


def of(*layers: LayerShape, v_trans: bool = False) -> PartShape:
    return PartShape(layers, v_trans)


def recurrent(*layers: LayerShape, of_model: int = 6) -> PartShape:
    return PartShape(layers, False, of_model)


LAST = [9]  # a recurrent state is that after the last token
FULL, TURNED = of(*GQA), of(*GQA, v_trans=True)
BLOBS = {
    "gqa": Blob({"full": (FULL, [4, 5, 6, 9])}),
    "gqa, V transposed": Blob({"full": (TURNED, [4, 5, 6, 9])}),
    "quantized": Blob({"full": (of(*QUANTIZED), [4, 5, 6, 9])}),
    "mla": Blob({"full": (of(*MLA), [4, 5, 6, 9])}, v_less=True),
    "mla, V transposed": Blob({"full": (of(*MLA, v_trans=True), [4, 5, 6, 9])}, v_less=True),
    "f32, V transposed": Blob({"full": (of(*WIDE, v_trans=True), [4, 5, 6, 9])}),
    "K and V of different types": Blob({"full": (of(*BRAIN, v_trans=True), [4, 5, 6, 9])}),
    "one cell": Blob({"full": (FULL, [0])}),
    "no cells": Blob({"full": (FULL, [])}),
    "full and window": Blob({"full": (FULL, [4, 5, 6, 7, 8, 9]), "window": (of(*NARROW), [7, 8, 9])}),
    "full and window, V transposed": Blob(
        {"full": (TURNED, [4, 5, 6, 7, 8, 9]), "window": (of(*NARROW, v_trans=True), [8, 9])}
    ),
    "window alone": Blob({"window": (of(*NARROW), [7, 8, 9])}),
    "full without layers": Blob({"full": (of(), [7, 8, 9]), "window": (of(*NARROW), [8, 9])}),
    "window without layers": Blob({"full": (FULL, [7, 8, 9]), "window": (of(), [8, 9])}),
    "window without cells": Blob({"full": (FULL, [7, 8, 9]), "window": (of(*NARROW), [])}),
    "hybrid": Blob({"full": (FULL, [6, 7, 8, 9]), "state": (recurrent(*STATE), LAST)}),
    "hybrid, V transposed": Blob({"full": (TURNED, [6, 7, 8, 9]), "state": (recurrent(*STATE), LAST)}),
    "hybrid with window": Blob(
        {"full": (FULL, [6, 7, 8, 9]), "window": (of(*NARROW), [8, 9]), "state": (recurrent(*STATE), LAST)}
    ),
    "recurrent": Blob({"state": (recurrent(*STATE), LAST)}),
    "recurrent in every layer": Blob({"state": (recurrent(*STATE, of_model=2), LAST)}),
    "recurrent, R of 0 bytes": Blob({"state": (recurrent(*NO_R), LAST)}),
    "recurrent, S of 0 bytes": Blob({"state": (recurrent(*NO_S), LAST)}),
    "recurrent without layers": Blob({"state": (recurrent(), LAST)}),
    "m-rope": Blob({"full": (FULL, [6, 7, 8, 9])}, ids=range(500, 510)),
    "m-rope, V transposed": Blob({"full": (TURNED, [6, 7, 8, 9])}, ids=range(500, 510)),
    "m-rope with window and state": Blob(
        {"full": (FULL, [6, 7, 8, 9]), "window": (of(*NARROW), [8, 9]), "state": (recurrent(*NO_R), LAST)},
        ids=range(500, 510),
    ),
}

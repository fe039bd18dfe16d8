"""The cells of one context, converted, for another: how the fidelity lab has a transcoded cache. Must not decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.memory import Memory
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.rows import Part, Rows
from kvchat.kv.geometry import Geometry
from kvchat.kv.transcode import Form, Transcoder


def transcoded(
    rows: Mapping[Part, Rows], geometry: Geometry, source: Form, target: Form, into: Memory, ids: Sequence[int]
) -> memoryview:
    """A blob of the rows of `ids` for the memory `into`, whose shapes are known. Raises KvchatError when they cannot be
    converted."""
    transcoder = Transcoder(NativeQuants(), geometry, source, target)
    converted = {part: transcoder.rows(part, each) for part, each in rows.items()}
    cells = {part: PartCells(into.shapes[part], each.positions) for part, each in converted.items()}
    blob = BlobBuffer(cells, ids=ids if into.layout.plane else None)
    for part, each in converted.items():
        views = blob.views(part, 0, len(each.positions))
        for view, raw in zip(views, each.payload(), strict=True):
            view[:] = raw
    return blob.finish()

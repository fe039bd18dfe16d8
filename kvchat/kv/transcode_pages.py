"""Whole pages from one cache type to another. Owns what becomes of each part of a page; must not know chains' ends,
engines or files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvchat.kv.newpage import NewPage, NewRows
from kvchat.kv.transcode import Transcoder, shapes_as


def page_as(page: NewPage, transcoder: Transcoder) -> NewPage:
    """The page with its rows in the transcoder's target form; key and tag are the caller's business. Raises KvchatError
    when a row cannot be stored so."""
    return replace(page, groups=tuple(_rows_as(rows, transcoder) for rows in page.groups))


def _rows_as(rows: NewRows, transcoder: Transcoder) -> NewRows:
    if rows.part == "state":
        return rows
    shapes = shapes_as(rows.layers, transcoder.target)
    sizes = [rows.cells * row for row in (*(s.k_row for s in shapes), *(s.v_row for s in shapes)) if row]
    parts = tuple(np.empty(size, np.uint8).data for size in sizes)
    if rows.cells:
        transcoder.fill(rows.part, shapes, rows.parts, parts)
    return NewRows(rows.part, shapes, rows.cells, parts if rows.cells else ())

"""Rows of a part: stretches of them, and copies."""

from __future__ import annotations

import numpy as np

from kvchat.formats.rows import LayerShape, PartShape, Rows

SHAPE = PartShape((LayerShape(0, 4, 0, 2),))


def rows_at(positions: list[int]) -> Rows:
    count = len(positions)
    k = np.repeat(np.array(positions, np.uint8), 4).reshape(count, 4)
    return Rows(SHAPE, np.array(positions, np.int32), (k,), (k[:, :2].copy(),))


def test_rows_between_two_positions() -> None:
    rows = rows_at([5, 6, 7, 9, 10])
    for start, end, wanted in ((0, 20, [5, 6, 7, 9, 10]), (6, 9, [6, 7]), (8, 10, [9]), (0, 5, []), (11, 30, [])):
        found = rows.between(start, end)
        assert found.positions.tolist() == wanted
        assert [bytes(part) for part in found.payload()] == [
            b"".join(bytes([at]) * size for at in wanted) for size in (4, 2)
        ]


def test_detached_rows_have_memory_of_their_own() -> None:
    rows = rows_at([1, 2, 3])
    copy = rows.detached()
    assert [bytes(part) for part in copy.payload()] == [bytes(part) for part in rows.payload()]
    assert not np.shares_memory(copy.k(0), rows.k(0))
    assert not np.shares_memory(copy.v(0), rows.v(0))

"""What llama.cpp writes is read as it is meant; damage in any part is a FormatError."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from blob_layout import BLOBS, F16, GQA, NARROW, Q8_0, STATE, Blob, of, recurrent, row

from kvchat.errors import FormatError
from kvchat.formats.rows import LayerShape, Part, joined
from kvchat.formats.state import Layout, parse

every_blob = pytest.mark.parametrize("made", BLOBS.values(), ids=BLOBS.keys())
PLAIN = Layout(("full",))


@every_blob
def test_parse_gives_rows_in_position_order(made: Blob) -> None:
    found = parse(made.encoded(seq_id=5), made.layout)
    assert list(found) == list(made.filled)
    for part, (shape, positions) in made.filled.items():
        rows = found[part]
        assert rows.positions.tolist() == list(positions) and rows.positions.dtype == np.int32
        assert rows.shape == shape
        for i, each in enumerate(shape.layers):
            assert rows.k(i).tobytes() == b"".join(row("k", i, at, each.k_row, part) for at in positions)
            assert rows.k(i).shape == (len(positions), each.k_row)
            assert rows.v(i).tobytes() == b"".join(row("v", i, at, each.v_row, part) for at in positions)
            assert rows.v(i).shape == (len(positions), each.v_row)


@every_blob
def test_cells_out_of_order_are_sorted(made: Blob) -> None:
    """The window is a ring: its cells begin anywhere."""
    turned = {part: (shape, [*at[2:], *reversed(at[:2])]) for part, (shape, at) in made.parts.items()}
    found = parse(replace(made, parts=turned).encoded(), made.layout)
    for part, (_, positions) in made.filled.items():
        assert found[part].positions.tolist() == sorted(positions)
        assert [each.tobytes() for each in found[part].payload()] == made.payload(part, sorted(positions))


@every_blob
def test_payload_is_all_k_then_all_v_from_any_cell_on(made: Blob) -> None:
    found = parse(made.encoded(), made.layout)
    for part, (shape, positions) in made.filled.items():
        for first in range(len(positions)):
            payload = found[part].between(positions[first], positions[-1] + 1).payload()
            assert [each.tobytes() for each in payload] == made.payload(part, positions[first:])
            assert sum(each.nbytes for each in payload) == (len(positions) - first) * shape.cell_bytes


def test_cell_bytes() -> None:
    assert of(*GQA).cell_bytes == 8 + 6 + 4 + 12
    assert of().cell_bytes == 0
    assert recurrent(*STATE).cell_bytes == 12 + 8 + 20 + 16


@pytest.mark.parametrize("name", ["gqa", "full and window", "hybrid with window", "recurrent", "m-rope"])
def test_rows_are_views_of_the_blob(name: str) -> None:
    raw = np.frombuffer(BLOBS[name].encoded(), np.uint8)
    for rows in parse(raw.data, BLOBS[name].layout).values():
        for layer in range(len(rows.shape.layers)):
            assert np.shares_memory(rows.k(layer), raw)
            assert np.shares_memory(rows.v(layer), raw)


def test_parts_without_cells_are_left_out() -> None:
    assert parse(BLOBS["no cells"].encoded(), PLAIN) == {}
    empty = Blob({"full": (of(*GQA), []), "window": (of(*NARROW), []), "state": (recurrent(*STATE), [])})
    assert parse(empty.encoded(), empty.layout) == {}


def test_layout_without_the_other_parts() -> None:
    layout = Layout(("full", "window", "state"), False, True)
    assert layout.only("state", "window") == Layout(("window", "state"), False, True)
    assert layout.only() == Layout((), False, True)


# ------------------------------------------------------------------ joined


@every_blob
def test_joined_pieces_are_the_whole(made: Blob) -> None:
    for part, (shape, positions) in made.filled.items():
        pieces = []
        for start in range(0, len(positions), 2):
            cut = replace(made, parts={part: (shape, positions[start : start + 2])})
            pieces.append(parse(cut.encoded(), cut.layout)[part])
        whole = joined(pieces)
        assert whole.positions.tolist() == list(positions) and whole.positions.dtype == np.int32
        assert whole.shape == shape
        assert [each.tobytes() for each in whole.payload()] == made.payload(part, positions)


def test_one_piece_is_not_copied() -> None:
    rows = parse(BLOBS["gqa"].encoded(), PLAIN)["full"]
    assert joined([rows]) is rows


# ------------------------------------------------------------------ damage


def whole_beginnings(made: Blob) -> set[int]:
    """Lengths at which the blob ends with as many S rows as R rows: that is also the whole blob of a model with fewer
    recurrent layers."""
    if "state" not in made.parts:
        return set()
    layers = made.parts["state"][0].layers
    sizes = [each.k_row for each in layers] + [each.v_row for each in layers]
    end = len(made.encoded())
    return {end - sum(12 + size for size in sizes[rows:]) for rows in range(0, len(sizes), 2)}


@every_blob
def test_every_truncation_is_refused(made: Blob) -> None:
    raw = made.encoded()
    for size in set(range(len(raw))) - whole_beginnings(made):
        with pytest.raises(FormatError):
            parse(raw[:size], made.layout)


@every_blob
def test_more_bytes_are_refused(made: Blob) -> None:
    raw = made.encoded()
    more = [b"\0", b"\xff", bytes(11)]
    if "state" not in made.parts:
        more += [bytes(12), struct.pack("<iQ", F16, 0) * 2, struct.pack("<II", 1, 0)]
    for extra in more:
        with pytest.raises(FormatError):
            parse(raw + extra, made.layout)


@pytest.mark.parametrize(
    "made",
    [
        Blob({"state": (recurrent(*STATE), [8, 9])}),  # two states
        Blob({"full": (of(LayerShape(F16, 0, F16, 4)), [8, 9])}),  # cells without keys
        Blob({"full": (of(*GQA), [8, 9]), "window": (of(LayerShape(F16, 0, F16, 4)), [9])}),
    ],
)
def test_whole_blobs_of_what_cannot_be_are_refused(made: Blob) -> None:
    with pytest.raises(FormatError):
        parse(made.encoded(), made.layout)


def test_rows_of_one_more_layer_than_the_model_has_are_refused() -> None:
    made = BLOBS["recurrent in every layer"]
    rows = struct.pack("<iQ", 0, 4) + bytes(4)
    for count in (1, 2):
        with pytest.raises(FormatError):
            parse(made.encoded() + rows * count, made.layout)


HUGE = b"\xff\xff\xff\xff"
CELLS_DAMAGE = [  # offset into a part of GQA layers with two cells, bytes that are put there
    (0, struct.pack("<I", 2)),  # streams
    (0, struct.pack("<I", 0)),
    (4, HUGE),  # cells
    (4, struct.pack("<I", 3)),
    (4, struct.pack("<I", 1)),
    (8, struct.pack("<i", -1)),  # a negative position
    (8, struct.pack("<i", 9)),  # one position twice
    (12, struct.pack("<I", 2)),  # a cell of two sequences
    (12, struct.pack("<I", 0)),
    (32, struct.pack("<I", 2)),  # v_trans
    (32, HUGE),
    (36, HUGE),  # layers
    (36, struct.pack("<I", 0)),
    (36, struct.pack("<I", 1)),
    (44, HUGE + HUGE),  # row bytes
    (44, bytes(8)),
    (44, struct.pack("<Q", 9)),
]
STATE_DAMAGE = [  # offset into a recurrent state of two layers out of six
    (0, struct.pack("<I", 2)),  # cells
    (0, HUGE),
    (4, struct.pack("<i", -1)),  # the position
    (8, struct.pack("<I", 1)),  # sequences
    (8, HUGE),
    (12, struct.pack("<I", 1)),  # s_trans
    (12, HUGE),
    (16, struct.pack("<I", 0)),  # layers of the model
    (16, struct.pack("<I", 1)),
    (24, HUGE + HUGE),  # row bytes
    (24, struct.pack("<Q", 2**62)),
    (24, struct.pack("<Q", 13)),
]
TWO = [8, 9]
PARTS_OF: dict[str, Blob] = {
    "plain": Blob({"full": (of(*GQA), TWO)}),
    "full and window": Blob({"full": (of(*GQA), TWO), "window": (of(*GQA), TWO)}),
    "hybrid": Blob({"full": (of(*GQA), TWO), "state": (recurrent(*STATE), [9])}),
    "hybrid with window": Blob({"full": (of(*GQA), TWO), "window": (of(*GQA), TWO), "state": (recurrent(*STATE), [9])}),
    "recurrent": Blob({"state": (recurrent(*STATE), [9])}),
}


def damage() -> list[tuple[str, Part, int, bytes]]:
    return [
        (name, part, offset, raw)
        for name, made in PARTS_OF.items()
        for part in made.parts
        for offset, raw in (STATE_DAMAGE if part == "state" else CELLS_DAMAGE)
    ]


@pytest.mark.parametrize(("name", "part", "offset", "raw"), damage())
def test_absurd_counts_are_refused_in_every_part(name: str, part: Part, offset: int, raw: bytes) -> None:
    made = PARTS_OF[name]
    before = {each: made.parts[each] for each in list(made.parts)[: list(made.parts).index(part)]}
    start = len(Blob(before).encoded())
    damaged = bytearray(made.encoded())
    assert damaged[start + offset : start + offset + len(raw)] != raw
    damaged[start + offset : start + offset + len(raw)] = raw
    with pytest.raises(FormatError):
        parse(bytes(damaged), made.layout)


@every_blob
def test_another_magic_is_refused(made: Blob) -> None:
    raw = made.encoded()
    for wrong in (b"\0" + raw[1:], raw[:3] + b"\xae" + raw[4:]):
        with pytest.raises(FormatError, match="magic"):
            parse(wrong, made.layout)


@pytest.mark.parametrize(
    "header",
    [
        (F16, 4, 2),  # f16 has 2 bytes
        (Q8_0, 2, 2),  # blocks cannot be transposed
        (F16, 2, 0),
        (F16, 2, 0xFFFFFFFF),
    ],
)
@pytest.mark.parametrize("part", ["full", "window"])
def test_absurd_transposed_v_is_refused(part: Part, header: tuple[int, int, int]) -> None:
    turned = of(GQA[0], v_trans=True)
    made = Blob({"full": (turned, TWO), "window": (turned, TWO)})
    size = 8 + 24 + 8 + 12 + 2 * 8 + 12 + 2 * 4
    assert len(made.encoded()) == 8 + 2 * size
    raw = bytearray(made.encoded())
    at = 8 + (size if part == "window" else 0) + 8 + 24 + 8 + 12 + 2 * 8
    raw[at : at + 12] = struct.pack("<iII", *header)
    with pytest.raises(FormatError):
        parse(bytes(raw), made.layout)


LAYOUTS = [
    Layout(parts, has_v, plane)
    for parts in (
        ("full",),
        ("window",),
        ("state",),
        ("full", "window"),
        ("full", "state"),
        ("window", "state"),
        ("full", "window", "state"),
    )
    for has_v in (True, False)
    for plane in (True, False)
]


def kind_of(layout: Layout) -> object:
    """A blob does not say whether cells are a window, and a recurrent state has neither V nor two dimensions."""
    kinds = ["state" if part == "state" else "cells" for part in layout.parts]
    return (kinds, layout.has_v, layout.plane) if "cells" in kinds else kinds


@pytest.mark.parametrize(
    "name",
    ["gqa", "gqa, V transposed", "mla", "full and window", "hybrid", "hybrid with window", "recurrent", "m-rope"],
)
def test_blobs_of_another_kind_of_memory_are_refused(name: str) -> None:
    """Also those with M-RoPE cells, which have 12 bytes more between the count of sequences and the sequence
    (llama_kv_cell_ext), and the other way round."""
    made = BLOBS[name]
    for layout in LAYOUTS:
        if kind_of(layout) != kind_of(made.layout):
            with pytest.raises(FormatError):
                parse(made.encoded(), layout)


@every_blob
def test_random_damage_never_escapes_as_another_error(made: Blob) -> None:
    source = random.Random(5)
    raw = made.encoded()
    for _ in range(400):
        damaged = bytearray(raw)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(raw))] = source.choice((0, 1, 2, 255, source.randrange(256)))
        with suppress(FormatError):
            parse(bytes(damaged), made.layout)

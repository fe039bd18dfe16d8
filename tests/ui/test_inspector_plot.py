"""Bars and plots: every cell against the arithmetic of its place."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from kvchat.plotting import Series, nice_top, number_text
from kvchat.ui.context_bar import FREE, Look, Stretch, bar, filled
from kvchat.ui.plot import plot

A, B, C = Look("a", ""), Look("b", ""), Look("c", "")


@pytest.mark.parametrize(
    ("stretches", "cells", "drawn"),
    [
        ([(50, A), (50, B)], 4, "aabb"),
        ([(75, A), (25, B)], 4, "aaab"),
        ([(1, A), (999, B)], 5, "bbbbb"),  # the middle of the first cell is token 100
        ([(3, A), (1, B), (2, C)], 6, "aaabcc"),  # a cell for each token
        ([(1, A), (1, B)], 6, "aaabbb"),  # three cells for each
        ([(0, A), (5, B)], 2, "bb"),
        ([], 3, "   "),
        ([(5, A)], 0, ""),
    ],
)
def test_a_cell_looks_as_the_token_in_its_middle(stretches: list[tuple[int, Look]], cells: int, drawn: str) -> None:
    assert bar([Stretch(*each) for each in stretches], cells).plain == drawn


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, "····"), (0.001, "a···"), (0.5, "aa··"), (1.0, "aaaa"), (7.0, "aaaa")]
)
def test_what_is_there_is_seen(share: float, drawn: str) -> None:
    assert filled(share, 4, A).plain == drawn
    assert FREE.glyph == "·"


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (0.07, 0.08), (0.9, 1), (1, 1), (1.2, 2), (34.1, 40), (61, 80), (81, 100), (2113, 3000), (7, 8)],
)
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


def test_absurd_numbers_draw_something() -> None:
    assert nice_top(float("nan")) == nice_top(float("inf")) == nice_top(-3) == 1.0


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (12, "12"), (1500, "1.5k"), (40_000, "40k"), (2_000_000, "2M")]
)
def test_numbers_beside_the_axis_are_short(value: float, text: str) -> None:
    assert number_text(value) == text


def test_a_rising_line() -> None:
    """Twenty turns on twenty columns and rows of dots, from corner to corner: each dot is one to the right of and above
    the one before. The axis says 0, half and all of it, and names the first, the middle and the last turn."""
    points = tuple((turn, (turn - 1) * 20 / 19) for turn in range(1, 21))
    lines = [line.plain for line in plot([Series(points, "", "●")], 13, 7, 20)]
    assert lines == [
        "20┤        ⡠⠊",
        "  │      ⡠⠊  ",
        "10┤    ⡠⠊    ",
        "  │  ⡠⠊      ",
        " 0┤⡠⠊        ",
        "  └┴───┴────┴",
        "   1  10   20",
    ]


def test_a_flat_line_at_the_top_and_one_at_the_bottom() -> None:
    """Dots of the highest row of the highest cells, and of the lowest of the lowest."""
    many = range(1, 40)
    lines = [line.plain for line in plot([Series(tuple((x, 10.0) for x in many), "", "●")], 13, 5, 39)]
    assert lines[0] == "10┤" + "⠉" * 10
    lines = [line.plain for line in plot([Series(tuple((x, 0.0) for x in many), "", "●")], 14, 5, 39)]
    assert lines[2] == "  0┤" + "⣀" * 10


def test_one_turn_is_one_mark() -> None:
    """A chat with one turn: its value, nothing joined to it, one number below the axis."""
    lines = [line.plain for line in plot([Series(((1, 3.0),), "", "●")], 20, 5, 1)]
    assert lines[0].startswith("  3┤●")
    assert sum(line.count("●") for line in lines) == 1
    assert lines[-1].strip() == "1"


def test_few_points_have_marks_and_many_have_none() -> None:
    few = Series(tuple((x, 1.0) for x in range(1, 6)), "", "●")
    many = Series(tuple((x, 1.0) for x in range(1, 60)), "", "●")
    assert "".join(line.plain for line in plot([few], 40, 5, 5)).count("●") == 5
    assert "●" not in "".join(line.plain for line in plot([many], 40, 5, 59))


def test_series_can_be_told_apart_without_colour() -> None:
    """Forty cells have 80 columns of dots; of a line with one dot and two left out, a third is there."""
    points = tuple((x, 1.0) for x in range(1, 60))
    solid = plot([Series(points, "", "●")], 42, 3, 59)[0].plain
    dotted = plot([Series(points, "", "●", dots=1, gap=2)], 42, 3, 59)[0].plain
    dots = [sum((ord(cell) - 0x2800).bit_count() for cell in text if cell >= "\u2800") for text in (solid, dotted)]
    assert dots[0] == 80
    assert dots[1] == 27  # the first and every third one after it


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("height", [3, 7, 20])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 50, 5000])
def test_a_plot_is_as_wide_and_as_high_as_it_may_be(width: int, height: int, turns: int) -> None:
    points = tuple((x, x * 31 % 977 / 7) for x in range(1, turns + 1))
    lines = plot([Series(points, "", "●"), Series(points[::2], "", "○", gap=1)], width, height, turns)
    assert len(lines) == height
    assert max(cell_len(line.plain) for line in lines) == width


def test_every_colour_is_the_one_of_its_series() -> None:
    points = tuple((x, 1.0) for x in range(1, 40))
    line = plot([Series(points, "$success", "●")], 20, 3, 39)[0]
    assert [span.style for span in line.spans if line.plain[span.start] == "⠉"] == ["$success"]

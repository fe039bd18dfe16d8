"""assets/moving_svg.py, which makes the demo of the README: what is seen at which time, and in which colours."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ASSETS = Path(__file__).parent.parent / "assets"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def moving_svg(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ASSETS))
    monkeypatch.delitem(sys.modules, "moving_svg", raising=False)
    import moving_svg

    return moving_svg


def keyframes(svg: str) -> dict[str, str]:
    return dict(re.findall(r"@keyframes (\w+)\{((?:[^{}]*\{[^}]*\})*)\}", svg))


def test_a_row_is_seen_while_it_stands(moving_svg: ModuleType) -> None:
    """Four seconds: "above" all the time, "below" from the first to the third, in the second and third row."""
    above, below = moving_svg.rows_of("above")[0], moving_svg.rows_of("below")[0]
    frames = [
        moving_svg.Frame((above,), 1.0),
        moving_svg.Frame((above, below), 1.5),
        moving_svg.Frame((above, below), 0.5),
        moving_svg.Frame((above, (), below), 1.0),
    ]
    svg = moving_svg.moving(frames, 20, "rows")
    tree = ElementTree.fromstring(svg)
    rows = {row.get("id"): "".join(row.itertext()) for row in tree.iter(f"{SVG}g") if row.get("id")}
    assert sorted(rows.values()) == ["above", "below"], "each is there once, however often it stands"
    found = {(rows[use.get("href", "")[1:]], int(use.get("y", ""))): use.get("class") for use in tree.iter(f"{SVG}use")}
    line = moving_svg.LINE
    assert set(found) == {("above", 0), ("below", line), ("below", 2 * line)}
    assert {place for place, name in found.items() if name.endswith(" z")} == {("above", 0), ("below", 2 * line)}
    moves = keyframes(svg)
    steps = {place: moves[name.split()[0]] for place, name in found.items()}
    assert steps["above", 0] == "0%{visibility:visible}"
    assert steps["below", line] == "0%{visibility:hidden}25%{visibility:visible}75%{visibility:hidden}"
    assert steps["below", 2 * line] == "0%{visibility:hidden}75%{visibility:visible}"
    assert "4.0s step-end infinite" in svg


def test_looks_of_a_row(moving_svg: ModuleType) -> None:
    """Colours as they were given, over the end of a line; letters and paper changed about where that is asked for."""
    first, second = moving_svg.rows_of("\x1b[1;38;2;255;0;0mred & <b>\nstill\x1b[0m \x1b[7m界x\x1b[0m")
    (text,) = moving_svg._drawn(first)
    assert 'style="fill:#ff0000"' in text
    assert 'font-weight="bold"' in text
    assert ">red &amp; &lt;b&gt;</text>" in text
    paper, still, turned = moving_svg._drawn(second)
    assert 'style="fill:#ff0000"' in still
    # "界" is two cells wide: the block begins in the seventh cell and is three wide.
    cell = moving_svg.CELL
    assert paper == f'<rect x="{6 * cell:.1f}" width="{3 * cell:.1f}" height="18" fill="{moving_svg.INK}"/>'
    assert f'style="fill:{moving_svg.PAPER}"' in turned
    assert f'textLength="{3 * cell:.1f}"' in turned

"""What is drawn is as wide here as on every terminal."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from wcwidth import wcswidth

from kvchat.ui.display import agreed, agreed_in_place, display


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("\u26a0\ufe0f", 1),
        ("1\ufe0f\u20e3", 1),
        ("#\ufe0f\ufe0f\u20e3", 1),
        ("\xa9\ufe0f", 1),
        ("\u270c\ufe0f", 1),
        ("\u2705\ufe0f", 2),
        ("👩‍💻", 2),
        ("🇰🇷", 2),
        ("한", 2),
    ],
)
def test_all_agree_how_wide_it_is(text: str, cells: int) -> None:
    """Here: what draws the screen, what most terminals follow, and those that take one cell."""
    drawn = (display(text), agreed_in_place(text), agreed(text))
    assert [(cell_len(form), wcswidth(form)) for form in drawn] == [(cells, cells)] * 3


def test_what_is_drawn_in_place_keeps_every_position() -> None:
    text = "a\u26a0\ufe0fb1\ufe0f\u20e3c"
    assert [agreed_in_place(text).index(character) for character in "abc"] == [text.index(c) for c in "abc"]

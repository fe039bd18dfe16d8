"""What may reach a terminal or a database."""

from __future__ import annotations

import pytest

from kvchat.clean import cell_width, clean, clean_line, encodable


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[2J\x00\x7f", "␛[2J␀␡"),  # made visible
        ("\x9b31m\x85", "\ufffd31m\ufffd"),  # C1: CSI in one byte
        ("a\r\nb\rc", "a\nbc"),  # a carriage return overwrites a line
        ("\u202eabc\u2066\u200f\ufeff\u200b", "abc"),  # looks like another text
        ("👩\u200d💻 한 \u200c", "👩\u200d💻 한 \u200c"),  # joiners are part of writing
        ("caf\udce9", "caf\ufffd"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_clean_line() -> None:
    assert clean_line("  a \r\n\t b\u2028c\x1b ") == "a b c␛"


def test_encodable() -> None:
    assert encodable("a\ud83d\udcffb😀\x1b") == "a\ufffd\ufffdb😀\x1b"


@pytest.mark.parametrize(
    ("text", "cells"), [("", 0), ("abc", 3), ("日本語", 6), ("e\u0301", 1), ("한 a", 4), ("👩\u200d💻", 2), ("café", 4)]
)
def test_cell_width(text: str, cells: int) -> None:
    assert cell_width(text) == cells

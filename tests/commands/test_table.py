"""Columns as a terminal has them."""

from __future__ import annotations

import io

from kvchat.commands.table import print_table


def test_wide_characters_do_not_shift_what_follows() -> None:
    out = io.StringIO()
    print_table(("name", "size", "kind"), [("日本語", "5", "x"), ("ab", "10", "y")], out, numbers={"size"})
    assert out.getvalue() == "name    size  kind\n日本語     5  x\nab        10  y\n"

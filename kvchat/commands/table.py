"""Columns, facts, sizes, counts and times as commands print them. Owns that form; must not know what is printed.

Texts come from files that others made: they are cleaned here, before they reach a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TextIO

from kvchat.clean import cell_width, clean_line


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], out: TextIO, *, numbers: Collection[str] = ()
) -> None:
    """Aligned columns below their names, those called in `numbers` to the right."""
    cells = [columns, *(tuple(map(clean_line, row)) for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (
            blank + cell if name in numbers else cell + blank
            for name, cell, width in zip(columns, row, widths, strict=True)
            for blank in [" " * (width - cell_width(cell))]
        )
        print("  ".join(padded).rstrip(), file=out)


def print_facts(facts: Mapping[str, str], out: TextIO) -> None:
    """One fact a line, beginning with what it is called."""
    width = max(map(len, facts))
    for label, text in facts.items():
        print(f"{label:<{width}}  {clean_line(text)}", file=out)


def size_text(number: int) -> str:
    """Bytes for a person: "1.5 MiB"."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"


def count_text(number: int) -> str:
    """A number for a person: "1.5M"."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def time_text(seconds: float) -> str:
    """A moment, in seconds since the epoch, as a clock here has it: "2024-02-29 12:00"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))

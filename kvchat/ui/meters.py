"""Sizes, bars and the two memory meters. Pure functions from values to text; must not know widgets or machines."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content

LABEL_CELLS = 11
NUMBER_CELLS = 34  # the longest numbers beside a bar
LONGEST_BAR = 30
SHORTEST_BAR = 4
TIGHT = 0.8  # share of the memory from which a meter warns


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a configuration takes, in bytes. `f16` is the cache of the same context with f16 for K and V. `memory` is
    all RAM, `free` what can be had of it; None where the machine does not tell. `most`: the cache may take less."""

    cache: int
    f16: int
    weights: int
    memory: int | None = None
    free: int | None = None
    most: bool = False

    @property
    def total(self) -> int:
        return self.weights + self.cache

    @property
    def fits(self) -> bool:
        """Whether it can be had now, as far as is known."""
        return self.free is None or self.total <= self.free


def size_text(size: int) -> str:
    """Bytes for a person: "612 MiB", "2.4 GiB"."""
    for unit, bytes_, digits in (("GiB", 1 << 30, 1), ("MiB", 1 << 20, 0), ("KiB", 1 << 10, 0)):
        if size >= bytes_:
            return f"{size / bytes_:.{digits}f} {unit}"
    return f"{size} B"


def shortened(text: str, cells: int) -> str:
    """`text` in at most `cells` cells, its end as … when it is longer."""
    return text if cell_len(text) <= cells else set_cell_size(text, max(0, cells - 1)).rstrip() + "…"


def bar(share: float, cells: int, style: str) -> Content:
    """A bar of `cells` cells that is full at share 1."""
    full = round(min(1.0, max(0.0, share)) * cells)
    return Content.assemble(Content.styled("━" * full, style), Content.styled("━" * (cells - full), "$edge"))


def cache_meter(need: MemoryNeed, width: int) -> Content:
    """The cache against that of f16, in `width` cells."""
    share = need.cache / need.f16 if need.f16 else 0.0
    numbers = ("at most " if need.most else "") + size_text(need.cache)
    if need.f16 != need.cache:
        numbers += f"  f16: {size_text(need.f16)}"
    return _meter("KV memory", share, "$primary", numbers, width)


def total_meter(need: MemoryNeed, width: int) -> Content:
    """Weights and cache against the memory of the machine, in `width` cells."""
    if not need.memory:
        return _meter("Total", 0.0, "$primary", size_text(need.total), width)
    share = need.total / need.memory
    style = "$error" if not need.fits else "$warning" if share >= TIGHT else "$success"
    numbers = f"{size_text(need.total)} of {size_text(need.memory)}"
    if not need.fits:
        numbers += f", {size_text(need.free or 0)} free"
    return _meter("Total", share, style, numbers, width)


def _meter(label: str, share: float, style: str, numbers: str, width: int) -> Content:
    cells = min(LONGEST_BAR, width - LABEL_CELLS - NUMBER_CELLS)
    drawn = [bar(share, cells, style), Content("  ")] if cells >= SHORTEST_BAR else []
    return Content.assemble(Content.styled(label.ljust(LABEL_CELLS), "$meta"), *drawn, Content(numbers))

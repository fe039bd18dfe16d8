"""Sizes, bars and the two memory meters. Pure functions from values to text; must not know widgets or machines."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content

LABEL_CELLS = 11
NUMBER_CELLS = 45  # the gap beside a bar, and "about 112.3 GiB of 123.5 GiB, 93.4 GiB free"
LONGEST_BAR = 30
SHORTEST_BAR = 4
TIGHT = 0.8  # share of the memory from which a meter warns


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a configuration takes, in bytes. `f16` is the cache of the same context with f16 for K and V, 0 where the
    model cannot have it; `now` that of the engine that runs. `compute` is an estimate. `memory` is all RAM, `free` what
    can be had of it, `fits` whether that is enough; None where it is not known. `draft`: all of a draft model."""

    cache: int
    f16: int
    weights: int
    now: int = 0
    compute: int = 0
    memory: int | None = None
    free: int | None = None
    fits: bool | None = None
    draft: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute + self.draft


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
    """A bar of `cells` cells that is full at share 1. What is left is thinner, for those who see no colours."""
    full = round(min(1.0, max(0.0, share)) * cells)
    return Content.assemble(Content.styled("━" * full, style), Content.styled("─" * (cells - full), "$edge"))


def cache_meter(need: MemoryNeed, width: int) -> Content:
    """The cache against that of f16, in `width` cells."""
    share = need.cache / need.f16 if need.f16 else 0.0
    others = {"now": need.now, "f16": need.f16 if need.f16 != need.now else 0}
    numbers = [f"{name}: {size_text(size)}" for name, size in others.items() if size not in (0, need.cache)]
    return _meter("KV memory", share, "$primary", "  ".join([size_text(need.cache), *numbers]), width)


def total_meter(need: MemoryNeed, width: int) -> Content:
    """Weights, cache and computations against the memory of the machine, in `width` cells."""
    total = f"about {size_text(need.total)}" if need.compute else size_text(need.total)
    if not need.memory:
        return _meter("Total", 0.0, "$primary", total, width)
    share = need.total / need.memory
    style = "$error" if need.fits is False else "$warning" if share >= TIGHT else "$success"
    numbers = f"{total} of {size_text(need.memory)}"
    if need.fits is False:
        numbers += f", {size_text(need.free or 0)} free"
    return _meter("Total", share, style, numbers, width)


def _meter(label: str, share: float, style: str, numbers: str, width: int) -> Content:
    cells = min(LONGEST_BAR, width - LABEL_CELLS - NUMBER_CELLS)
    drawn = [bar(share, cells, style), Content("  ")] if cells >= SHORTEST_BAR else []
    return Content.assemble(Content.styled(label.ljust(LABEL_CELLS), "$meta"), *drawn, Content(numbers))

"""A fidelity report in words: rows of a table for each depth, and the course over the text as a line of blocks. Pure.

Divergences span many powers of ten, so the blocks are on a logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvchat.backend.fidelity import DepthFidelity, FidelityReport, FidelityRow

COLUMNS = ("cache", "KL mean", "KL 99 %", "same token", "perplexity")
BLOCKS = "▁▂▃▄▅▆▇█"
LOWEST, HIGHEST = 1e-5, 1.0  # nats, of the lowest and the highest block
SCALE = f"mean KL of each stretch, logarithmic: {BLOCKS[0]} {LOWEST:g} nats or less, {BLOCKS[-1]} {HIGHEST:g} or more"


def name_of(row: FidelityRow) -> str:
    """What was measured: "q8_0", "K q8_0, V f16", "q8_0, converted", or what noise it is."""
    if row.way == "batch":
        return "f16, token by token"
    if row.way == "flash":
        return f"f16, flash attention {'on' if row.flash else 'off'}"
    types = row.type_k if row.type_k == row.type_v else f"K {row.type_k}, V {row.type_v}"
    return f"{types}, converted" if row.way == "transcoded" else types


def cells(row: FidelityRow, at: DepthFidelity) -> tuple[str, ...]:
    """A row of the table at one depth, for COLUMNS. Perplexity is told as its difference from that of f16."""
    change = at.perplexity / at.reference_perplexity - 1
    return (
        name_of(row),
        _nats(at.kl),
        _nats(at.kl_99),
        f"{at.agreement:.1%}",
        "-" if math.isnan(change) else f"{change:+.2%}",
    )


def heading(report: FidelityReport, depth: int) -> str:
    """What the table of a depth is about."""
    found = next(at for row in report.rows for at in row.depths if at.depth == depth)
    first = depth - found.positions + 1
    return f"depth {depth:,}: tokens {first:,} to {depth:,}, perplexity with f16 {found.reference_perplexity:.2f}"


def about(report: FidelityReport) -> str:
    """How it was measured, in a sentence."""
    flash = "on" if report.reference_flash else "off"
    return (
        f"{report.model}: {report.tokens:,} tokens in batches of {report.batch}, against f16 with flash attention "
        f"{flash}; the first rows are f16 once more, computed otherwise: what they show is noise"
    )


def depths(report: FidelityReport) -> list[int]:
    """Those that there are tables for."""
    return [at.depth for at in report.rows[0].depths] if report.rows else []


def curve(row: FidelityRow, width: int) -> str:
    """The divergence over the text in at most `width` blocks; "" where not all of the text was compared."""
    return "".join(_block(value) for value in _merged(row.curve, width))


def report_object(report: FidelityReport) -> dict[str, object]:
    """For JSON, where there is no NaN."""
    found = asdict(report)
    found["rows"] = [{"name": name_of(row)} | _told(asdict(row)) for row in report.rows]
    return found


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_told(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _merged(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values: neighbours become their mean."""
    each = -(-len(values) // max(1, width)) or 1
    parts = [values[at : at + each] for at in range(0, len(values), each)]
    return [sum(part) / len(part) for part in parts]


def _block(value: float) -> str:
    low, high = math.log(LOWEST), math.log(HIGHEST)
    part = (math.log(min(max(value, LOWEST), HIGHEST)) - low) / (high - low)
    return BLOCKS[min(int(part * len(BLOCKS)), len(BLOCKS) - 1)]


def _nats(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if value < 1e-4 else f"{value:.4f}"

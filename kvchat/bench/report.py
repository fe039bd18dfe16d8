"""What a benchmark found, as values that every form of it is made from: the terminal, JSON, HTML, the comparison.

Owns these values and their JSON, whose version is `VERSION`. Must not measure, or know how anything looks.

A part is a table: columns that say what their values are, and rows by the key of the column. Rates are per second,
sizes bytes, times seconds, shares and ratios plain numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvchat.errors import FormatError

FORMAT, VERSION = "kvchat bench", 1
NOISY = 0.10  # spread above which a value is called noisy

Kind = Literal["text", "count", "rate", "bytes", "bytes_rate", "seconds", "ratio", "share", "number"]
Better = Literal["", "higher", "lower"]
KINDS: tuple[Kind, ...] = ("text", "count", "rate", "bytes", "bytes_rate", "seconds", "ratio", "share", "number")


@dataclass(frozen=True, slots=True)
class Stat:
    """A value that was measured `count` times."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat | None:
        """None: nothing was measured."""
        return cls(statistics.median(values), min(values), max(values), len(values)) if values else None

    @property
    def spread(self) -> float:
        """From the lowest to the highest, as a part of the median."""
        return (self.high - self.low) / self.median if self.median > 0 else 0.0


Value = str | int | float | Stat | None
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Column:
    """`better`: which way is better, "" for what is no result. `names`: with the others that do, it says which row this
    is, so that the rows of two reports can be compared."""

    key: str
    title: str
    kind: Kind = "text"
    better: Better = ""
    names: bool = False


@dataclass(frozen=True, slots=True)
class PlotSpec:
    """A plot of the column `y` over the column `x`: a line for each value of the columns `by`."""

    title: str
    x: str
    y: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One of the things that were measured. `notes`: what was left out, and why; `method`: how, in a sentence."""

    name: str
    title: str
    method: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    plots: tuple[PlotSpec, ...] = ()
    notes: tuple[str, ...] = ()

    def column(self, key: str) -> Column:
        """The column of that key."""
        return next(column for column in self.columns if column.key == key)

    def noisy(self) -> float:
        """The largest spread of what was measured, as a part of its median."""
        values = (value for row in self.rows for value in row.values())
        return max((value.spread for value in values if isinstance(value, Stat) and value.count > 1), default=0.0)


@dataclass(frozen=True, slots=True)
class Report:
    """`setup` is what it was measured on and with, by its name; `seconds` what it took; `interrupted`: somebody ended
    it before it was done."""

    setup: Mapping[str, Any]
    parts: tuple[Part, ...]
    seconds: float = 0.0
    interrupted: bool = False


Line = tuple[str, tuple[tuple[float, float], ...]]  # what it is called, and its points from left to right


def lines(part: Part, plot: PlotSpec) -> list[Line]:
    """The lines of a plot. Rows without one of both values have no point."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in part.rows:
        x, y = number(row.get(plot.x)), number(row.get(plot.y))
        if x is not None and y is not None:
            found.setdefault(" ".join(str(row.get(key, "")) for key in plot.by), []).append((x, y))
    return [(name, tuple(sorted(points))) for name, points in found.items()]


def number(value: Value) -> float | None:
    """A value as a number, that of many as their median; None for what is none."""
    if isinstance(value, Stat):
        return value.median
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# ------------------------------------------------------------------ JSON


def report_object(report: Report) -> dict[str, Any]:
    """The object that `--json` prints, see docs/benchmarking.md."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "setup": dict(report.setup),
        "seconds": round(report.seconds, 1),
        "interrupted": report.interrupted,
        "parts": [_part_object(part) for part in report.parts],
    }


def _part_object(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "title": part.title,
        "method": part.method,
        "columns": [
            {"key": each.key, "title": each.title, "kind": each.kind, "better": each.better, "names": each.names}
            for each in part.columns
        ],
        "rows": [{key: value_object(value) for key, value in row.items()} for row in part.rows],
        "plots": [{"title": each.title, "x": each.x, "y": each.y, "by": list(each.by)} for each in part.plots],
        "notes": list(part.notes),
    }


def value_object(value: Value) -> Any:
    """A value as it stands there."""
    if isinstance(value, Stat):
        return {"median": value.median, "low": value.low, "high": value.high, "count": value.count}
    return value


def read_report(found: Any) -> Report:
    """A report from its object. FormatError: it is none, or one of another version."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError("this is no report of kvchat bench", "kvchat bench --json > FILE makes one")
    if found.get("version") != VERSION:
        raise FormatError(
            f"this report has version {found.get('version')!r}, and version {VERSION} is what can be read here",
            "measure again with this version of kvchat",
        )
    try:
        parts = tuple(_read_part(part) for part in found["parts"])
        return Report(_table(found["setup"]), parts, float(found["seconds"]), bool(found["interrupted"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"the report is damaged: {error!r}", "measure again") from None


def _read_part(found: Any) -> Part:
    columns = tuple(
        Column(str(each["key"]), str(each["title"]), _kind(each["kind"]), _better(each["better"]), bool(each["names"]))
        for each in found["columns"]
    )
    plots = tuple(
        PlotSpec(str(each["title"]), str(each["x"]), str(each["y"]), tuple(map(str, each["by"])))
        for each in found["plots"]
    )
    keys = {column.key for column in columns}
    if not {key for plot in plots for key in (plot.x, plot.y)} <= keys:
        raise ValueError("a plot of columns that there are not")
    rows = tuple({str(key): _read_value(value) for key, value in row.items() if key in keys} for row in found["rows"])
    name, title, method = (str(found[key]) for key in ("name", "title", "method"))
    return Part(name, title, method, columns, rows, plots, tuple(map(str, found["notes"])))


def _read_value(found: Any) -> Value:
    if isinstance(found, dict):
        median, low, high = (float(found[name]) for name in ("median", "low", "high"))
        if not math.isfinite(median + low + high):
            raise ValueError(f"{found!r} is no value")
        return Stat(median, low, high, int(found["count"]))
    if found is None or isinstance(found, str) or (isinstance(found, (int, float)) and math.isfinite(found)):
        return found
    raise ValueError(f"{found!r} is no value")


def _kind(found: Any) -> Kind:
    if found in KINDS:
        return found  # type: ignore[no-any-return]
    raise ValueError(f"{found!r} is no kind of value")


def _better(found: Any) -> Better:
    if found in ("", "higher", "lower"):
        return found  # type: ignore[no-any-return]
    raise ValueError(f"{found!r} is no direction")


def _table(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("setup")
    return found

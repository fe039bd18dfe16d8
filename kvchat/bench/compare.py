"""Two reports side by side: what their set-ups differ in, and how each result of the second is to that of the first.

Owns which results can be compared. Pure; must not print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvchat.bench.report import Column, Part, Report, Row, Stat, Value, number

_PASSING = ("date", "load_average", "load_average_after")  # differ between any two runs
_ALIKE = 0.10  # counts that differ by more are those of another task
_SIZED = ("seconds", "bytes")  # kinds that depend on how much there was to do

Verdict = Literal["better", "worse", "within noise", ""]


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of the set-ups that is not the same."""

    name: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One result of both. `ratio`: the second by the first, None where the first is 0. `verdict` of the second; "within
    noise" where the values that were measured for both overlap."""

    part: str
    row: str
    column: Column
    first: Value
    second: Value
    ratio: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left_out`: what only one of them has, or what cannot be compared, in sentences."""

    differences: tuple[Difference, ...]
    results: tuple[Compared, ...]
    left_out: tuple[str, ...]


def compare(first: Report, second: Report) -> Comparison:
    """The second report against the first."""
    left_out: list[str] = []
    results: list[Compared] = []
    seconds = {part.name: part for part in second.parts}
    for part in first.parts:
        other = seconds.pop(part.name, None)
        if other is None:
            left_out.append(f"{part.title}: only the first has it")
        else:
            results += _results(part, other, left_out)
    left_out += [f"{part.title}: only the second has it" for part in seconds.values()]
    return Comparison(tuple(_differences(first.setup, second.setup)), tuple(results), tuple(left_out))


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    one, other = (dict(_flat(setup)) for setup in (first, second))
    for name in dict.fromkeys((*one, *other)):
        if name.split(".")[0] not in _PASSING and one.get(name) != other.get(name):
            yield Difference(name, one.get(name, "-"), other.get(name, "-"))


def _flat(setup: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in setup.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif isinstance(value, list):
            yield f"{above}{key}", ", ".join(map(str, value)) or "-"
        else:
            yield f"{above}{key}", "-" if value is None else str(value)


def _results(part: Part, other: Part, left_out: list[str]) -> Iterator[Compared]:
    others = {_name(other, row): row for row in other.rows}
    for row in part.rows:
        name = _name(part, row)
        match = others.pop(name, None)
        if match is None:
            left_out.append(f"{part.title}, {name}: only the first has it")
            continue
        sizes = _other_sizes(part, row, match) if any(_is_sized(column) for column in part.columns) else []
        if sizes:
            left_out.append(f"{part.title}, {name}: seconds and bytes are of another {sizes[0]}")
        for column in part.columns:
            if column.better and not (sizes and _is_sized(column)):
                yield from _compared(part, name, column, row.get(column.key), match.get(column.key))
    left_out += [f"{part.title}, {name}: only the second has it" for name in others]


def _is_sized(column: Column) -> bool:
    return bool(column.better) and column.kind in _SIZED


def _name(part: Part, row: Row) -> str:
    """What tells a row from the others."""
    words = []
    for column in part.columns:
        if column.names:
            value = row.get(column.key)
            words.append(f"{column.title} {value:,}" if isinstance(value, int) else str(value))
    return ", ".join(words)


def _other_sizes(part: Part, row: Row, match: Row) -> list[str]:
    """Titles of the counts that say that there was more or less to do."""
    found = []
    for column in part.columns:
        if column.kind == "count" and not column.names and not column.better:
            one, other = number(row.get(column.key)), number(match.get(column.key))
            if one is not None and other is not None and abs(one - other) > _ALIKE * max(one, other):
                found.append(column.title)
    return found


def _compared(part: Part, name: str, column: Column, first: Value, second: Value) -> Iterator[Compared]:
    one, other = number(first), number(second)
    if one is None or other is None:
        return
    ratio = other / one if one else None
    yield Compared(part.title, name, column, first, second, ratio, _verdict(column, first, second, one, other))


def _verdict(column: Column, first: Value, second: Value, one: float, other: float) -> Verdict:
    if one == other:
        return ""
    if isinstance(first, Stat) and isinstance(second, Stat) and first.low <= second.high and second.low <= first.high:
        return "within noise"
    return "better" if (other > one) == (column.better == "higher") else "worse"

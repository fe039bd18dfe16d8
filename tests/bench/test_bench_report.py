"""Reports as values, as JSON, and two of them side by side."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvchat.bench.compare import compare
from kvchat.bench.report import Column, Part, PlotSpec, Report, Stat, lines, number, read_report, report_object
from kvchat.errors import FormatError

COLUMNS = (
    Column("cache", "cache", names=True),
    Column("depth", "depth", "count", names=True),
    Column("tokens", "tokens", "count"),
    Column("speed", "tokens/s", "rate", "higher"),
    Column("first", "first token", "seconds", "lower"),
)


FIFTY = Stat(50.0, 48.0, 52.0, 3)


def row(cache: str = "f16", depth: int = 0, tokens: int = 512, speed=FIFTY, first=2.0):
    return {"cache": cache, "depth": depth, "tokens": tokens, "speed": speed, "first": first}


def report(*rows, setup=None, name: str = "speed") -> Report:
    plot = PlotSpec("speed by depth", "depth", "speed", ("cache",))
    part = Part(name, "Speed", "how", COLUMNS, rows or (row(),), (plot,), ("a note",))
    return Report({"machine": {"cpu": "one"}, "date": "monday"} | (setup or {}), (part,), 12.0)


def test_a_statistic_of_several_and_of_none() -> None:
    assert Stat.of([3.0, 1.0, 2.0, 10.0]) == Stat(2.5, 1.0, 10.0, 4)
    assert Stat.of([]) is None
    assert Stat(50.0, 45.0, 55.0, 3).spread == pytest.approx(0.2)
    assert Stat(0.0, 0.0, 0.0, 2).spread == 0


def test_the_noise_of_a_part_is_that_of_its_worst_value() -> None:
    part = report(row(speed=Stat(100.0, 99.0, 101.0, 3)), row(speed=Stat(10.0, 9.0, 11.0, 3))).parts[0]
    assert part.noisy() == pytest.approx(0.2)
    once = report(row(speed=Stat(10.0, 1.0, 90.0, 1))).parts[0]
    assert once.noisy() == 0  # one measurement has no spread


def test_lines_of_a_plot_run_from_left_to_right() -> None:
    part = report(row(depth=8), row("q8_0", 0, speed=7), row(depth=4, speed=None), row(depth=0, speed=60)).parts[0]
    assert lines(part, part.plots[0]) == [("f16", ((0.0, 60.0), (8.0, 50.0))), ("q8_0", ((0.0, 7.0),))]


@pytest.mark.parametrize(
    ("value", "told"), [(Stat(5.0, 1.0, 9.0, 3), 5.0), (3, 3.0), ("3", None), (None, None), (True, None)]
)
def test_values_as_numbers(value, told) -> None:
    assert number(value) == told


# ------------------------------------------------------------------ JSON


def test_json_comes_back_as_it_was() -> None:
    there = report(row(), row("q8_0", 1024, first=None))
    assert read_report(json.loads(json.dumps(report_object(there), allow_nan=False))) == there


def test_the_object_says_what_it_is() -> None:
    found = report_object(report())
    assert (found["format"], found["version"]) == ("kvchat bench", 1)
    assert found["parts"][0]["rows"][0]["speed"] == {"median": 50.0, "low": 48.0, "high": 52.0, "count": 3}
    assert found["parts"][0]["columns"][3] == {
        "key": "speed",
        "title": "tokens/s",
        "kind": "rate",
        "better": "higher",
        "names": False,
    }


def changed(where: tuple, value: object) -> object:
    """The object of a report, with another value in one place."""
    found = json.loads(json.dumps(report_object(report())))
    at = found
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = value
    return found


# Each row is a file that somebody may hand to compare, and what is said of it.
@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "no report"),
        ({"format": "other"}, "no report"),
        (changed(("version",), 2), "version 2"),
        (changed(("parts",), None), "damaged"),
        (changed(("parts", 0, "rows"), [1]), "damaged"),
        (changed(("parts", 0, "rows", 0, "speed"), {"median": 1}), "damaged"),
        (changed(("parts", 0, "rows", 0, "speed"), float("nan")), "damaged"),
        (changed(("parts", 0, "rows", 0, "speed", "high"), float("inf")), "damaged"),
        (changed(("parts", 0, "rows", 0, "cache"), [1]), "damaged"),
        (changed(("parts", 0, "columns", 0, "kind"), "colour"), "damaged"),
        (changed(("parts", 0, "columns", 3, "better"), "more"), "damaged"),
        (changed(("parts", 0, "plots", 0, "x"), "nothing"), "damaged"),
        (changed(("setup",), 5), "damaged"),
        (changed(("seconds",), "x"), "damaged"),
    ],
)
def test_what_is_no_report(found: object, words: str) -> None:
    with pytest.raises(FormatError, match=words) as error:
        read_report(found)
    assert error.value.hint


# ------------------------------------------------------------------ two of them


def test_ratios_and_verdicts() -> None:
    """Twice as fast is better, a longer wait worse; values whose ranges meet are noise."""
    first = report(row(speed=Stat(50.0, 48.0, 52.0, 3)), row("q8_0", speed=Stat(50.0, 40.0, 60.0, 3), first=1.0))
    second = report(
        row(speed=Stat(100.0, 90.0, 110.0, 3), first=3.0), row("q8_0", speed=Stat(61.0, 59.0, 63.0, 3), first=1.0)
    )
    found = [(each.row, each.column.key, each.ratio, each.verdict) for each in compare(first, second).results]
    assert found == [
        ("f16, depth 0", "speed", 2.0, "better"),
        ("f16, depth 0", "first", 1.5, "worse"),
        ("q8_0, depth 0", "speed", 1.22, "within noise"),
        ("q8_0, depth 0", "first", 1.0, ""),
    ]


def test_seconds_of_another_amount_of_work_are_not_compared() -> None:
    found = compare(report(row(tokens=512)), report(row(tokens=1024)))
    assert [each.column.key for each in found.results] == ["speed"]
    assert found.left_out == ("Speed, f16, depth 0: seconds and bytes are of another tokens",)
    nearly = compare(report(row(tokens=512)), report(row(tokens=520)))
    assert [each.column.key for each in nearly.results] == ["speed", "first"]


def test_rates_alone_are_compared_whatever_there_was_to_do() -> None:
    first, second = report(row(tokens=1)), report(row(tokens=8))
    rates = COLUMNS[:4]
    found = compare(*(replace(each, parts=(replace(each.parts[0], columns=rates),)) for each in (first, second)))
    assert ([each.column.key for each in found.results], found.left_out) == (["speed"], ())


def test_what_only_one_of_them_has() -> None:
    both = compare(report(row(), row("q4_0")), report(row(), row("bf16")))
    assert both.left_out == (
        "Speed, q4_0, depth 0: only the first has it",
        "Speed, bf16, depth 0: only the second has it",
    )
    parts = compare(report(), report(name="other"))
    assert parts.left_out == ("Speed: only the first has it", "Speed: only the second has it")
    assert parts.results == ()


def test_set_ups_that_differ() -> None:
    """The day is another one each time, and is not told."""
    first, second = report(), report(setup={"machine": {"cpu": "two", "cores": 4}, "date": "tuesday"})
    found = compare(first, second).differences
    assert [(each.name, each.first, each.second) for each in found] == [
        ("machine.cpu", "one", "two"),
        ("machine.cores", "-", "4"),
    ]


def test_a_first_result_of_zero_has_no_ratio() -> None:
    found = compare(report(row(speed=0)), report(row(speed=5)))
    assert (found.results[0].ratio, found.results[0].verdict) == (None, "better")
    assert replace(found.results[0], second=5) == found.results[0]

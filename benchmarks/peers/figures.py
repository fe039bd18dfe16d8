"""From records to figures: medians, spreads, and how kvchat stands against each other program. Pure.

A ratio is what the other program takes of something (seconds, bytes, seconds a token) over what kvchat takes of it:
above 1 kvchat does better, below 1 worse. Where both were measured in the same rounds, it is the median of the ratios
of the rounds, else that of the medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

KVCHAT = "kvchat"
EVEN = 0.02  # ratios this near to 1 are neither better nor worse

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One program in one comparison. `ratio` None: kvchat takes none of it, 0: the other takes none of it. That of
    kvchat is 1."""

    question: str
    what: str
    unit: str
    program: str
    values: tuple[float, ...]
    ratio: float | None

    @property
    def middle(self) -> float:
        return median(self.values)


def compare(
    question: str, what: str, unit: str, values: Mapping[str, Sequence[float]], *, more_is_better: bool = False
) -> list[Figure]:
    """One comparison: the values of each program, in the order of the rounds; kvchat first, then by name. Nothing where
    kvchat has none."""
    ours = values.get(KVCHAT)
    if not ours:
        return []
    return [
        Figure(question, what, unit, program, tuple(values[program]), _ratio(ours, values[program], more_is_better))
        for program in (KVCHAT, *sorted(values.keys() - {KVCHAT}))
    ]


def _ratio(ours: Sequence[float], theirs: Sequence[float], more_is_better: bool) -> float | None:
    pairs = list(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else [(median(ours), median(theirs))]
    over, under = (0, 1) if more_is_better else (1, 0)
    if any(pair[under] == 0 for pair in pairs):
        return None
    return median(pair[over] / pair[under] for pair in pairs)


def worse(figures: Iterable[Figure]) -> list[Figure]:
    """Where kvchat does worse, the worst first."""
    found = [each for each in figures if each.ratio is not None and each.ratio < 1 - EVEN]
    return sorted(found, key=lambda each: each.ratio or 0.0)


def by_program(records: Iterable[Record], value: Callable[[Record], float | None]) -> dict[str, list[float]]:
    """The values of each program, in the order of the records."""
    found: dict[str, list[float]] = {}
    for record in records:
        if (number := value(record)) is not None:
            found.setdefault(record["program"], []).append(number)
    return found


# ------------------------------------------------------------------ the questions


def all_figures(results: Record) -> list[Figure]:
    """All comparisons of a run, in the order of the questions."""
    records: Mapping[str, list[Record]] = results["records"]
    types = list(dict.fromkeys(each["type"] for kind in ("speed", "turns") for each in records.get(kind, ())))
    found: list[Figure] = []
    for cache in types:
        found += _speed(_of(records, "speed", cache), cache, results["scale"]["decode"])
    for cache in types:
        found += _turns(_of(records, "turns", cache), cache, results["scale"]["told"])
    for cache in types:
        found += _restarts(_of(records, "restarts", cache), cache)
    for cache in types:
        found += _taken(_of(records, "taken", cache), cache)
    found += _many(records)
    return found + _drafts(records.get("drafts", ()))


def _of(records: Mapping[str, list[Record]], kind: str, cache: str) -> list[Record]:
    return [each for each in records.get(kind, ()) if each["type"] == cache]


def _speed(records: list[Record], cache: str, wanted: int) -> list[Figure]:
    """Of decoding, only rounds in which both programs wrote as many tokens as were `wanted`: the last text of an answer
    that ends by itself comes with its end, or one token before, and of a short one that is much."""
    short = {each["round"] for each in records if each.get("tokens", wanted) < wanted}
    whole = [each for each in records if each["round"] not in short]
    return [
        *compare(
            "speed",
            f"prefill, {cache}",
            "tokens/s",
            by_program(records, lambda each: each["prefill"]),
            more_is_better=True,
        ),
        *compare(
            "speed", f"decode, {cache}", "tokens/s", by_program(whole, lambda each: each["decode"]), more_is_better=True
        ),
    ]


def _turns(records: list[Record], cache: str, told: Sequence[int]) -> list[Figure]:
    found: list[Figure] = []
    for turn in told:
        values = by_program((each for each in records if each["turn"] == turn), lambda each: each["first"])
        found += compare("turns", f"turn {turn}, {cache}", "s", values)
    return found


def _restarts(records: list[Record], cache: str) -> list[Figure]:
    parts: tuple[tuple[str, Callable[[Record], float]], ...] = (
        ("from Enter to the first token", lambda each: each["back"] + each["first"]),
        ("start of the process, model loaded", lambda each: each["ready"]),
        ("both", lambda each: each["whole"]),
    )
    found: list[Figure] = []
    for what, value in parts:
        found += compare("restart", f"{what}, {cache}", "s", by_program(records, value))
    return found


def _taken(records: list[Record], cache: str) -> list[Figure]:
    found = compare("written", f"a turn, {cache}", "bytes", by_program(records, lambda each: each["written"]))
    for what in ("pss", "anonymous", "rss"):
        values = by_program(records, lambda each, what=what: each[what])  # type: ignore[misc]
        found += compare("memory", f"{what}, {cache}", "bytes", values)
    return found


def _many(records: Mapping[str, list[Record]]) -> list[Figure]:
    disk, back = records.get("disk", ()), records.get("return", ())
    begun = [each for each in records.get("many", ()) if each["chat"] > 1]
    return [
        *compare("disk", "chats with one system prompt", "bytes", by_program(disk, lambda each: each["bytes"])),
        *compare("many", "first token of a new one", "s", by_program(begun, lambda each: each["first"])),
        *compare("many", "back in the first one", "s", by_program(back, lambda each: each["first"])),
    ]


def _drafts(records: Sequence[Record]) -> list[Figure]:
    """What drafts gain in each program, as a factor on its own plain speed; of these factors the ratio."""
    found: list[Figure] = []
    for task in dict.fromkeys(each["task"] for each in records):
        plain = {
            (each["program"], each["round"]): each["decode"]
            for each in records
            if each["task"] == task and each["mode"] == "off"
        }
        gains: dict[str, list[float]] = {}
        for each in records:
            if each["task"] == task and each["mode"] != "off":
                name = KVCHAT if each["program"] == KVCHAT else f"{each['program']}, {each['mode']}"
                gains.setdefault(name, []).append(each["decode"] / plain[each["program"], each["round"]])
        found += compare("drafts", task, "times", gains, more_is_better=True)
    return found

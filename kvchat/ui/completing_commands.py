"""What a slash command that is being typed may become: its name, its argument. Pure; must not carry anything out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kvchat.ui.fuzzy import rank
from kvchat.ui.overlay import Choice
from kvchat.ui.slash import COMMANDS

MOST = 50


@dataclass(frozen=True, slots=True)
class Offer:
    """Choices for the characters `start` to `end` of a line. `marked` is the one that Enter takes, None when Enter is
    for what stands there as it is. `is_file`: the choices are files; `waits`: which ones is not known yet."""

    title: str
    start: int
    end: int
    choices: tuple[Choice, ...]
    marked: int | None
    is_file: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """What a command takes. `known` gives the names and what is to be said of them; with `closed` it takes nothing
    else, and `words` of it at most."""

    known: Callable[[], Sequence[tuple[str, str]]]
    closed: bool = True
    words: int = 1


def command_offer(line: str, column: int, values: Mapping[str, Values]) -> Offer | None:
    """What can stand where the cursor is; None where nothing is known."""
    if not line.startswith("/") or line.startswith("//") or column < 1:
        return None
    end = _end_of_word(line, 0)
    if column <= end:
        return _names(line[1:column], line[:end], end)
    taken = values.get(line[:end])
    return _arguments(line, column, end, taken) if taken is not None else None


def _names(query: str, word: str, end: int) -> Offer | None:
    names = [name[1:] for name in COMMANDS]
    choices = []
    for match in rank(query, names, MOST):
        name = f"/{names[match.index]}"
        argument, meaning = COMMANDS[name]
        shown = f"{name} {argument}".rstrip()
        marks = tuple(mark + 1 for mark in match.marks)
        choices.append(Choice(shown, f"{name} " if argument else name, meaning, marks=marks))
    return Offer("commands", 0, end, tuple(choices), None if word in COMMANDS else 0) if choices else None


def _arguments(line: str, column: int, name_end: int, values: Values) -> Offer | None:
    """One word of several, or all that stands behind the command: a name may have spaces in it."""
    start = name_end + 1
    if values.words > 1:
        start = line.rfind(" ", 0, column) + 1
        if len(line[name_end:start].split()) >= values.words:
            return None
    end = _end_of_word(line, column) if values.words > 1 else len(line)
    known = values.known()
    query, word = line[start:column], line[start:end]
    names = [name for name, _ in known]
    matches = rank(query, names, MOST)
    choices = tuple(Choice(names[m.index], names[m.index], known[m.index][1], marks=m.marks) for m in matches)
    if not choices or (len(choices) == 1 and word == choices[0].put):
        return None
    taken = values.closed and bool(query) and word not in names
    return Offer(line[:name_end], start, end, choices, 0 if taken else None)


def moved(offer: Offer, step: int) -> Offer:
    """The mark `step` places further on; round the end to the beginning."""
    count = len(offer.choices)
    if not count:
        return offer
    if offer.marked is None:
        return replace(offer, marked=0 if step > 0 else count - 1)
    return replace(offer, marked=(offer.marked + step) % count)


def _end_of_word(line: str, start: int) -> int:
    end = line.find(" ", start)
    return len(line) if end < 0 else end

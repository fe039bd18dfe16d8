"""How the value of one setting is read, and what a setting is.

Owns the common readers and what they say of a bad value; must not know which settings there are (config_options), or
where a value came from.

Every reader takes what TOML gives (typed) or a text (environment, flags) and returns the value, or raises `BadValue`
with a sentence that goes on after the name of the setting.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvchat.clean import encodable

LARGEST_COUNT = 2**31 - 1
_YES = ("yes", "true", "on", "1")


class BadValue(Exception):
    """`problem` completes "SETTING: ..."; `hint` says what would do."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `key` is its name in config.toml; KVCHAT_ and the key in capitals is its variable. `flag` is what a
    person writes on the command line, `llama` llama.cpp's variable for the same; either is "" where there is none."""

    key: str
    read: Callable[[object], object]
    flag: str
    llama: str = ""

    @property
    def variable(self) -> str:
        return f"KVCHAT_{self.key.upper()}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def shown(value: object) -> str:
    """A value that somebody typed, fit for an error message: quoted, without control characters, not endless."""
    words = repr(value)
    return words if len(words) <= 80 else words[:77] + "..."


def plain_text(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue(f"{shown(value)} is not a text")
    return encodable(value)


def nonempty_text(value: object) -> str:
    said = plain_text(value)
    if not said.strip():
        raise BadValue("is empty")
    return said


def integer(value: object, least: int, most: int, hint: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,12}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{shown(value)} is not a whole number", hint)
    if not least <= value <= most:
        raise BadValue(f"{value} is not between {least} and {most}", hint)
    return value


def number(value: object, least: float, most: float, hint: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise BadValue(f"{shown(value)} is not a number", hint) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{shown(value)} is not a number", hint)
    if not math.isfinite(value) or not least <= value <= most:
        raise BadValue(f"{value} is not between {least:g} and {most:g}", hint)
    return float(value)


def choice(value: object, known: tuple[str, ...], what: str) -> str:
    if isinstance(value, str) and value.strip().lower() in known:
        return value.strip().lower()
    guess = nearest(value, known) if isinstance(value, str) else None
    hint = (f"did you mean {guess}? " if guess else "") + f"there are: {', '.join(known)}"
    raise BadValue(f"{shown(value)} is not {what}", hint)


def yes_or_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return choice(value, ("yes", "no", "true", "false", "on", "off", "1", "0"), "yes or no") in _YES

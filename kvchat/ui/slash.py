"""Slash commands as values. Pure; must not carry anything out."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

COMMANDS = {
    "/new": "new chat",
    "/continue": "go on with an answer that was stopped or interrupted",
    "/help": "commands and keys",
    "/quit": "leave kvchat",
}


@dataclass(frozen=True, slots=True)
class Say:
    """Not a command: to be sent."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, with what stands after it."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Begins like a command and is none; `nearest` is the one that was probably meant, or ""."""

    name: str
    nearest: str


def read(text: str) -> Say | Command | Unknown:
    """What the person meant. Two slashes send a text that begins with one."""
    if text.startswith("//"):
        return Say(text[1:])
    if not text.startswith("/"):
        return Say(text)
    name, *rest = text.split(maxsplit=1)
    if name in COMMANDS:
        return Command(name, "".join(rest).strip())
    nearest = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    return Unknown(name, nearest[0] if nearest else "")

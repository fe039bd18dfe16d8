"""Slash commands as values. Pure; must not carry anything out."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

COMMANDS = {
    "/model": ("[name]", "choose the model, and how its cache is built"),
    "/cache": ("[K] [V]", "cache types: f16, bf16, q8_0, q4_0"),
    "/context": ("[tokens]", "size of the context"),
    "/threads": ("[n]", "threads that compute; 0 chooses"),
    "/new": ("[system prompt]", "new chat"),
    "/rename": ("[title]", "another title for this chat"),
    "/delete": ("", "put this chat into the trash"),
    "/undo": ("", "take back the last deletion"),
    "/retry": ("", "another answer, as a branch"),
    "/edit": ("", "edit your last message; what you send becomes a branch"),
    "/continue": ("", "go on with an answer that was stopped or interrupted"),
    "/system": ("[text]", "show or set the system prompt of this chat; - for none"),
    "/temp": ("[0.7]", "show or set the temperature of this chat"),
    "/seed": ("[n]", "show or set the seed of this chat; -1 draws one each time"),
    "/help": ("", "commands and keys"),
    "/quit": ("", "leave kvchat"),
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


def explain(text: str) -> str:
    """What a command that is being typed does, or which ones begin like it; "" for what is none."""
    if text.startswith("//"):
        return ""
    word = text.split(maxsplit=1)[0]
    if word in COMMANDS:
        argument, meaning = COMMANDS[word]
        return f"{word} {argument}: {meaning}".replace(" :", ":")
    if " " in text or "\n" in text:
        return ""
    return "  ".join(name for name in COMMANDS if name.startswith(word))


def lines() -> str:
    """All commands, one a line."""
    return "\n".join(" ".join((name, *filter(None, line))) for name, line in COMMANDS.items())

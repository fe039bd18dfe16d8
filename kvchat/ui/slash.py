"""Slash commands as values. Pure; must not carry anything out."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

COMMANDS = {
    "/model": ("[name]", "choose the model, and how its cache is built"),
    "/pull": ("[name | hf:owner/name | URL]", "fetch a model; without a name from the catalogue"),
    "/cache": ("[K] [V]", "cache types: f16, bf16, q8_0, q4_0"),
    "/context": ("[tokens]", "size of the context"),
    "/threads": ("[n]", "threads that compute; 0 chooses"),
    "/draft": ("[auto|ngram|model|off|NAME]", "what drafts ahead in this chat, or which model does"),
    "/kv": ("", "look at the KV cache: context, memory, disk, turns"),
    "/new": ("[system prompt]", "new chat"),
    "/incognito": ("", "new chat in memory alone: nothing of it is kept"),
    "/rename": ("[title]", "another title for this chat"),
    "/export": ("[md|json] [path]", "write this chat into a file"),
    "/delete": ("", "put this chat into the trash"),
    "/purge": ("[trash]", "remove this chat, or all in the trash, for good: words and KV"),
    "/undo": ("", "take back the last deletion, the last summary, or what left a full context last"),
    "/retry": ("", "another answer, as a branch"),
    "/alt": ("[N] [temperatures | seed SEEDS]", "several answers to your last message, side by side; keep one"),
    "/edit": ("", "edit your last message; what you send becomes a branch"),
    "/continue": ("", "go on with an answer that was stopped or interrupted"),
    "/system": ("[text]", "show or set the system prompt of this chat; - for none"),
    "/preset": ("[name | save name]", "a system prompt with a name: take one, or keep this chat's"),
    "/prefix": (
        "[name | pin NAME @file | compute NAME | drop NAME]",
        "beginnings that are computed once: a chat on one, or a new one from this chat",
    ),
    "/settings": ("[engine|turns|sampling|history|store]", "all of it in one screen"),
    "/history": ("[append|exact]", "keep the past as it was rendered, or render it anew each time"),
    "/overflow": ("[stop|shift|sinks|prune|summarize]", "what happens in this chat when the context is full"),
    "/summary": ("[show|drop]", "have the oldest messages summarized, or look at the summary and change it"),
    "/pin": ("", "keep your last message in the context whatever leaves it, or let it go again"),
    "/temp": ("[0.7]", "show or set the temperature of this chat"),
    "/seed": ("[n]", "show or set the seed of this chat; -1 draws one each time"),
    "/theme": ("[name]", "choose the colours, or show the themes"),
    "/follow": ("[bottom|start|off]", "where the view goes while an answer comes"),
    "/mouse": ("[on|off]", "the mouse for the app, or for the terminal to select text"),
    "/keys": ("", "where the file of your keys is; one is made where there is none"),
    "/help": ("[word]", "commands and keys"),
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
    nearest = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5) if name != "/" else []
    return Unknown(name, nearest[0] if nearest else "")


def explain(text: str) -> str:
    """What a command that is being typed does; "" for what is none, or not yet."""
    word = text.split(maxsplit=1)[0]
    if word not in COMMANDS:
        return ""
    argument, meaning = COMMANDS[word]
    return f"{word} {argument}: {meaning}".replace(" :", ":")

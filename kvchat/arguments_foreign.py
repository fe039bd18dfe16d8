"""Words of other programs that this one has not, or has for something else: what is meant here. Owns that; must not
parse.

llama.cpp, Ollama and their like are where a person comes from. What argparse would take for other words of ours is
refused here: `-sys TEXT` would be `-s ys`, `-hf NAME` a wrong `-h`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvchat.config_options import OPTIONS, nearest
from kvchat.errors import UsageError

_FETCH = "kvchat models pull fetches a model, -m MODEL then takes it"
_ASK = 'kvchat ask "..."'
_CONTEXT = "--ctx-size N is the context"
_LONGEST = "-n N is the longest answer"
_SERVER = "kvchat serves no other programs; --remote URL asks a server"
_TEXT = "kvchat reads and writes text alone"
_FLAGS = {
    "-hf": _FETCH, "-hfr": _FETCH, "--hf-repo": _FETCH, "-mu": _FETCH, "--model-url": _FETCH,
    "-p": _ASK, "--prompt": _ASK, "-f": f"{_ASK} < FILE", "--file": f"{_ASK} < FILE",
    "-sys": "-s TEXT is the system prompt", "-cnv": "a chat is the usual thing here, without a flag",
    "--ctx": _CONTEXT, "--n-ctx": _CONTEXT, "--num-ctx": _CONTEXT, "--context": _CONTEXT, "--contextsize": _CONTEXT,
    "--context-length": _CONTEXT, "--n-predict": _LONGEST, "--num-predict": _LONGEST, "--max-tokens": _LONGEST,
    "--gpu": "-ngl N is how many layers go there", "--gpulayers": "-ngl N is how many layers go there",
    "--quantkv": "-ctk TYPE -ctv TYPE are the types of the cache", "--verbose": "kvchat ask --json has all figures",
    "--format": "--json, without a value",
    "--host": _SERVER, "--port": _SERVER, "--api": _SERVER, "--serve": _SERVER,
    "-mm": _TEXT, "--mmproj": _TEXT, "--image": _TEXT,
}  # fmt: skip
_LISTS = "kvchat models ls, kvchat chats ls, kvchat kv ls"
_COMMANDS = {
    "run": 'kvchat -m MODEL is the app, kvchat ask -m MODEL "..." one question',
    "serve": _SERVER,
    "pull": "kvchat models pull",
    "ls": _LISTS,
    "list": _LISTS,
    "ps": "kvchat doctor says what is run with",
    "rm": "kvchat models rm, kvchat chats rm",
    "show": "kvchat models show, kvchat chats show, kvchat kv show",
    "search": "kvchat chats search",
    "import": "kvchat chats import",
    "export": "kvchat chats export",
    "help": "kvchat --help",
}
_OTHERS = ("--continue", "--chat", "--plain", "--json", "--resume", "--n", "--trash", "--version", "--help")
_KNOWN = (*(part for option in OPTIONS for part in option.flag.split("/") if part), *_OTHERS)
_LETTERS = re.compile(r"-[a-z][a-z-]+")
_BARE_NUMBER = re.compile(r"[0-9]{3,8}")  # what a context size looks like


def refuse_foreign(arguments: Sequence[str]) -> None:
    """UsageError for what would be taken for something else: `-c 4096` and `-s 42` are the context size and the seed in
    llama.cpp, and a flag of several letters behind one dash is the first of them with a value for argparse."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for word, following in zip(arguments[:end], [*arguments[1:end], ""], strict=False):
        number = following if word in {"-c", "-s"} else word[2:]
        if word.startswith("-c") and _BARE_NUMBER.fullmatch(number):
            raise UsageError(
                f"-c goes on with the last chat and takes no number, here {number}",
                f"did you mean --ctx-size {number}?",
            )
        if word.startswith("-s") and number.isascii() and number.isdigit():
            raise UsageError(
                f"-s is the system prompt, here only a number, {number}",
                f"did you mean --seed {number}? As a system prompt: --system {number}",
            )
        flag = word.split("=")[0]
        if _LETTERS.fullmatch(flag) and flag not in _KNOWN:
            raise no_flag("kvchat", flag)


def no_flag(name: str, word: str) -> UsageError:
    """For a flag that the command `name` does not have."""
    flag = word.partition("=")[0]
    if flag in _KNOWN:
        return UsageError(f"{flag} means nothing to {name}", f"{name} --help")
    guess = None if flag in _FLAGS else _nearest(flag)
    hint = f"did you mean {guess}?" if guess else _FLAGS.get(flag, f"{name} --help")
    return UsageError(f"{name} has no flag {word!r}", hint)


def _nearest(flag: str) -> str | None:
    """By the letters: dashes are alike in all of them. A long one is not taken for a short one."""
    long = flag.startswith("--")
    bare = {known.lstrip("-"): known for known in _KNOWN if known.startswith("--") or not long}
    guess = nearest(flag.lstrip("-"), bare)
    return None if guess is None else bare[guess]


def foreign_command(word: str) -> str | None:
    """What is here in place of a command of another program."""
    return _COMMANDS.get(word)


def stray_flag(words: Sequence[str], value: str) -> str | None:
    """The flag that nobody knows, and whose `value` was taken for a command."""
    before = words[: words.index(value)] if value in words else ()
    unknown = (word for word in before if word.startswith("-") and word.split("=")[0] not in _KNOWN)
    return next((word for word in unknown if word.startswith("--") or word[:2] not in _KNOWN), None)

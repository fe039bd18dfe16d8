"""`kvchat completions SHELL`: the words of the command line for bash, zsh and fish, made from the parsers.

Owns which words and files are offered for a value. Must not know what a command does, or read settings.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TextIO

import shtab

from kvchat.backend.choices import CACHE_TYPES, DISK_TYPES
from kvchat.bench.wanted import PARTS
from kvchat.config_values import shown
from kvchat.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_WORDS = re.compile(r"[a-z]+(?:\|[a-z]+)+")  # on|off|auto
_LETTERS = re.compile(r"^(complete .*?)-s ([a-z]{2,} )", re.MULTILINE)
_TRANSCODED = ("to", "to_k", "to_v")
_TYPES = {"kv_type_disk": DISK_TYPES} | dict.fromkeys(_TRANSCODED, (*CACHE_TYPES, "q5_1", "q5_0", "q4_1", "iq4_nl"))
_FILES = {"MODEL": shtab.FILE, "DRAFT": shtab.FILE, "FILE": shtab.FILE, "FILE[:SCALE]": shtab.FILE, "FOLDER": shtab.DIR}


def run_completions(parser: argparse.ArgumentParser, shell: str, *, out: TextIO) -> int:
    """Print the script that `shell` is to read. `parser` has all commands; it is changed and good for nothing else.
    UsageError for another shell."""
    if shell not in SHELLS:
        raise UsageError(f"there are no completions for {shown(shell)}", f"there are: {', '.join(SHELLS)}")
    for action in _values(parser):
        _offer(action)
    script = shtab.complete(parser, shell=shell).rstrip("\n")
    # -ctk and its like: fish knows -s for one letter alone, and reads the line otherwise
    print(_LETTERS.sub(r"\1-o \2", script) if shell == "fish" else script, file=out)
    return 0


def _values(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from _values(child)
        elif action.nargs != 0:
            yield action


def _offer(action: argparse.Action) -> None:
    said = action.metavar if isinstance(action.metavar, str) else ""
    if _WORDS.fullmatch(said):
        action.choices = said.split("|")
    elif said == "TYPE":
        action.choices = _TYPES.get(action.dest, CACHE_TYPES)
    elif said == "SHELL":
        action.choices = SHELLS
    elif said == "PART":
        action.choices = (*PARTS, "show", "compare")
    elif said in _FILES:
        action.complete = _FILES[said]  # type: ignore[attr-defined]  # what shtab looks for

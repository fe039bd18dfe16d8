"""Where in a reply the model thinks and where it answers. Pure functions over text; must not know rows or widgets.

Only the beginning of a reply is looked at, so that an answer about such tags stays an answer. Some templates open the
block themselves: then the reply holds the closing tag only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# What opens the block, and what ends it. The tags of gpt-oss and Gemma are tokens that llama.cpp writes out.
_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)
_ANALYSIS = "<|channel|>analysis<|message|>"
_FINAL = "<|channel|>final<|message|>"
_TO_FINAL = re.compile(r"(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>")
_OPENING = (*(opening for opening, _ in _TAGS), _ANALYSIS, _FINAL)
_CLOSING = r"(?:</(?:seed:|mm:)?think(?:ing)?>|\[/THINK\])"
_UNOPENED = re.compile(rf"\n[ \t]*{_CLOSING}|{_CLOSING}[ \t]*\n")
_LONGEST_UNOPENED = 32  # characters that a match of it may begin before its end
_LETTERS_PER_WORD = 12


class Split(NamedTuple):
    """Characters `[start, end)` of a reply are its reasoning, the answer begins at `answer`. Not `ended`: it grows."""

    start: int
    end: int
    answer: int
    ended: bool


WITHOUT = Split(0, 0, 0, True)


def split(text: str) -> Split:
    """The reasoning at the beginning of a reply."""
    begin = len(text) - len(text.lstrip())
    if text.startswith(_FINAL, begin):
        return Split(begin, begin, begin + len(_FINAL), True)
    if text.startswith(_ANALYSIS, begin):
        start = begin + len(_ANALYSIS)
        found = _TO_FINAL.search(text, start)
        return Split(start, found.start(), found.end(), True) if found else _open(text, start)
    for opening, closing in _TAGS:
        if text.startswith(opening, begin):
            start = begin + len(opening)
            end = text.find(closing, start)
            return Split(start, end, end + len(closing), True) if end >= 0 else _open(text, start)
    return WITHOUT


def split_late(text: str, since: int = 0) -> Split:
    """The reasoning of a reply that opens no block, but closes one behind `since`."""
    found = _UNOPENED.search(text, max(0, since - _LONGEST_UNOPENED))
    if found is None or any(opening in text[: found.start()] for opening, _ in _TAGS):
        return WITHOUT
    return Split(0, found.start(), found.end(), True)


def undecided(text: str) -> bool:
    """Whether the beginning of a reply could yet become an opening tag."""
    begun = text.lstrip()
    return any(opening.startswith(begun) for opening in _OPENING) and begun not in _OPENING


def _open(text: str, start: int) -> Split:
    return Split(start, len(text), len(text), False)


def amount(text: str) -> str:
    """How much it is, in words; in characters where a script does not write words apart."""
    words = len(text.split())
    letters = len(text)
    if letters > _LETTERS_PER_WORD * max(1, words):
        return f"{letters:,} characters"
    return f"{words:,} word{'s' if words != 1 else ''}"

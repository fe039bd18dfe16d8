"""Where in a reply the model thinks and where it answers. Pure functions over text; must not know tokens or rows.

Only the beginning of a reply is looked at, so that an answer about such tags stays an answer. Some templates open the
block themselves: then the reply holds the closing tag only. The engine counts by these rules what the app folds.
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
_BLOCKS = {opening: re.compile(re.escape(closing)) for opening, closing in _TAGS}
_BLOCKS["<|channel|>analysis<|message|>"] = re.compile(
    r"(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>"
)
_BLOCKS["<|channel|>final<|message|>"] = re.compile("")  # there is no reasoning: it ends where it begins
_CLOSING = r"(?:</(?:seed:|mm:)?think(?:ing)?>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>)"
_CLOSED = re.compile(_CLOSING)
_UNOPENED = re.compile(rf"\n[ \t]*{_CLOSING}|{_CLOSING}[ \t]*\n")
LONGEST_TAG = 64  # characters; what ends a block may begin so far before its end


class Opening(NamedTuple):
    """A block of reasoning begins at `start`, and ends before what `closing` finds from there on."""

    start: int
    closing: re.Pattern[str]


class Split(NamedTuple):
    """Characters `[start, end)` of a reply are its reasoning, the answer begins at `answer`. Not `ended`: it grows."""

    start: int
    end: int
    answer: int
    ended: bool


WITHOUT = Split(0, 0, 0, True)


def opening(text: str) -> Opening | None:
    """What a reply begins with, if it is a block of reasoning."""
    begin = len(text) - len(text.lstrip())
    found = next((tag for tag in _BLOCKS if text.startswith(tag, begin)), None)
    return None if found is None else Opening(begin + len(found), _BLOCKS[found])


def left_open(prompt: str) -> re.Pattern[str] | None:
    """What ends the block that a template opens at the end of a prompt; None: it opens none."""
    end = prompt.rstrip()
    return next((_BLOCKS[tag] for tag, _ in _TAGS if end.endswith(tag)), None)


def split(text: str, *, opened: bool = False) -> Split:
    """The reasoning at the beginning of a reply. `opened`: it is known to begin inside a block."""
    block = opening(text)
    if block is not None:
        return _until(text, block)
    return _until(text, Opening(0, _CLOSED)) if opened else WITHOUT


def split_whole(text: str, *, counted: bool) -> Split:
    """The reasoning of a reply, whoever opened its block. `counted`: the engine counted tokens of it, so that a reply
    in which no tag stands began inside a block."""
    found = split(text)
    if found == WITHOUT:
        found = split_late(text)
    return split(text, opened=True) if found == WITHOUT and counted else found


def _until(text: str, block: Opening) -> Split:
    found = block.closing.search(text, block.start)
    if found is None:
        return Split(block.start, len(text), len(text), False)
    return Split(block.start, found.start(), found.end(), True)


def split_late(text: str, since: int = 0) -> Split:
    """The reasoning of a reply that opens no block, but closes one behind `since`."""
    found = _UNOPENED.search(text, max(0, since - LONGEST_TAG))
    if found is None or mentions(text[: found.start()]):
        return WITHOUT
    return Split(0, found.start(), found.end(), True)


def mentions(text: str) -> bool:
    """Whether a tag that opens a block stands somewhere in the text: one that ends it may then be meant for that."""
    return any(tag in text for tag, _ in _TAGS)


def undecided(text: str) -> bool:
    """Whether the beginning of a reply could yet become an opening tag."""
    begun = text.lstrip()
    return any(tag.startswith(begun) for tag in _BLOCKS) and begun not in _BLOCKS

"""JSON values out of a long text, one after the other. Owns how far is read, and where to go on after a broken one.

The text is one value, several, one a line, or one array, whose elements are then the values: all formats of
conversations are one of these. No more than one value and a piece is in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from kvchat.errors import FormatError

LONGEST_VALUE = 32 << 20  # characters; what they become takes up to twenty times as many bytes
_PIECE = 1 << 20  # characters
_NEAR = 16  # characters from the end of what was read: an error there may be only that
_SPACE = re.compile(r"[\s,\x1e]*")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_STRAY = re.compile(r"[,\n\]{]")
_NEXT_LINE = re.compile(r"\n(?=[{\[])")


@dataclass(frozen=True, slots=True)
class BrokenJson:
    """A value that cannot be read, and why."""

    problem: str


def json_values(stream: TextIO) -> Iterator[object]:
    """The values in a text; a BrokenJson in place of each that is none. FormatError for what does not even begin so,
    and where a value is too long to be held."""
    return _Values(stream).read()


class _Values:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._ended = False

    def read(self) -> Iterator[object]:
        first = self._next()
        if first not in {"[", "{"}:
            raise FormatError("it is no JSON" if first else "it is empty")
        in_array = first == "["
        if in_array:
            self._at += 1
        while (character := self._next()) != "":
            if in_array and character == "]":
                in_array = False  # what comes behind it stands for itself
                self._at += 1
            else:
                yield self._value(in_array)

    def _next(self) -> str:
        """The first character of the next value, where it is read from; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self, in_array: bool) -> object:
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _NEAR
                if cut_off and self._more():
                    continue
                problem = "the file breaks off in it" if cut_off else f"it is no JSON: {error.msg}"
            except (RecursionError, ValueError) as error:
                problem = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is no JSON: {error}"
            else:
                return value
            self._skip(in_array)
            return BrokenJson(problem)

    def _skip(self, in_array: bool) -> None:
        """Goes behind a broken value: its brackets are closed, or, outside an array, another one begins a line."""
        while (end := self._end(in_array)) is None and self._more():
            pass
        self._at = len(self._text) if end is None else max(end, self._at + 1)

    def _end(self, in_array: bool) -> int | None:
        if self._text[self._at] not in "[{":
            stray = _STRAY.search(self._text, self._at)
            return stray.start() if stray else None
        line = None if in_array else _NEXT_LINE.search(self._text, self._at)
        depth = 0
        for token in _TOKEN.finditer(self._text, self._at, line.start() if line else len(self._text)):
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
            if depth <= 0 and token[0] in "}]":
                return token.start() if depth < 0 else token.end()
        return line.start() if line else None

    def _more(self) -> bool:
        """Reads on, as much again as there is: a value is begun anew only so often as it doubles."""
        if self._ended:
            return False
        self._text, self._at = self._text[self._at :], 0
        if len(self._text) > LONGEST_VALUE:
            raise FormatError(f"a value in it has more than {LONGEST_VALUE >> 20} million characters")
        piece = self._stream.read(max(_PIECE, len(self._text)))
        self._text += piece
        self._ended = not piece
        return bool(piece)

"""Lines of code and their colours. Owns how much of a text is highlighted at a time; must not know rows or widths.

Code is highlighted in chunks of some hundred lines, each for itself, when one of its lines is drawn. Where a chunk ends
depends only on the lines before, so that code that grows is cut like code that is there from the start. The last chunk
of code that grows is highlighted piece by piece, from a line that looks like a beginning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvchat.ui.code_colors import highlighted
from kvchat.ui.markdown_rows import Run
from kvchat.ui.wrap import TAB

_CHUNK = 100  # lines after which a chunk ends where the code seems to begin anew
_LONGEST_CHUNK = 160
_BACK = 24  # lines that are looked at again for the colours of the next
_LONGEST_LINE = 1_000  # characters; longer ones stay plain
_PIECES = re.compile(r"\t|[^\t]+")


class CodeLines:
    """The text of each line, where in the source it begins, and in which chunk it lies."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._texts: list[str] = []
        self._starts: list[int] = []
        self._chunks = [0]  # first line of each
        self._chunk_of: list[int] = []
        self._done: dict[int, list[list[tuple[int, int, str]]]] = {}  # spans of the lines of each chunk
        self._open: list[list[tuple[int, int, str]]] = []  # spans of the first lines of a last chunk that still grows
        self._closed = False

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str, start: int) -> None:
        """One more line, complete."""
        number = len(self._texts)
        length = number - self._chunks[-1]
        anew = bool(text) and text[0] not in " \t)]}" and number > 0 and not self._texts[-1].strip()
        if length >= _LONGEST_CHUNK or (length >= _CHUNK and anew):
            self._chunks.append(number)
            self._open = []
        self._texts.append(text)
        self._starts.append(start)
        self._chunk_of.append(len(self._chunks) - 1)

    def close(self) -> None:
        """No more lines come."""
        self._closed = True

    def drawn(self, number: int) -> str:
        """A line with spaces for its tabs."""
        text = self._texts[number]
        return text if "\t" not in text else "".join(run.text for run in self._spread(number, [(0, len(text), "text")]))

    def runs(self, number: int) -> list[Run]:
        """A line with its colours and the source of each piece."""
        return self._spread(number, self._spans(number))

    def _spans(self, number: int) -> Sequence[tuple[int, int, str]]:
        if not self._language or len(self._texts[number]) > _LONGEST_LINE:
            return [(0, len(self._texts[number]), "text")]
        chunk = self._chunk_of[number]
        first = self._chunks[chunk]
        if chunk == len(self._chunks) - 1 and not self._closed:
            return self._growing(number, first)
        if chunk not in self._done:
            last = self._chunks[chunk + 1] if chunk + 1 < len(self._chunks) else len(self._texts)
            self._done[chunk] = highlighted(self._language, self._texts[first:last])
        return self._done[chunk][number - first]

    def _growing(self, number: int, first: int) -> Sequence[tuple[int, int, str]]:
        """Colours in a chunk that is not complete. What was once drawn keeps them until it is."""
        known = first + len(self._open)
        if number >= known:
            begin = self._beginning(known, first)
            self._open += highlighted(self._language, self._texts[begin:], passing=True)[known - begin :]
        return self._open[number - first]

    def _beginning(self, number: int, first: int) -> int:
        """A line before this one from which code can be read without what stands before it."""
        least = max(first, number - _BACK)
        for line in range(number - 1, least, -1):
            text = self._texts[line]
            if text and (text[0].isalpha() or text[0] in "#@_$"):
                return line
        return least

    def _spread(self, number: int, spans: Sequence[tuple[int, int, str]]) -> list[Run]:
        """Runs of a line; each tab becomes one of spaces."""
        text, base = self._texts[number], self._starts[number]
        if "\t" not in text:
            return [Run(text[start:end], ink, base + start, base + end) for start, end, ink in spans]
        runs: list[Run] = []
        column = 0
        for start, end, ink in spans:
            for found in _PIECES.finditer(text, start, end):
                piece = " " * (TAB - column % TAB) if found[0] == "\t" else found[0]
                runs.append(Run(piece, ink, base + found.start(), base + found.end()))
                column += len(piece)
        return runs

"""The reasoning of a reply as rows: one line that says how much it was, its last lines while it is written, or all of
it. Owns what that looks like and how long it is being written; must not know where it stands.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from kvchat.reasoning import Split
from kvchat.ui.markdown_rows import PlainRows, Run, Runs

if TYPE_CHECKING:
    from kvchat.ui.entry import ThoughtCost

_INDENT = Run("  ", "meta")
_SHORTEST = 0.1  # seconds that are worth telling
_LAST = 3  # rows that are shown of what has no end
_LETTERS_PER_WORD = 12


class ReasoningRows:
    """Rows of `[start, end)` of a text that grows, behind a heading."""

    def __init__(self, width: int, start: int, *, timed: bool) -> None:
        """`timed`: it begins now, and is not read from the disk."""
        self.unfolded = False
        self.split = Split(start, start, start, False)
        self.blank = False  # it ended before it began, and is not shown
        self._said = ""
        self._told_seconds = 0.0
        self._live = False
        self._inner = max(1, width - len(_INDENT.text))
        self._rows = PlainRows(self._inner, start, "meta")
        self._width = width
        self._began = monotonic() if timed else None
        self._seconds = 0.0

    def grow(self, text: str, split: Split, cost: ThoughtCost, *, live: bool) -> None:
        """More of the text. `cost`: what the engine says of it; without that, its words are counted."""
        if self._began is not None and not self.split.ended:
            self._seconds = monotonic() - self._began
        if split.ended:
            self.blank = not text[split.start : split.end].strip()
            self._rows = PlainRows(self._inner, split.start, "meta")
        self.split, self._live, self._told_seconds = split, live, cost.seconds
        self._said = tokens(cost.tokens) if cost.tokens else self._words(text)
        self._rows.grow(text[: split.end])

    def _words(self, text: str) -> str:
        return "" if self._grows else amount(text[self.split.start : self.split.end])

    def resized(self, width: int) -> ReasoningRows:
        """The same at another width; it has yet to get its text."""
        other = ReasoningRows(width, self.split.start, timed=False)
        other.unfolded, other._began, other._seconds = self.unfolded, self._began, self._seconds
        other.split = self.split  # what has ended takes no more time
        return other

    def __len__(self) -> int:
        return 0 if self.blank else 1 + self._shown

    @property
    def _grows(self) -> bool:
        return self._live and not self.split.ended

    @property
    def _shown(self) -> int:
        if self.unfolded:
            return len(self._rows)
        return 0 if self.split.ended else min(_LAST, len(self._rows))

    def row(self, number: int) -> Runs:
        """Row `number`."""
        if number == 0:
            return (Run(self._heading()[: self._width], "meta"),)
        first = len(self._rows) - self._shown
        return (_INDENT, *self._rows.row(first + number - 1))

    def _heading(self) -> str:
        seconds = self._told_seconds or self._seconds
        time = f"{seconds:.1f} s" if seconds >= _SHORTEST else ""
        if self._grows:
            return " ".join(filter(None, ("▾ thinking…", " · ".join(filter(None, (time, self._said))))))
        mark = "▾" if self.unfolded or not self.split.ended else "▸"
        done = f"thought for {time}" if time else "thought"
        return " · ".join(filter(None, (f"{mark} {done}", self._said, "" if self.split.ended else "not to its end")))


def tokens(count: int) -> str:
    """So many tokens, in words."""
    return f"{count:,} token{'' if count == 1 else 's'}"


def amount(text: str) -> str:
    """How much a text is, in words; in characters where a script does not write words apart."""
    words = len(text.split())
    letters = len(text)
    if letters > _LETTERS_PER_WORD * max(1, words):
        return f"{letters:,} characters"
    return f"{words:,} word{'' if words == 1 else 's'}"

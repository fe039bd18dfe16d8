"""The reasoning of a reply as rows: one line that says how much it was, its last lines while it is written, or all of
it. Owns what that looks like and how long it took; must not know where it stands.
"""

from __future__ import annotations

from time import monotonic

from kvchat.ui.markdown_rows import PlainRows, Run, Runs
from kvchat.ui.reasoning import Split, amount

_INDENT = Run("  ", "meta")
_SHORTEST = 0.1  # seconds that are worth telling
_LAST = 3  # rows that are shown of what is being thought


class ReasoningRows:
    """Rows of `[start, end)` of a text that grows, behind a heading."""

    def __init__(self, width: int, start: int, *, timed: bool) -> None:
        """`timed`: it begins now, and is not read from the disk."""
        self.unfolded = False
        self.split = Split(start, start, start, False)
        self.blank = False  # it ended before it began, and is not shown
        self._said = ""
        self._inner = max(1, width - len(_INDENT.text))
        self._rows = PlainRows(self._inner, start, "meta")
        self._width = width
        self._began = monotonic() if timed else None
        self._seconds: float | None = None

    def grow(self, text: str, split: Split) -> None:
        """More of the text."""
        if split.ended and self._began is not None and self._seconds is None:
            self._seconds = monotonic() - self._began
        if split.ended:
            self._end(text[split.start : split.end])
        self.split = split
        self._rows.grow(text[: split.end])

    def _end(self, thoughts: str) -> None:
        """All of it is known."""
        self.blank = not thoughts.strip()
        self._said = amount(thoughts)
        self._rows = PlainRows(self._inner, self.split.start, "meta")

    def resized(self, width: int) -> ReasoningRows:
        """The same at another width; it has yet to get its text."""
        other = ReasoningRows(width, self.split.start, timed=False)
        other.unfolded, other._began, other._seconds = self.unfolded, self._began, self._seconds
        return other

    def __len__(self) -> int:
        return 0 if self.blank else 1 + self._shown

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
        if not self.split.ended:
            return "▾ thinking…"
        time = f" · {self._seconds:.1f} s" if self._seconds and self._seconds >= _SHORTEST else ""
        return f"{'▾' if self.unfolded else '▸'} thought · {self._said}{time}"

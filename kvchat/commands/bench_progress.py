"""How far a benchmark is, on stderr: a bar in place on a terminal, a line for each part elsewhere. Owns that line."""

from __future__ import annotations

import shutil
from typing import TextIO

from kvchat.clean import clean_line

_BAR = 20  # cells
_FULL, _EMPTY = "█", "░"


class Progress:
    """One line, until `end` takes it away."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._terminal = err.isatty()
        self._shown = ""
        self._part = ""

    def show(self, part: str, done: int, total: int, what: str) -> None:
        """So many steps of a part are done, of so many, and what is done now."""
        if not self._terminal:
            if part != self._part:
                print(f"measuring: {part}", file=self._err, flush=True)
            self._part = part
            return
        share = min(done / max(1, total), 1.0)
        bar = _FULL * int(share * _BAR)
        line = clean_line(f"{part} {bar.ljust(_BAR, _EMPTY)} {share:.0%} {what}")
        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        if line != self._shown:
            print(f"\r{line.ljust(len(self._shown))}", end="", file=self._err, flush=True)
            self._shown = line

    def end(self) -> None:
        """Take the line away."""
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=self._err, flush=True)
            self._shown = ""

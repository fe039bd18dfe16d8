"""Long pastes as short labels in the draft. Owns the texts behind the labels; must not know widgets.

A chip stands in one line of the draft and is deleted as a unit; its text goes out in its place when the draft is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAST_LINES = 20
LEAST_CHARACTERS = 2_000
_LABEL = re.compile(r"\[Pasted #\d+ · [\d,]+ (?:lines|characters)\]")


def is_long(text: str) -> bool:
    """Whether a pasted text becomes a chip."""
    return len(text) >= LEAST_CHARACTERS or text.count("\n") + 1 >= LEAST_LINES


class Chips:
    """The chips of one draft."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def clear(self) -> None:
        """Another draft begins."""
        self._texts.clear()

    def fold(self, text: str) -> str:
        """The label that stands for `text` from now on."""
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines >= LEAST_LINES else f"{len(text):,} characters"
        label = f"[Pasted #{len(self._texts) + 1} · {size}]"
        self._texts[label] = text
        return label

    def unfold(self, draft: str) -> str:
        """The draft with the texts in place of their labels."""
        return _LABEL.sub(lambda found: self._texts.get(found[0], found[0]), draft) if self._texts else draft

    def text(self, label: str) -> str | None:
        """What a label stands for."""
        return self._texts.get(label)

    def before(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that ends at `column`."""
        return next((span for span in self._spans(line) if span[1] == column), None)

    def around(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that `column` lies within, not at its edge."""
        return next((span for span in self._spans(line) if span[0] < column < span[1]), None)

    def _spans(self, line: str) -> Iterator[tuple[int, int]]:
        if self._texts and "[" in line:
            yield from (found.span() for found in _LABEL.finditer(line) if found[0] in self._texts)

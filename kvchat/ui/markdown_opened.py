"""The last block of a text that grows: how the rest of it is parsed where it stands alone. Values only.

A prefix before the rest makes it mean the same as behind what is settled.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvchat.ui.markdown_parse import Group, Parsed
from kvchat.ui.markdown_rows import AnyRow


class Step(NamedTuple):
    """Rows that will not change, where the text behind them begins, how it is parsed, and its rows."""

    rows: list[AnyRow]
    start: int
    opened: Opened
    tail: list[AnyRow]


class Opened(Protocol):
    """How the last block is parsed from where it is not settled. `continues`: its beginning is settled."""

    @property
    def prefix(self) -> str:
        """What stands before the rest of the block when it is parsed."""
        ...

    @property
    def continues(self) -> bool:
        """Whether the beginning of the block is settled."""
        ...

    def rows(self, parsed: Parsed, group: Group, width: int) -> list[AnyRow]:
        """All rows of the rest."""
        ...

    def step(self, parsed: Parsed, group: Group, width: int) -> Step:
        """What can be settled of the rest. With the same `opened` it is nothing."""
        ...

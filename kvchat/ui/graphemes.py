"""What a person takes for one character. Pure functions over strings.

Only the surroundings of the position are looked at, so that a key costs the same in a line of any length.
"""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 64  # code points; real graphemes have at most a dozen


def _graphemes(text: str) -> Iterator[str]:
    from wcwidth import iter_graphemes  # its tables take a while to load, and the first frame does not need them

    return iter_graphemes(text)


def boundary_before(text: str, column: int) -> int:
    """Where the grapheme that ends at or holds `column` begins; 0 at the start."""
    start = position = max(0, column - LONGEST)
    for grapheme in _graphemes(text[position : column + LONGEST]):
        start = position
        position += len(grapheme)
        if position >= column:
            break
    return start


def boundary_after(text: str, column: int) -> int:
    """Where the grapheme that begins at `column` ends; the end of the text at its end."""
    graphemes = _graphemes(text[column : column + LONGEST])
    return column + len(next(graphemes, ""))

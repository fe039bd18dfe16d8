"""Where what is looked for stands in a line, and the piece of the line around it. Pure; must not know widgets.

Upper and lower case and accents count for nothing, as in the index. A word of letters is marked where a word begins; a
word of a script without spaces, or of symbols, anywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

Span = tuple[int, int]
_MOST = 100  # characters of a word, marks of a line


def marks(text: str, query: str) -> list[Span]:
    """The places of the words of `query` in `text`, in their order, none within another."""
    folded, places = _folded(text)
    found: set[Span] = set()
    for word in query.split():
        wanted, _ = _folded(word[:_MOST])
        at = folded.find(wanted) if wanted else -1
        while at >= 0 and len(found) < _MOST:
            if not (_joins(wanted[0]) and at and _joins(folded[at - 1])):
                found.add((places[at], _end(text, places[at + len(wanted) - 1] + 1)))
            at = folded.find(wanted, at + len(wanted))
    return _merged(sorted(found))


def excerpt(text: str, query: str, cells: int) -> str:
    """At most `cells` cells of `text`, such that the first mark is among them."""
    if cell_len(text) <= cells:
        return text
    first = next(iter(marks(text, query)), (0, 0))
    start = first[0]
    room = max(0, (cells - cell_len(text[slice(*first)])) // 3)  # of what is left, a third is for what comes before
    while start and cell_len(text[start - 1 : first[0]]) <= room:
        start -= 1
    if start and not text[start - 1].isspace() and (space := text.find(" ", start, first[0])) >= 0:
        start = space  # not with half a word
    piece = ("…" if start else "") + text[start:].lstrip()
    return piece if cell_len(piece) <= cells else set_cell_size(piece, max(0, cells - 1)).rstrip() + "…"


def _folded(text: str) -> tuple[str, list[int]]:
    """The text without case and accents, and where in it each character comes from."""
    folded: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for base in unicodedata.normalize("NFD", character.casefold()):
            if not unicodedata.combining(base):
                folded.append(base)
                places.append(place)
    return "".join(folded), places


def _end(text: str, at: int) -> int:
    """Behind the accents that stand there."""
    while at < len(text) and unicodedata.combining(text[at]):
        at += 1
    return at


def _joins(character: str) -> bool:
    """Whether the word goes on with this character: letters and digits up to where scripts without spaces begin."""
    return character.isalnum() and character < "\u0e00"


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged

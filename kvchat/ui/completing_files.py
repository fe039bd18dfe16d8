"""Which file a name behind an @ means. Pure; must not look at the disk.

What is known of the size of a file before it is read is its bytes; tokens by these are an estimate and told as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvchat.fenced import LARGEST
from kvchat.ui.chips import FileRef
from kvchat.ui.completing_commands import MOST, Offer
from kvchat.ui.files import File, Listing
from kvchat.ui.files_reading import split_range
from kvchat.ui.fuzzy import rank
from kvchat.ui.meters import size_text
from kvchat.ui.overlay import Choice

BYTES_PER_TOKEN = 4  # of English and of most code; other scripts take more tokens, never shown as a fact
READING = "reading the folder…"
NONE_THERE = "no text files here"
NOT_YET = "…"  # the size of some lines of a file that was not read


@dataclass(frozen=True, slots=True)
class At:
    """The name behind an @ in a line: the columns of both, what was typed up to the cursor."""

    start: int
    end: int
    word: str


def at_of(line: str, column: int, chips: Iterable[tuple[int, int]]) -> At | None:
    """The @ that the cursor stands behind; None when there is none, or it is a chip's or part of a word."""
    start = line.rfind("@", 0, column)
    if start < 0 or (start and not line[start - 1].isspace()):
        return None
    word = line[start + 1 : column]
    if any(map(str.isspace, word)) or any(begin <= start < end for begin, end in chips):
        return None
    end = column
    while end < len(line) and not line[end].isspace():
        end += 1
    return At(start, end, word)


def file_offer(at: At, listing: Listing | None) -> Offer | None:
    """The files that may be meant; None when there are none of that name."""
    if listing is None:
        return Offer(READING, at.start, at.end, (), None, is_file=True, waits=True)
    if not listing.files:
        return Offer(NONE_THERE, at.start, at.end, (), None, is_file=True)
    query, _, _ = split_range(at.word)
    matches = rank(query, [file.name for file in listing.files], MOST)
    if not matches:
        return None
    choices = tuple(_choice(listing.files[match.index], match.marks) for match in matches)
    title = "files" if listing.whole else f"files (the first {len(listing.files):,})"
    return Offer(title, at.start, at.end, choices, 0 if at.word else None, is_file=True)


def reference(at: At, choice: Choice, listing: Listing) -> FileRef:
    """The file that was chosen, with the lines that were typed behind its name."""
    _, first, last = split_range(at.word)
    return FileRef(str(listing.folder / choice.put), choice.put, first, last)


def size_of(file: FileRef, listing: Listing) -> str:
    """What is known of the size of a file that was just chosen."""
    found = next((each for each in listing.files if each.name == file.name), None)
    return NOT_YET if file.first is not None or found is None else estimate(found.size)


def estimate(size: int) -> str:
    """Tokens by bytes, as a word for what they are: an estimate, of two digits."""
    tokens = max(1, round(size / BYTES_PER_TOKEN))
    unit = 10 ** max(0, len(str(tokens)) - 2)
    return f"~{round(tokens / unit) * unit:,} tokens"


def _choice(file: File, marks: tuple[int, ...]) -> Choice:
    size = size_text(file.size)
    aside = f"{size:>8}{'too large' if file.size > LARGEST else estimate(file.size):>16}"
    return Choice(file.name, file.name, aside=aside, marks=marks, tail=True)

"""The files of a split model, by the names that llama.cpp gives them. Owns these names; opens no file.

A count that no model has is not believed: what a name or a header claims decides how many files are looked for.
"""

from __future__ import annotations

from pathlib import Path

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import PART_NAME, Split

MOST_PARTS = 1024  # the largest models have a few hundred


def split_of(path: Path) -> Split | None:
    """Which part of how many this is, as its name says; None for a whole model, and for a name that counts wrongly."""
    match = PART_NAME.fullmatch(path.stem)
    if match is None:
        return None
    part, parts = int(match["part"]), int(match["parts"])
    return Split(part - 1, parts) if 1 <= part <= parts <= MOST_PARTS else None


def part_paths(first: Path, parts: int) -> list[Path]:
    """All files of a split model. FormatError: so many parts no model has. KvchatError: the first file's name does not
    follow llama.cpp's pattern."""
    if not 1 <= parts <= MOST_PARTS:
        raise FormatError(f"{first} claims to be one of {parts} parts", "copy or download it again")
    match = PART_NAME.fullmatch(first.stem)
    if match is None:
        raise KvchatError(
            f"{first} is the first of {parts} parts, but its name does not say so", "give all parts their own names"
        )
    return [first.with_name(f"{match['stem']}-{part:05}-of-{parts:05}{first.suffix}") for part in range(1, parts + 1)]


def model_files(path: Path) -> list[Path]:
    """The files of the model that this one begins, as its name says, whether they are there or not."""
    split = split_of(path)
    return part_paths(path, split.parts) if split else [path]

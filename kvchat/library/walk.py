"""Files below a folder that are models, or parts and leftovers of such. Owns how far is looked; opens no file.

Links are followed, each file and folder is met once. What cannot be listed is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".gguf"
PART_SUFFIX = ".part"  # of a download of our own
_DEEPEST = 6
_MOST_ENTRIES = 200_000  # somebody may name the root of a disk
# How programs call what they have not fetched whole: endings, and beginnings of the names of GGUF files.
_UNFINISHED = (
    PART_SUFFIX,
    ".incomplete",
    ".downloadinprogress",
    ".partial",
    ".download",
    ".crdownload",
    ".tmp",
)
_UNFINISHED_BEGINNINGS = ("downloading_", "incomplete-")
_OLLAMA_UNFINISHED = "-partial"

Seen = set[tuple[int, int]]
"""Device and inode of what was met."""


def is_gguf(name: str) -> bool:
    """Whether a file of this name calls itself GGUF and is not hidden."""
    return name.lower().endswith(SUFFIX) and not name.startswith(".")


def is_unfinished(name: str) -> bool:
    """Whether this is the name of a download that has not come to its end."""
    lower = name.lower()
    if lower.endswith(SUFFIX):
        return lower.startswith(_UNFINISHED_BEGINNINGS)
    ended = next((lower.removesuffix(ending) for ending in _UNFINISHED if lower.endswith(ending)), None)
    if ended is not None:
        return ended.endswith(SUFFIX) or lower.endswith(".incomplete")
    return lower.startswith("sha256-") and lower.endswith(_OLLAMA_UNFINISHED)


def is_folder(path: Path) -> bool:
    """Whether a folder is there that may be looked into, as far as this can be told."""
    try:
        return path.is_dir()
    except OSError:  # above it is one that may not
        return False


def is_file(path: Path) -> bool:
    """The same for a file."""
    try:
        return path.is_file()
    except OSError:
        return False


def walk(folder: Path, seen: Seen, depth: int = _DEEPEST) -> Iterator[Path]:
    """GGUF files and unfinished downloads at and below the folder, by name, without those that are in `seen`; at most
    _MOST_ENTRIES names are looked at."""
    yield from _walk(folder, seen, depth, iter(range(_MOST_ENTRIES)))


def _walk(folder: Path, seen: Seen, depth: int, budget: Iterator[int]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted((entry for entry, _ in zip(found, budget, strict=False)), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            deeper = entry.is_dir()
            if not deeper and not (is_gguf(entry.name) or is_unfinished(entry.name)):
                continue
            info = entry.stat()
            wanted = deeper or entry.is_file()
        except OSError:
            continue
        identity = (info.st_dev, info.st_ino)
        if not wanted or identity in seen:
            continue
        seen.add(identity)
        if not deeper:
            yield Path(entry.path)
        elif depth:
            yield from _walk(Path(entry.path), seen, depth - 1, budget)

"""Looks for what should not be anywhere: words and token ids in the raw bytes of all files of some folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def traces(folders: Iterable[Path], needles: Iterable[str | bytes]) -> set[Path]:
    """The files whose bytes or whose names have one of the needles."""
    wanted = [needle.encode() if isinstance(needle, str) else needle for needle in needles]
    assert wanted
    found = set()
    for folder in folders:
        for path in folder.rglob("*"):
            name = os.fsencode(path.name)
            content = path.read_bytes() if path.is_file() else b""
            if any(needle in content or needle in name for needle in wanted):
                found.add(path)
    return found

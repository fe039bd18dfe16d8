"""The inspector's report as a file. Owns its name and place; must not know what is in it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from kvchat.paths import Paths, ensure_private


def write_report(paths: Paths, text: str, now: float) -> Path:
    """Write the text to a new file beside the chats, for its owner only. KvchatError, OSError: it cannot be written."""
    folder = ensure_private(paths.chats_db.parent / "reports")
    stamp = datetime.fromtimestamp(now).strftime("%Y-%m-%d-%H%M%S")
    path, number = folder / f"kv-{stamp}.txt", 1
    while path.exists():
        number += 1
        path = folder / f"kv-{stamp}-{number}.txt"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (a descriptor)
        file.write(text)
    return path

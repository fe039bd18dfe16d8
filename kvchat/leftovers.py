"""Unfinished files of processes that were killed. Owns how such files are named and which of them belong to nobody.

Must not touch a file of a process that runs. The page store has rules of its own: its files are large and are written
all the time.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from kvchat.paths import Paths

_UNFINISHED = re.compile(r"\..+\.(\d{1,10})\.tmp")
_DRAFT = re.compile(r"draft-(\d{1,10})-\w+\.md")  # a message that is in the person's editor
_QUIET = 10.0  # seconds; what was written to just now is left alone, whoever wrote it
_STALE = 86400.0  # seconds after which a file is nobody's, whoever has the number of its process now


def unfinished(target: Path) -> Path:
    """The name under which this process writes a file that is to replace `target`."""
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def draft_prefix() -> str:
    """How the name of a draft begins that this process gives to an editor."""
    return f"draft-{os.getpid()}-"


def tidy(paths: Paths) -> list[str]:
    """Remove what killed processes left of settings, presets and state; a sentence for each draft that was in an editor
    then: it is kept for a day."""
    config = paths.config_file.parent
    for folder in (paths.state_folder, config, config / "presets"):
        sweep(folder)
    drafts = [path for path in _entries(paths.state_folder) if _is_left(path, _DRAFT)]
    return [f"what was in the editor when kvchat ended is in {path}" for path in drafts]


def sweep(folder: Path) -> None:
    """Remove the unfinished files in a folder whose processes are no more. What cannot be removed stays."""
    now = time.time()
    for path in _entries(folder):
        try:
            age = now - path.lstat().st_mtime
            left = age > _QUIET and _is_left(path, _UNFINISHED)
            if left or (age > _STALE and (_UNFINISHED.fullmatch(path.name) or _DRAFT.fullmatch(path.name))):
                path.unlink()
        except OSError:
            continue


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _is_left(path: Path, name: re.Pattern[str]) -> bool:
    found = name.fullmatch(path.name)
    return found is not None and not is_alive(int(found[1]))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []

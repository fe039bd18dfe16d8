"""The files below a folder that a person may want to show to a model. Owns which these are; must not read them whole.

Where there is a repository, git says what is ignored. Else the folder is walked, what is near first, within limits: it
may be a home folder, or a slow disk. Hidden files and those that are no text are left out.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

MOST_FILES = 5_000
MOST_FOLDERS = 2_000
LONGEST = 3.0  # seconds
_MOST_OUTPUT = 4 << 20  # bytes of names
_SNIFFED = 1_024
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "env", "site-packages", "target", "dist", "build"})
# No text, by the ends of their names; what is in the others is looked at.
_BINARY_ENDS = """
    7z a avi avif bin bmp bz2 class dat db dll doc docx dylib ear eot exe flac gguf gif gz heic icns ico iso
    jar jpeg jpg lib lz4 m4a mkv mov mp3 mp4 mpeg npy npz o obj odp ods odt ogg onnx otf parquet pdf pickle
    pkl png ppt pptx pt pth pyc pyo rar safetensors so sqlite sqlite3 tar tgz tif tiff ttf wasm wav webm
    webp whl woff woff2 xls xlsx xz zip zst
"""
_BINARY = frozenset(f".{end}" for end in _BINARY_ENDS.split())


@dataclass(frozen=True, slots=True)
class File:
    """`name` is relative to the folder, with slashes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder, those that are near first. `whole` is False when there are more."""

    folder: Path
    files: tuple[File, ...] = ()
    whole: bool = True


def list_files(folder: Path, most: int = MOST_FILES) -> Listing:
    """Takes up to LONGEST seconds: not for the event loop."""
    deadline = monotonic() + LONGEST
    names = _tracked(folder)
    found: list[File] = []
    whole = True
    for name in names if names is not None else _walked(folder, deadline):
        if len(found) >= most or monotonic() > deadline:
            whole = False
            break
        size = _text_size(folder, name)
        if size is not None:
            found.append(File(name, size))
    found.sort(key=lambda file: (file.name.count("/"), file.name.lower()))
    return Listing(folder, tuple(found), whole)


def _tracked(folder: Path) -> Iterable[str] | None:
    """What git knows and does not ignore, as far as it says so in time; None without a repository.

    The settings of a repository are somebody else's: none of them may start a program here.
    """
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=LONGEST,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as slow:
        output = slow.stdout or b""
    except OSError:
        return None
    else:
        if done.returncode != 0:
            return None
        output = done.stdout
    names = map(os.fsdecode, output[:_MOST_OUTPUT].split(b"\0"))
    return [name for name in dict.fromkeys(names) if name and not _is_hidden(name)]


def _walked(folder: Path, deadline: float) -> Iterator[str]:
    """The folder and those in it, one level after the other; links to folders are not followed."""
    waiting = deque([""])
    seen = 0
    while waiting and seen < MOST_FOLDERS and monotonic() < deadline:
        inside = waiting.popleft()
        seen += 1
        try:
            with os.scandir(folder / inside) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            if entry.name.startswith("."):
                continue
            name = f"{inside}/{entry.name}" if inside else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield name
            elif entry.name not in _SKIPPED:
                waiting.append(name)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def _text_size(folder: Path, name: str) -> int | None:
    """The size of a file that is text; None for everything else."""
    path = folder / name
    if path.suffix.lower() in _BINARY:
        return None
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or _is_binary(path):
            return None
    except (OSError, ValueError):
        return None
    return status.st_size


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(_SNIFFED)

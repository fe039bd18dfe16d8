"""Models of other programs, under the names that people know. Owns how each program lays out its folder; only reads.

Ollama keeps blobs that manifests name. Hugging Face keeps snapshots of repositories, of which the newest counts first.
llama.cpp's cache puts the repository before the name of the file. LM Studio and GPT4All have folders of GGUF files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kvchat.formats.gguf import model_name
from kvchat.formats.ollama import named_blobs
from kvchat.library.places import Place
from kvchat.library.walk import SUFFIX, Seen, is_file, is_folder, is_unfinished, walk

_REPOSITORY = "models--"  # Hugging Face: models--OWNER--NAME
_MANIFEST = "manifest="  # llama.cpp: manifest=OWNER=NAME=TAG.json
_REVISION_CHARACTERS = 200

Named = tuple[str, Path]
"""What a model is called, and its file."""


def files_of(place: Place, seen: Seen) -> Iterator[Named]:
    """Files of models and unfinished downloads of one program, those in `seen` left out; none without the folder."""
    if place.owner == "Ollama":
        yield from _ollama(place.folder, seen)
        return
    yield from _repositories(place.folder, seen)
    if place.owner == "Hugging Face":
        return  # what else there is are data sets and the like
    prefixes = _prefixes(place.folder) if place.owner == "llama.cpp" else ()
    for path in walk(place.folder, seen):
        name = model_name(path)
        prefix = next((each for each in prefixes if name.startswith(each)), "")
        yield name.removeprefix(prefix), path


def _ollama(folder: Path, seen: Seen) -> Iterator[Named]:
    for blob in named_blobs(folder):
        try:
            info = blob.path.stat()
        except OSError:
            continue  # a manifest whose blob is not there (any more)
        identity = (info.st_dev, info.st_ino)
        if is_file(blob.path) and identity not in seen:
            seen.add(identity)
            yield blob.name, blob.path
    for path in walk(folder / "blobs", seen, depth=0):
        if is_unfinished(path.name):
            yield path.name, path


def _repositories(folder: Path, seen: Seen) -> Iterator[Named]:
    """Of the Hugging Face layout; blobs are not met again below. What is unfinished lies among them."""
    for repository in _folders(folder):
        if not repository.name.startswith(_REPOSITORY):
            continue
        for path in _snapshots(repository, seen):
            yield model_name(path), path
        for path in walk(repository / "blobs", seen, depth=0):
            yield repository.name.removeprefix(_REPOSITORY).replace("--", "/"), path
        _pass_over(repository, seen)


def _snapshots(repository: Path, seen: Seen) -> Iterator[Path]:
    """The files of the snapshot that `refs/main` names, then those that only others have: each has what was fetched
    while it was the newest. All of all snapshots where none is named."""
    folder = repository / "snapshots"
    newest = folder / (_revision(repository / "refs" / "main") or ".")
    if newest == folder or not is_folder(newest):
        yield from walk(folder, seen)
        return
    met: set[Path] = set()
    for snapshot in (newest, *(each for each in _folders(folder) if each != newest)):
        for path in walk(snapshot, seen):
            name = path.relative_to(snapshot)
            if name not in met:
                met.add(name)
                yield path


def _pass_over(repository: Path, seen: Seen) -> None:
    """What lies in it was met."""
    for folder in (repository, repository / "snapshots"):
        try:
            info = folder.stat()
        except OSError:
            continue
        seen.add((info.st_dev, info.st_ino))


def _revision(file: Path) -> str:
    try:
        text = file.read_bytes()[:_REVISION_CHARACTERS].decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text.isalnum() else ""


def _prefixes(folder: Path) -> tuple[str, ...]:
    """What llama.cpp's cache puts before the names of files, from the names of its manifests."""
    parts = [file.removesuffix(".json").split("=") for file in _names(folder) if file.startswith(_MANIFEST)]
    return tuple(sorted({f"{found[1]}_{found[2]}_" for found in parts if len(found) == 4}, key=len, reverse=True))


def _folders(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder) if not name.endswith(SUFFIX) and is_folder(folder / name)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 (names are wanted, and errors at once)
    except OSError:
        return []

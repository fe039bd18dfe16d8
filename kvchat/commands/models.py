"""`kvchat models ls`: which models there are. Must not load or change one."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from kvchat.clean import clean_line
from kvchat.commands.table import count_text, print_table, size_text
from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader, read_header
from kvchat.kv.geometry import geometry
from kvchat.library.cache import Fact, FactCache, Facts
from kvchat.library.find import (
    ModelFile,
    check,
    drop_in_folders,
    fact_cache,
    files_of_model,
    find_files,
)
from kvchat.paths import Paths

_COLUMNS = ("name", "architecture", "attention", "parameters", "quantization", "size", "context", "source")
_LISTED = "listed"  # of the facts about a file
_NUMBERS = {"parameters", "size", "context"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of `models ls`. `parameters` counts elements, `size` bytes, `context_trained` tokens. What a bad file does
    not say is None, and `error` says what is wrong with it."""

    name: str
    architecture: str | None
    attention: str | None
    parameters: int | None
    quantization: str | None
    size: int
    context_trained: int | None
    path: str
    source: str
    error: str | None


def run_ls(paths: Paths, *, json: bool, out: TextIO, folders: Sequence[Path] = ()) -> int:
    """Print all models found, also in `folders`, and those that are damaged, with the reason. Exit code 0."""
    files = find_files(paths, drop_in_folders(folders))
    cache = fact_cache(paths)
    entries = [_entry(file, cache) for file in files if not file.unfit]
    cache.save()
    if json:
        print(jsonlib.dumps([asdict(entry) for entry in entries]), file=out)
        return 0
    if entries:
        _print_table(entries, out)
    else:
        print(f"no models; put a .gguf file into {clean_line(str(paths.models_folder))}", file=out)
        print("or fetch one: kvchat models pull", file=out)
    if left_out := len(files) - len(entries):
        print(f"{left_out} other file{'s' * (left_out > 1)} that one cannot chat with: kvchat models scan", file=out)
    return 0


def _entry(model: ModelFile, cache: FactCache) -> _Entry:
    facts: Facts = {}
    try:
        facts = cache.get(model.path, _LISTED, lambda: _listed(model))
        error = _text(facts.get("error"))
    except KvchatError as problem:  # not kept: files that are being copied have such
        error = problem.message
    except OSError as problem:
        error = str(problem)
    return _Entry(
        model.name,
        _text(facts.get("architecture")),
        _text(facts.get("attention")),
        _count_of(facts.get("parameters")),
        _text(facts.get("quantization")),
        model.size,
        _count_of(facts.get("context_trained")),
        str(model.path),
        model.source,
        error,
    )


def _text(fact: Fact) -> str | None:
    return fact if isinstance(fact, str) else None


def _count_of(fact: Fact) -> int | None:
    return fact if isinstance(fact, int) else None


def _listed(model: ModelFile) -> Facts:
    """What `models ls` says of a file. KvchatError: it is damaged."""
    header = check(model)
    facts: dict[str, Fact] = {
        "architecture": header.architecture,
        "parameters": _parameters(model, header),
        "quantization": header.quantization,
        "error": None,
    }
    try:
        shape = geometry(header)
    except KvchatError as problem:
        return facts | {"error": problem.message}
    return facts | {"attention": shape.attention, "context_trained": shape.context_trained}


def _parameters(model: ModelFile, header: GgufHeader) -> int:
    if header.split is None:
        return header.parameters
    return sum(read_header(part).parameters for part in files_of_model(model, header))


def _print_table(entries: list[_Entry], out: TextIO) -> None:
    print_table(_COLUMNS, map(_cells, entries), out, numbers=_NUMBERS)
    for entry in entries:
        if entry.error:
            print(f"{clean_line(entry.name)}: {clean_line(entry.error)}", file=out)


def _cells(entry: _Entry) -> tuple[str, ...]:
    return (
        entry.name,
        entry.architecture or "-",
        entry.attention or "-",
        "-" if entry.parameters is None else count_text(entry.parameters),
        entry.quantization or "-",
        size_text(entry.size),
        "-" if entry.context_trained is None else f"{entry.context_trained:,}",
        entry.source,
    )

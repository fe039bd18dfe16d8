"""Which engine configurations died on this machine. Owns `state/journal.json`; must not start processes.

The first start is the probe: an engine that dies before its first decode is done condemns its configuration, and the
next safer one is tried. An illegal instruction in extra buffers is the machine's fault, not the model's, and holds for
every model once the same model has run without them. Losing the file costs one more probe.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.backend.values import EngineConfig, Hardware, Rope
from kvchat.config_write import replace_file
from kvchat.errors import KvchatError

FILE = "journal.json"
QUANTIZED = ("q8_0", "q4_0")
EXTRA_BUFFERS = "llama.cpp's extra CPU buffers (AMX, repacked weights)"
FLASH = "flash attention"
TYPES = "the quantized cache"
DRAFT = "draft model"


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration to start with, and sentences that say what was given up for it, and why."""

    config: EngineConfig
    notes: tuple[str, ...] = ()


def ladder(config: EngineConfig) -> Iterator[tuple[str, EngineConfig]]:
    """The configuration as asked ("" given up), then safer ones, each with what it gives up beyond the one before.

    Extra buffer types first (an illegal instruction in the first matrix product is the common death), then flash
    attention where the cache can do without, then quantized caches. A draft model is none of its rungs: it comes last,
    when the model stands, so that a death is known to be its own.
    """
    yield "", config
    if config.extra_buffers:
        config = replace(config, extra_buffers=False)
        yield EXTRA_BUFFERS, config
    if config.type_v not in QUANTIZED and config.flash_attention != "off":
        config = replace(config, flash_attention="off")
        yield FLASH, config
    if config.type_k in QUANTIZED or config.type_v in QUANTIZED:
        yield TYPES, replace(config, flash_attention="off", type_k="f16", type_v="f16")


class Journal:
    """Remembers deaths between starts: configuration key -> how its engine ended."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder
        self._deaths = _read(state_folder / FILE)
        self._draft_deaths: dict[str, str] = {}  # those for which a draft model may not have been the reason

    def choose(self, config: EngineConfig) -> Choice | None:
        """The first configuration of the ladder that is not known to die, without its draft model if the engine is
        known to die with that; None when all of them are."""
        notes: list[str] = []
        cause = ""
        for given_up, candidate in ladder(config):
            if given_up:
                notes.append(f"{given_up}: off, because the engine {cause} with it on this machine")
            found = self._deaths.get(_death_key(candidate)) or (
                self._deaths.get(_machine_key()) if candidate.extra_buffers else None
            )
            if found is None:
                return self._with_draft(candidate, notes)
            cause = found
        return None

    def _with_draft(self, config: EngineConfig, notes: list[str]) -> Choice:
        lasting = self._deaths.get(draft_key(config))
        cause = lasting or self._draft_deaths.get(draft_key(config))
        if config.draft_path is None or cause is None:
            return Choice(config, tuple(notes))
        again = f"remove {self._folder / FILE}" if lasting else "choose it again"
        notes.append(f"{DRAFT}: off, because the engine {cause} with it; to try again, {again}")
        return Choice(replace(config, draft_path=None), tuple(notes))

    def draft_died(self, config: EngineConfig, cause: str, *, lasting: bool) -> None:
        """The engine died while it loaded or had the draft model of this configuration, which goes on without it.
        `lasting`: at the next starts, too."""
        deaths = self._deaths if lasting else self._draft_deaths
        deaths[draft_key(config)] = cause
        if lasting:
            self._write()

    def try_draft_again(self) -> None:
        """The person has chosen: a draft model that may not have been the reason of a death gets another chance."""
        self._draft_deaths.clear()

    def died(self, config: EngineConfig, cause: str) -> None:
        """Condemn a configuration; `cause` reads on from "the engine ", as in "was killed by SIGILL"."""
        self._deaths[_death_key(config)] = cause
        self._write()

    def survived(self, config: EngineConfig) -> None:
        """The engine has decoded its first token. If only extra buffers stood between death and life, they are to
        blame, for every model."""
        cause = self._deaths.get(_death_key(replace(config, extra_buffers=True)))
        if not config.extra_buffers and cause and "SIGILL" in cause and _machine_key() not in self._deaths:
            self._deaths[_machine_key()] = cause
            self._write()

    def _write(self) -> None:
        self._deaths = _read(self._folder / FILE) | self._deaths  # another process may have learned something, too
        write_json(self._folder, FILE, self._deaths)


def read_report(state_folder: Path) -> list[str]:
    """Sentences for `kvchat doctor`: what is known to die here."""
    cause = _read(state_folder / FILE).get(_machine_key())
    if cause is None:
        return []
    why = f"off for every model, because the engine {cause} with it on this machine"
    return [f"{EXTRA_BUFFERS}: {why}; to try again, remove {state_folder / FILE}"]


def _read(file: Path) -> dict[str, str]:
    return {key: str(value) for key, value in read_json(file).items()}


def read_json(file: Path) -> dict[str, object]:
    """The object in a state file; empty when there is none or it is damaged."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}


def write_json(folder: Path, name: str, content: Mapping[str, object]) -> None:
    """Replace a state file, 0600 in a 0700 folder. What cannot be written is found out again at the next start."""
    with suppress(KvchatError):
        replace_file(folder / name, json.dumps(content, indent=1))


def _machine() -> str:
    """This CPU and this build: what a death by instruction set depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
        cpu = "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    except OSError:
        cpu = platform.processor()
    return f"{platform.machine()}|{cpu}|{importlib.metadata.version('llama-cpp-python')}"


def _machine_key() -> str:
    return "extra-buffers-" + hashlib.blake2b(_machine().encode(), digest_size=8).hexdigest()


def configuration_key(config: EngineConfig) -> str:
    """Names a configuration of one model file on this CPU with this build, whatever drafts for it."""
    parts = (
        _machine(),
        config.model_path,
        _file_identity(config.model_path),
        config.type_k,
        config.type_v,
        config.flash_attention,
        str(config.gpu_layers),
        str(config.extra_buffers),
    )
    return hashlib.blake2b("|".join((*parts, *_unusual(config))).encode(), digest_size=16).hexdigest()


def _unusual(config: EngineConfig) -> Iterator[str]:
    """What is otherwise than usual, and may be why an engine dies or is slow."""
    for chosen, usual in ((config.hardware, Hardware()), (config.rope, Rope())):
        if chosen != usual:
            yield repr(chosen)
    for adapter in config.lora:
        yield f"{adapter!r} {_file_identity(adapter.path)}"


def _death_key(config: EngineConfig) -> str:
    """Names a configuration with the sizes that were asked for: a death with one context condemns no other."""
    sizes = [str(each) for each in (config.context, config.parallel) if each]
    return "-".join((configuration_key(config), *sizes))


def draft_key(config: EngineConfig) -> str:
    """Names the draft model of a configuration beside its model."""
    parts = (configuration_key(config), config.draft_path or "", _file_identity(config.draft_path or ""))
    return "draft-" + hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()


def _file_identity(path: str) -> str:
    try:
        file = Path(path).stat()
    except OSError:
        return ""
    return f"{file.st_size}|{file.st_mtime_ns}"

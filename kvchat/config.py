"""What the person wants, from all sources: defaults < config.toml < environment < flags.

Owns `Settings` and which source wins; must not write the settings file or know what an engine can do with a value.
In the environment KVCHAT_* wins over llama.cpp's LLAMA_ARG_*. The names of the settings are in config_options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kvchat.backend.choices import (
    Adapter,
    CacheType,
    DiskType,
    DraftMode,
    EngineConfig,
    Favour,
    FlashAttention,
    Hardware,
    History,
    OverflowPolicy,
    Remote,
    Rope,
    Sampling,
)
from kvchat.config_hardware import HARDWARE_FIELDS, ROPE_FIELDS, hardware, rope, rope_problem
from kvchat.config_options import AUTOMATIC_GPU_LAYERS, BY_KEY, OPTIONS, BadValue, Option, nearest, shown
from kvchat.config_remote import KEY_VARIABLE, read_tables
from kvchat.errors import UsageError
from kvchat.paths import HOME_VARIABLE, Paths

# Names in Settings and Sampling that differ from the names that a person writes.
_SETTING_NAMES = {
    "ctx_size": "context",
    "cache_type_k": "type_k",
    "cache_type_v": "type_v",
    "flash_attn": "flash_attention",
    "n_gpu_layers": "gpu_layers",
}
_SAMPLING_NAMES = {
    "seed": "seed",
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    "predict": "max_tokens",
    "stop": "stop",
}
_OTHER_VARIABLES = {HOME_VARIABLE, KEY_VARIABLE}
_REMOTES = "remotes"  # the tables of the file; the flag is --remote
_LARGEST_CONFIG = 1 << 20  # bytes

Follow = Literal["bottom", "start", "off"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be chosen. `context`, `threads`, `kv_budget` (bytes) 0 and `gpu_layers` -1: automatic.

    `model` is a path or a name, None for the one last used or the best one found. `system` None: not said, so a chat
    keeps its own; "" is a chat without one. `model_draft` is a path or a name, None for no draft model. `incognito`:
    chats, drafts and KV are in memory alone, and those on disk are not looked at. `kv` False
    neither restores nor saves KV state; `kv_type_disk`: the cache type in which it is saved, "same" as in memory. For
    the screen: `theme`, "auto" for what suits the terminal; `mouse`; `follow`, where the view goes while an answer
    comes (to its end, to its beginning, nowhere); `auto_title`, whether the model names chats. `model_folders` are
    looked through for models beside the program's own; `offline`: nothing is fetched. `lora`: adapters of the model.
    `given` are the keys (see config_options) that a flag decided: what one command line says goes before what a chat
    keeps of its own, what stands in a settings file does not. `named` are those that any source has. `fit`: whether
    the person is asked before something is loaded for which there is not enough memory. `parallel` answers are
    computed together at most, 0: as many as cost no memory; `favour`: what goes first where a prompt is read beside
    them; `read_ahead`: a message is read while it is written. `remote` is the name or URL of a server that answers in
    place of a model of this machine, `remotes` are those that the settings file names.
    """

    model: str | None = None
    context: int = 0
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"
    flash_attention: FlashAttention = "auto"
    threads: int = 0
    gpu_layers: int = AUTOMATIC_GPU_LAYERS
    model_draft: str | None = None
    draft: DraftMode = "auto"
    overflow: OverflowPolicy = "stop"
    history: History = "append"
    sampling: Sampling = field(default_factory=Sampling)
    system: str | None = None
    incognito: bool = False
    kv: bool = True
    kv_budget: int = 0
    kv_type_disk: DiskType = "same"
    theme: str = "auto"
    mouse: bool = True
    follow: Follow = "bottom"
    auto_title: bool = True
    model_folders: tuple[Path, ...] = ()
    offline: bool = False
    fit: Literal["ask", "off"] = "ask"
    hardware: Hardware = field(default_factory=Hardware)
    rope: Rope = field(default_factory=Rope)
    lora: tuple[Adapter, ...] = ()
    parallel: int = 0
    favour: Favour = "balanced"
    read_ahead: bool = True
    remote: str | None = None
    remotes: tuple[Remote, ...] = ()
    given: frozenset[str] = frozenset()
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def types_chosen(self) -> bool:
        """Whether somebody chose the cache types; else the plan may."""
        said = {"cache_type_k", "cache_type_v"} & (self.given | self.named)
        return bool(said) or (self.type_k, self.type_v) != ("f16", "f16")

    @property
    def new_system(self) -> str | None:
        """The system prompt that replaces that of an old chat; None: it keeps its own."""
        return self.system if "system" in self.given else None

    @property
    def new_draft(self) -> DraftMode | None:
        """What drafts whatever a chat has of its own; None: nobody said so."""
        return self.draft if "draft" in self.given else None

    @property
    def new_overflow(self) -> OverflowPolicy | None:
        """What happens in a full context whatever a chat has of its own; None: nobody said so."""
        return self.overflow if "overflow" in self.given else None


def load_settings(paths: Paths, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Settings from all sources. `flags` is what was given on the command line, by key (see config_options); what else
    was given there is passed over.

    UsageError, with the file, variable or flag that is wrong and what would be right.
    """
    values: dict[str, Any] = {}
    values.update(_from_file(paths.config_file))
    values.update(_from_environment(environ))
    own = {key: _read(BY_KEY[key], value, BY_KEY[key].flag) for key, value in flags.items() if key in BY_KEY}
    values.update(own)
    settings = replace(_settings(values), given=frozenset(own), named=frozenset(values))
    _check_together(settings)
    return settings


def value_of(settings: Settings, key: str) -> object:
    """What a setting is, by its name in config.toml."""
    groups: tuple[tuple[Mapping[str, str], object], ...] = (
        (_SAMPLING_NAMES, settings.sampling),
        (HARDWARE_FIELDS, settings.hardware),
        (ROPE_FIELDS, settings.rope),
    )
    for names, values in groups:
        if key in names:
            return getattr(values, names[key])
    return getattr(settings, _SETTING_NAMES.get(key, key))


def engine_config(settings: Settings, model_path: Path, paths: Paths) -> EngineConfig:
    """What an engine process is started with. `model_draft` is a path by now."""
    return EngineConfig(
        model_path=str(model_path),
        context=settings.context,
        type_k=settings.type_k,
        type_v=settings.type_v,
        flash_attention=settings.flash_attention,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
        kv_folder=str(paths.kv_folder) if settings.kv and not settings.incognito else None,
        kv_budget=settings.kv_budget,
        parallel=settings.parallel,
        favour=settings.favour,
        read_ahead=settings.read_ahead,
        kv_type_disk=settings.kv_type_disk,
        draft_path=settings.model_draft,
        hardware=settings.hardware,
        rope=settings.rope,
        lora=settings.lora,
    )


def _settings(values: Mapping[str, Any]) -> Settings:
    sampling = {_SAMPLING_NAMES[key]: value for key, value in values.items() if key in _SAMPLING_NAMES}
    grouped = _SAMPLING_NAMES.keys() | HARDWARE_FIELDS.keys() | ROPE_FIELDS.keys()
    rest = {_SETTING_NAMES.get(key, key): value for key, value in values.items() if key not in grouped}
    return Settings(sampling=Sampling(**sampling), hardware=hardware(values), rope=rope(values), **rest)


def contradictory(settings: Settings) -> bool:
    """Whether llama.cpp refuses these settings whatever the model is: quantized values need flash attention."""
    return settings.flash_attention == "off" and settings.type_v not in {"f16", "bf16"}


def _check_together(settings: Settings) -> None:
    if contradictory(settings):
        raise UsageError(
            f"a V cache of type {settings.type_v} needs flash attention, which is turned off",
            "use --flash-attn auto, or --cache-type-v f16 or bf16",
        )
    if problem := rope_problem(settings.rope):
        raise UsageError(problem, "leave one of them out")
    batch, ubatch = settings.hardware.batch, settings.hardware.ubatch
    if batch and ubatch > batch:
        raise UsageError(
            f"--ubatch-size {ubatch} is more than --batch-size {batch}",
            "a batch is computed in parts of --ubatch-size tokens",
        )


def _read(option: Option, value: object, origin: str) -> object:
    try:
        return option.read(value)
    except BadValue as bad:
        raise UsageError(f"{origin}: {bad.problem}", bad.hint) from None


def _tables(value: object, origin: str) -> tuple[Remote, ...]:
    try:
        return read_tables(value)
    except BadValue as bad:
        raise UsageError(f"{origin}: {bad.problem}", bad.hint) from None


def _from_file(file: Path) -> dict[str, object]:
    values: dict[str, object] = {}
    text = _text(file)
    for written, value in _parsed(file, text).items():
        key, where = written.replace("-", "_"), f"{file}{_line(text, written)}"
        if key == "remote" and isinstance(value, dict):
            values[_REMOTES] = _tables(value, f"{where}: {written}")
            continue
        if key not in BY_KEY:
            guess = nearest(key, BY_KEY)
            hint = f"did you mean {guess}?" if guess else f"there are: {', '.join(BY_KEY)}"
            raise UsageError(f"{where}: there is no setting {shown(written)}", hint)
        values[key] = _read(BY_KEY[key], value, f"{where}: {written}")
    return values


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_CONFIG + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "look at its rights, or move it away") from error
    if len(data) > _LARGEST_CONFIG:
        raise UsageError(f"{file} is too large for a settings file", "move it away")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not valid UTF-8: {error}", "save it as UTF-8, or move it away") from error


def _line(text: str, key: str) -> str:
    """Where a key or a table stands, for a person; "" where that cannot be told."""
    for number, line in enumerate(text.splitlines(), 1):
        first = line.strip().lstrip("[").split("=")[0].split("]")[0].split(".")[0]
        if first.strip().strip("\"'") == key:
            return f", line {number}"
    return ""


def _parsed(file: Path, text: str) -> dict[str, object]:
    if not text:  # most have no such file, and the first frame comes sooner without the parser
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}", 'lines look like: cache_type_k = "q8_0"') from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    _refuse_unknown_variables(environ)
    values: dict[str, object] = {}
    for option, variable in _variables():
        if environ.get(variable):
            values[option.key] = _read(option, environ[variable], variable)
    return values


def _variables() -> Iterator[tuple[Option, str]]:
    """Variables from weak to strong."""
    yield from ((option, option.llama) for option in OPTIONS if option.llama)
    yield from ((option, option.variable) for option in OPTIONS)


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    known = {option.variable for option in OPTIONS} | _OTHER_VARIABLES
    for variable in environ:
        if variable.startswith("KVCHAT_") and variable not in known:
            guess = nearest(variable.removeprefix("KVCHAT_"), BY_KEY)
            hint = f"did you mean {BY_KEY[guess].variable}?" if guess else f"there are: {', '.join(sorted(known))}"
            raise UsageError(f"there is no setting for the variable {variable}", hint)

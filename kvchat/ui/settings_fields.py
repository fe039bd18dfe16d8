"""The settings of an engine as fields: which values each can take beside the others, and why not the rest.

Pure: owns legality and the words for it. Must not know widgets, files or the engine. Which cache types a model can have
is the answer of `Geometry.refusal`; values that would be refused cannot be reached, and the field says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from kvchat.backend.choices import FAVOURS, MOST_PARALLEL
from kvchat.backend.values import CACHE_TYPES, EngineConfig, FlashAttention
from kvchat.config_options import ALL_GPU_LAYERS, AUTOMATIC_GPU_LAYERS, BY_KEY
from kvchat.errors import KvchatError
from kvchat.kv import architectures
from kvchat.kv.geometry import Geometry

FieldName = Literal[
    "model",
    "type_k",
    "type_v",
    "context",
    "flash_attention",
    "threads",
    "gpu_layers",
    "parallel",
    "favour",
    "read_ahead",
]
FIELDS: tuple[FieldName, ...] = get_args(FieldName)
TURN_FIELDS: tuple[FieldName, ...] = ("parallel", "favour", "read_ahead")
ENGINE_FIELDS = tuple(field for field in FIELDS if field not in TURN_FIELDS)
LABELS: dict[FieldName, str] = {
    "model": "Model",
    "type_k": "K cache",
    "type_v": "V cache",
    "context": "Context size",
    "flash_attention": "Flash attention",
    "threads": "Threads",
    "gpu_layers": "GPU layers",
    "parallel": "Answers at once",
    "favour": "Goes first",
    "read_ahead": "Read while typing",
}
SHORT_LABELS: dict[FieldName, str] = LABELS | {
    "context": "Context",
    "flash_attention": "Flash",
    "gpu_layers": "GPU",
    "parallel": "At once",
    "read_ahead": "Read ahead",
}
UNKNOWN_CONTEXT = 131_072  # the largest that is offered when a model does not say what it was trained for
_TYPED = {  # field -> its setting
    "context": "ctx_size",
    "threads": "threads",
    "gpu_layers": "n_gpu_layers",
    "parallel": "parallel",
}
_TYPED_WORDS = {field: {"none" if field == "gpu_layers" else "auto": "0"} for field in _TYPED}
_AT_ONCE = (0, 1, 2, 3, 4, 6, 8, MOST_PARALLEL)
_FEW: dict[str, tuple[object, ...]] = {
    "flash_attention": get_args(FlashAttention),
    "favour": FAVOURS,
    "read_ahead": (True, False),
}
_SMALLEST_CONTEXT = 512
_GPU_STEP = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What a configuration must fit: the model, the machine's hardware threads and its RAM (bytes, None: not known)."""

    geometry: Geometry
    cores: int
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a field: the whole configuration with it. `problem` "": it can be had."""

    config: EngineConfig
    problem: str = ""


def choices(field: FieldName, config: EngineConfig, limits: Limits) -> tuple[Choice, ...]:
    """All values of the field in the order in which the arrow keys walk them, those that cannot be had included. The
    model is none of them: it is picked from a list."""
    found = {_with(field, config, value, limits): None for value in _values(field, config, limits)}
    return tuple(Choice(other, problem(other, limits)) for other in found)


def stepped(field: FieldName, config: EngineConfig, limits: Limits, step: Literal[1, -1]) -> EngineConfig:
    """The configuration with the next value that can be had; from the last one on to the first."""
    legal = [choice.config for choice in choices(field, config, limits) if not choice.problem]
    if config in legal:
        return legal[(legal.index(config) + step) % len(legal)]
    return legal[0] if legal else config


def left_out(field: FieldName, config: EngineConfig, limits: Limits) -> tuple[str, ...]:
    """Why values of the field cannot be reached now, one sentence a reason, with the values."""
    reasons: dict[str, list[str]] = {}
    for choice in choices(field, config, limits):
        if choice.problem and choice.config != config:
            reasons.setdefault(choice.problem, []).append(value_text(field, choice.config))
    return tuple(f"not {', '.join(values)}: {reason}" for reason, values in reasons.items())


def problem(config: EngineConfig, limits: Limits) -> str:
    """Why this model cannot run with this configuration; "" when it can."""
    shape = limits.geometry
    refusal = shape.refusal(config.type_k, config.type_v, config.flash_attention)
    if refusal is not None:
        return refusal.message
    if config.flash_attention == "on" and shape.architecture in architectures.FLASH_ATTENTION_NEVER:
        return f"{shape.architecture} models cannot use it"
    try:
        needed = shape.bytes_per_token(config.type_k, config.type_v) * config.context
    except KvchatError as error:
        return error.message
    if limits.memory is not None and needed > limits.memory:
        return "its cache is larger than the memory of this machine"
    return ""


def repaired(config: EngineConfig, limits: Limits) -> EngineConfig:
    """The configuration with as few changes as make it possible for this model; for one that was just picked."""
    trained = limits.geometry.context_trained
    if trained and config.context > trained:
        config = replace(config, context=0)
    attempts = (
        config,
        replace(config, type_v=config.type_k),
        replace(config, flash_attention="auto"),
        replace(config, type_v=config.type_k, flash_attention="auto"),
        replace(config, type_k="f16", type_v="f16"),
        replace(config, type_k="f16", type_v="f16", flash_attention="auto"),
    )
    return next((attempt for attempt in attempts if not problem(attempt, limits)), replace(attempts[-1], context=0))


def value_text(field: FieldName, config: EngineConfig) -> str:
    """What stands in the field."""
    gpu_words = {AUTOMATIC_GPU_LAYERS: "auto", 0: "none", ALL_GPU_LAYERS: "all"}
    return {
        "model": config.model_path,
        "type_k": config.type_k,
        "type_v": config.type_v,
        "context": f"{config.context:,}" if config.context else "auto",
        "flash_attention": config.flash_attention,
        "threads": str(config.threads or "auto"),
        "gpu_layers": gpu_words.get(config.gpu_layers, str(config.gpu_layers)),
        "parallel": str(config.parallel or "auto"),
        "favour": config.favour,
        "read_ahead": "yes" if config.read_ahead else "no",
    }[field]


def is_typed(field: FieldName) -> bool:
    """Whether its values are numbers that a person can type."""
    return field in _TYPED


def with_typed(field: FieldName, config: EngineConfig, text: str) -> EngineConfig:
    """The configuration with what was typed, which this model need not be able to have. Raises BadValue."""
    text = text.strip().lower().replace(",", "")
    value: Any = BY_KEY[_TYPED[field]].read(_TYPED_WORDS[field].get(text, text))
    return replace(config, **{field: value})


def differing(before: EngineConfig, after: EngineConfig) -> tuple[FieldName, ...]:
    """Fields in which two configurations are not the same."""
    return tuple(field for field in FIELDS if value_text(field, before) != value_text(field, after))


def linked(geometry: Geometry) -> bool:
    """Whether the model keeps no V of its own (MLA), so that both fields change together."""
    return bool(geometry.cache) and not any(layer.value for layer in geometry.cache)


def _values(field: FieldName, config: EngineConfig, limits: Limits) -> tuple[object, ...]:
    match field:
        case "model":
            return (config.model_path,)
        case "type_k" | "type_v":
            return CACHE_TYPES if limits.geometry.cache else (getattr(config, field),)
        case "context":
            return _contexts(config.context, limits.geometry.context_trained or UNKNOWN_CONTEXT)
        case "flash_attention" | "favour" | "read_ahead":
            return _FEW[field]
        case "threads" | "parallel":
            usual = range(limits.cores + 1) if field == "threads" else _AT_ONCE
            return tuple(sorted({*usual, getattr(config, field)}))
        case "gpu_layers":
            few = {0, *range(_GPU_STEP, limits.geometry.layers + 1, _GPU_STEP), config.gpu_layers}
            return (AUTOMATIC_GPU_LAYERS, *sorted(few - {AUTOMATIC_GPU_LAYERS, ALL_GPU_LAYERS}), ALL_GPU_LAYERS)


def _contexts(now: int, trained: int) -> tuple[int, ...]:
    """Automatic, then doubled sizes up to what the model was trained for, and the present one wherever it lies."""
    sizes, size = {now, trained} - {0}, _SMALLEST_CONTEXT
    while size < trained:
        sizes.add(size)
        size *= 2
    return (0, *sorted(sizes))


def _with(field: FieldName, config: EngineConfig, value: object, limits: Limits) -> EngineConfig:
    names = ("type_k", "type_v") if field in ("type_k", "type_v") and linked(limits.geometry) else (field,)
    return replace(config, **dict.fromkeys(names, value)) if field != "model" else config  # type: ignore[arg-type]

"""What the guard found out about cache types on this machine, by model, build and types; and when it is a warning.

Owns `state/guard.json`, and the words; must not measure. Losing the file costs one more check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kvchat.backend.fidelity import Verdict
from kvchat.backend.journal import configuration_key, read_json, write_json
from kvchat.backend.values import CACHE_TYPES, CacheType, EngineConfig

FILE = "guard.json"
MOST = 200  # entries that are kept, newest last
SLOWEST = 0.8  # of the decode speed with f16
FARTHEST = 0.1  # nats of mean divergence: a perplexity that is a tenth higher
_LADDER: tuple[tuple[CacheType, ...], ...] = (("f16",), ("bf16", "q8_0"), ("q4_0",))
_BACK: dict[CacheType, CacheType] = {"q4_0": "q8_0", "q8_0": "f16", "bf16": "f16", "f16": "f16"}


@dataclass(frozen=True, slots=True)
class Entry:
    """What was found. `verdict` None: nothing, since the engine did not live to tell; it is not tried again."""

    model: str
    types: str
    verdict: Verdict | None


class GuardBook:
    """Remembers verdicts between starts."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder
        self._entries = _read(state_folder)

    def apply(self, config: EngineConfig) -> EngineConfig:
        """Tell the engine how much noise these types have here; where that is not known, ask it for a check."""
        found = self._entries.get(configuration_key(config))
        if found is None:
            return replace(config, guard=True)
        return replace(config, noise=found.verdict.noise or 0.0) if found.verdict is not None else config

    def fatal(self, config: EngineConfig) -> None:
        """Note that an engine died while it may have been checking."""
        self._keep(config, None)

    def remember(self, config: EngineConfig, verdict: Verdict) -> None:
        """Keep a verdict for `config`, as it was before `apply`. One about other types came after `config` was asked
        for."""
        if (verdict.type_k, verdict.type_v) == (config.type_k, config.type_v):
            self._keep(config, verdict)

    def _keep(self, config: EngineConfig, verdict: Verdict | None) -> None:
        key = configuration_key(config)
        self._entries.pop(key, None)
        types = _types_text(config.type_k, config.type_v)
        self._entries[key] = Entry(Path(config.model_path).stem, types, verdict)
        write_json(self._folder, FILE, {k: asdict(v) for k, v in list(self._entries.items())[-MOST:]})


# ------------------------------------------------------------------ in words

REFUTED = (
    "The saved KV of this chat does not do any more what it did when it was saved, so it was moved away "
    "(to kv/damaged) and all of the conversation was computed again. Its words are untouched."
)


def is_slow(verdict: Verdict) -> bool:
    """Whether decoding is clearly slower than with f16."""
    return verdict.speed is not None and verdict.f16_speed is not None and verdict.speed < SLOWEST * verdict.f16_speed


def is_far(verdict: Verdict) -> bool:
    """Whether the model's choices are clearly others than with f16."""
    return verdict.positions > 0 and verdict.kl > FARTHEST


def warning(verdict: Verdict) -> str | None:
    """What the person should know, with figures and a way back; None when all is well."""
    parts = []
    if is_slow(verdict) and verdict.speed is not None and verdict.f16_speed is not None:
        parts.append(f"slower than f16 ({verdict.speed:.1f} tokens/s at depth 1,024, with f16 {verdict.f16_speed:.1f})")
    if is_far(verdict):
        parts.append(
            f"far from f16 in what the model says (divergence {verdict.kl:.2f} nats, "
            f"the same likeliest token {verdict.agreement:.0%} of the time)"
        )
    if not parts:
        return None
    return (
        f"The cache type {_types_text(verdict.type_k, verdict.type_v)} is {' and '.join(parts)} "
        f"with this model on this machine. {' '.join(['/cache', *step_back(verdict)])} goes back to a safer one."
    )


def step_back(verdict: Verdict) -> tuple[CacheType, ...]:
    """The types to take instead, for `/cache`: f16 where it is about speed, else one step less for what is quantized
    most."""
    if not is_far(verdict):
        return ("f16",)
    pair = (verdict.type_k, verdict.type_v)
    most = next(step for step in reversed(_LADDER) if set(step) & set(pair))
    type_k, type_v = (_BACK[each] if each in most else each for each in pair)
    return (type_k,) if type_k == type_v else (type_k, type_v)


def sentence(verdict: Verdict) -> str:
    """The figures, for `kvchat doctor`."""
    parts = []
    if verdict.speed is not None and verdict.f16_speed is not None:
        ratio = verdict.speed / verdict.f16_speed
        parts.append(f"decode {verdict.speed:.1f} tokens/s at depth 1,024, {ratio:.2f} of f16")
    if verdict.positions:
        parts.append(f"divergence from f16 {verdict.kl:.4f} nats, same likeliest token {verdict.agreement:.0%}")
    if verdict.noise is not None:
        parts.append(f"noise {verdict.noise:.4f} nats")
    if is_slow(verdict) or is_far(verdict):
        parts.append("WARNING: slower or farther from f16 than it should be")
    return "; ".join(parts)


def read_report(state_folder: Path) -> list[str]:
    """Sentences for `kvchat doctor`: what was found here."""
    return [
        f"{entry.model}, cache {entry.types}: "
        + (sentence(entry.verdict) if entry.verdict else "the engine died while it was checked")
        for entry in _read(state_folder).values()
    ]


def _types_text(type_k: str, type_v: str) -> str:
    return type_k if type_k == type_v else f"{type_k}/{type_v}"


# ------------------------------------------------------------------ the file


def _read(state_folder: Path) -> dict[str, Entry]:
    entries = {}
    for key, fields in read_json(state_folder / FILE).items():
        entry = _entry(fields)
        if entry is not None:
            entries[key] = entry
    return entries


def _entry(fields: object) -> Entry | None:
    if not isinstance(fields, Mapping) or "verdict" not in fields:
        return None
    verdict = _verdict(fields["verdict"])
    if verdict is None and fields["verdict"] is not None:
        return None
    return Entry(str(fields.get("model", "")), str(fields.get("types", "")), verdict)


def _verdict(fields: object) -> Verdict | None:
    if not isinstance(fields, Mapping):
        return None
    type_k, type_v = (_type(fields.get(name)) for name in ("type_k", "type_v"))
    speed, f16_speed = (_number(fields.get(name)) for name in ("speed", "f16_speed"))
    kl, agreement, noise = (_number(fields.get(name)) for name in ("kl", "agreement", "noise"))
    positions = fields.get("positions")
    if type_k is None or type_v is None or kl is None or agreement is None:
        return None
    if type(positions) is not int or positions < 0 or 0 in (speed, f16_speed):
        return None
    return Verdict(type_k, type_v, speed, f16_speed, positions, kl, agreement, noise)


def _type(value: object) -> CacheType | None:
    return next((known for known in CACHE_TYPES if known == value), None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        return None
    return float(value)

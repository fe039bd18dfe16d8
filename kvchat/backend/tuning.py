"""What was measured on this machine, by model, build and cache type: flash attention, threads, what drafts cost.

Owns `state/tuning.json`; must not measure. Losing the file costs one more measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.backend.journal import configuration_key, read_json, write_json
from kvchat.backend.protocol import Tuned
from kvchat.backend.values import EngineConfig

FILE = "tuning.json"
MOST = 200  # entries that are kept, newest last


@dataclass(frozen=True, slots=True)
class Entry:
    """The best setting for one configuration, and what was measured. `threads` 0: nothing, since measuring began and
    the engine did not live to tell; it is not tried again. `draft_costs`: see EngineConfig."""

    model: str
    types: str
    flash_attention: bool
    threads: int
    sentences: tuple[str, ...]
    draft_costs: tuple[float, ...] = ()


class TuningBook:
    """Remembers measurements between starts."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder
        self._entries = _read(state_folder)

    def apply(self, config: EngineConfig) -> EngineConfig:
        """Put what was measured in place of what is left open; where nothing was, ask the engine to measure."""
        found = self._entries.get(configuration_key(config))
        if found is None:
            return replace(config, tune=True)
        flash = config.flash_attention
        if not found.threads:
            return config
        if flash == "auto":
            flash = "on" if found.flash_attention else "off"
        return replace(
            config,
            flash_attention=flash,
            threads=config.threads or found.threads,
            draft_costs=found.draft_costs,
            tune=not found.draft_costs,
        )

    def fatal(self, config: EngineConfig) -> None:
        """Note that an engine died while it may have been measuring."""
        self._keep(config, Tuned(False, 0, ("the engine died while it was measured",)))

    def remember(self, config: EngineConfig, tuned: Tuned) -> None:
        """Keep a measurement for `config`, as it was before `apply`."""
        self._keep(config, tuned)

    def _keep(self, config: EngineConfig, tuned: Tuned) -> None:
        types = f"{config.type_k}/{config.type_v}"
        name, flash = Path(config.model_path).stem, tuned.flash_attention
        entry = Entry(name, types, flash, tuned.threads, tuned.sentences, tuned.draft_costs)
        key = configuration_key(config)
        self._entries.pop(key, None)
        self._entries[key] = entry
        content = {k: _fields(v) for k, v in list(self._entries.items())[-MOST:]}
        write_json(self._folder, FILE, content)


def read_report(state_folder: Path) -> list[str]:
    """Sentences for `kvchat doctor`: what was measured here."""
    return [
        f"{entry.model}, cache {entry.types}: {'; '.join(entry.sentences)}" for entry in _read(state_folder).values()
    ]


def _fields(entry: Entry) -> dict[str, object]:
    return {
        "model": entry.model,
        "types": entry.types,
        "flash_attention": entry.flash_attention,
        "threads": entry.threads,
        "sentences": list(entry.sentences),
        "draft_costs": list(entry.draft_costs),
    }


def _read(state_folder: Path) -> dict[str, Entry]:
    entries = {}
    for key, fields in read_json(state_folder / FILE).items():
        entry = _entry(fields)
        if entry is not None:
            entries[key] = entry
    return entries


def _entry(fields: object) -> Entry | None:
    if not isinstance(fields, Mapping):
        return None
    flash, threads, sentences = fields.get("flash_attention"), fields.get("threads"), fields.get("sentences")
    if not isinstance(flash, bool) or type(threads) is not int or threads < 0 or not isinstance(sentences, list):
        return None
    said = tuple(str(sentence) for sentence in sentences)
    costs = _costs(fields.get("draft_costs"))
    return Entry(str(fields.get("model", "")), str(fields.get("types", "")), flash, threads, said, costs)


def _costs(field: object) -> tuple[float, ...]:
    """A cost curve: it begins with 1 and never falls. Empty for anything else."""
    if not isinstance(field, list) or not all(type(each) in (int, float) for each in field):
        return ()
    costs = tuple(float(each) for each in field)
    fine = all(1 <= each < 1000 for each in costs) and costs[:1] == (1.0,) and list(costs) == sorted(costs)
    return costs if fine else ()

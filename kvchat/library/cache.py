"""What was read from files, kept until the file changes. Owns one JSON file; must not know what the facts mean.

A file is known by its path, size and time of change. The cache may be lost or damaged at any time: then it is empty,
and what it held is read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import kvchat
from kvchat.config_write import replace_file
from kvchat.errors import KvchatError

Fact = str | int | None
Facts = Mapping[str, Fact]

_VERSION = f"1 {kvchat.__version__}"  # another version may read other things from the same file
_LARGEST = 16 << 20  # bytes of the file
_MOST_FILES = 20_000


@dataclass(slots=True)
class _Entry:
    """What is known of the file when it had this size (bytes) and this time of change (ns), by kind."""

    size: int
    changed: int
    facts: dict[str, Facts] = field(default_factory=dict)


class FactCache:
    """`get` and `save`. Two programs may have the same file: the last one to save wins, and only time is lost."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _read(file)
        self._met: set[str] = set()
        self._new = False

    def get(self, path: Path, kind: str, make: Callable[[], Facts]) -> Facts:
        """The facts of this kind about the file, made when they are not known. Errors of `make` go on, and nothing is
        kept; OSError when the file is gone."""
        info, name = path.stat(), str(path)
        self._met.add(name)
        entry = self._known.get(name)
        if entry is None or (entry.size, entry.changed) != (info.st_size, info.st_mtime_ns):
            entry = self._known[name] = _Entry(info.st_size, info.st_mtime_ns)
        if kind not in entry.facts:
            entry.facts[kind] = make()
            self._new = True
        return entry.facts[kind]

    def forget(self) -> None:
        """Everything is to be read again."""
        self._known.clear()

    def save(self) -> None:
        """Write what is new, without files that are gone. A disk that refuses does not matter."""
        if not self._new:
            return
        kept = {name: entry for name, entry in self._known.items() if name in self._met or Path(name).exists()}
        rows = [[name, entry.size, entry.changed, entry.facts] for name, entry in list(kept.items())[-_MOST_FILES:]]
        with suppress(KvchatError):
            replace_file(self._file, json.dumps({"version": _VERSION, "files": rows}, default=dict))
        self._new = False


def _read(file: Path) -> dict[str, _Entry]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        found = json.loads(data) if len(data) <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        return {}
    rows = found.get("files")
    return dict(entry for row in rows if (entry := _entry(row))) if isinstance(rows, list) else {}


def _entry(row: object) -> tuple[str, _Entry] | None:
    match row:
        case [str(name), int(size), int(changed), dict(facts)] if all(map(_is_facts, facts.values())):
            return name, _Entry(size, changed, facts)
    return None


def _is_facts(facts: object) -> bool:
    return isinstance(facts, dict) and all(value is None or isinstance(value, str | int) for value in facts.values())

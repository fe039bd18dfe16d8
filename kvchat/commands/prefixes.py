"""Pinned prefixes on the command line: which there are, how one is let go. Owns how they are listed; needs no engine.

`kv pin` is in prefixes_pin.
"""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kvchat.chats.prefixes import Computation, Prefix
from kvchat.chats.store import ChatStore
from kvchat.clean import clean_line
from kvchat.commands.database import open_chats
from kvchat.commands.table import print_table, size_text
from kvchat.kv.pinned import Held, held, one_of, unpin
from kvchat.paths import Paths

SETTLED = 60.0  # seconds after which a pin whose prefix nobody knows is not one that is just being made
_COLUMNS = ("prefix", "model", "k/v", "tokens", "size", "computed in", "uses", "saved", "chats", "state")
_NUMBERS = {"tokens", "size", "computed in", "uses", "saved", "chats"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A prefix with one of its computations, None where it has none, and what the page store has of that."""

    prefix: Prefix
    computation: Computation | None
    held: Held | None

    @property
    def state(self) -> str:
        """Whether it is of use, in words."""
        if self.computation is None:
            return "not computed"
        return "not pinned any more" if self.held is None else self.held.state


def listed(paths: Paths) -> list[Listed]:
    """All prefixes by name, one entry for each of their computations."""
    if not paths.chats_db.exists():
        return []
    with open_chats(paths) as store:
        prefixes = store.prefixes.all()
    return entries(prefixes, held(paths.kv_folder) if prefixes else [])


def entries(prefixes: Sequence[Prefix], found: Sequence[Held]) -> list[Listed]:
    """Prefixes with what the page store has of each of their computations."""
    result = []
    for prefix in prefixes:
        for each in prefix.computations or (None,):
            kept = None if each is None else one_of(found, prefix.id, each.namespace, each.last_key)
            result.append(Listed(prefix, each, kept))
    return result


def print_listed(found: Sequence[Listed], out: TextIO) -> None:
    """The table of `kv ls`."""
    print_table(_COLUMNS, map(_cells, found), out, numbers=_NUMBERS)


def told(entry: Listed) -> dict[str, object]:
    """As JSON has it: flat, in bytes, tokens and seconds."""
    prefix, found = entry.prefix, entry.computation
    return {
        "prefix": prefix.name,
        "id": prefix.id,
        "model": found.model if found is not None else None,
        "type_k": found.type_k if found is not None else None,
        "type_v": found.type_v if found is not None else None,
        "namespace": found.namespace if found is not None else None,
        "tokens": found.tokens if found is not None else 0,
        "pages": entry.held.pages if entry.held is not None else 0,
        "missing": entry.held.missing if entry.held is not None else 0,
        "bytes": entry.held.bytes if entry.held is not None else 0,
        "seconds": found.seconds if found is not None else 0.0,
        "uses": prefix.uses,
        "seconds_saved": prefix.seconds_saved,
        "chats": prefix.chats,
        "documents": [document.name for document in prefix.documents],
        "created": prefix.created,
        "computed_at": found.computed_at if found is not None else None,
        "state": entry.state,
        "pinned": entry.held is not None,
    }


def _cells(entry: Listed) -> tuple[str, ...]:
    prefix, found = entry.prefix, entry.computation
    return (
        clean_line(prefix.name),
        clean_line(found.model) if found is not None else "-",
        f"{found.type_k}/{found.type_v}" if found is not None else "-",
        f"{found.tokens}" if found is not None else "-",
        size_text(entry.held.bytes) if entry.held is not None else "-",
        seconds_text(found.seconds) if found is not None else "-",
        str(prefix.uses),
        seconds_text(prefix.seconds_saved),
        str(prefix.chats),
        entry.state,
    )


def seconds_text(seconds: float) -> str:
    """A duration for a person."""
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def run_unpin(paths: Paths, name: str, *, json: bool, out: TextIO) -> int:
    """Let a prefix go: its name, its text, and that its pages are kept. Chats on it keep its text. Exit code 0.
    KvchatError when there is none."""
    with open_chats(paths) as store:
        prefix = store.prefixes.find(name)
        drop_orphans(paths.kv_folder, store)
        pins = unpin(paths.kv_folder, prefix.id) if paths.kv_folder.is_dir() else 0
        store.prefixes.remove(prefix.id)
    if json:
        print(jsonlib.dumps([{"prefix": prefix.name, "id": prefix.id, "pins": pins}], indent=2), file=out)
    else:
        print(f"{clean_line(prefix.name)} is not pinned any more; its pages go when the store needs room", file=out)
    return 0


def drop_orphans(kv_folder: Path, store: ChatStore) -> None:
    """Let go what is pinned for prefixes that nobody knows any more: a program that was killed left it, or the chats
    were moved away."""
    known = {prefix.id for prefix in store.prefixes.all()}
    for each in held(kv_folder):
        if each.pin.prefix not in known and time.time() - each.made > SETTLED:
            unpin(kv_folder, each.pin.prefix)

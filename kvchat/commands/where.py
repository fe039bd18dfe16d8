"""`kvchat paths`: where things are. Must not make or open any of them."""

from __future__ import annotations

import json as jsonlib
from dataclasses import fields
from typing import TextIO

from kvchat.paths import Paths

_NAMES = {
    "config_file": "settings",
    "chats_db": "chats",
    "kv_folder": "KV pages",
    "models_folder": "models",
    "state_folder": "state",
    "log_file": "engine log",
}


def run_paths(paths: Paths, *, json: bool, out: TextIO) -> int:
    """Print every path; with `json` an object with the names of `Paths`."""
    values = {field.name: str(getattr(paths, field.name)) for field in fields(paths)}
    if json:
        print(jsonlib.dumps(values), file=out)
        return 0
    width = max(map(len, _NAMES.values()))
    for name, value in values.items():
        print(f"{_NAMES[name]:<{width}}  {value}", file=out)
    return 0

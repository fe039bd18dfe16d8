"""The person's keys.toml, read. Owns its form and what is said of its mistakes; must not know which actions there are.

`chat.new = "ctrl+t"` gives an action another key, a list gives it several, an empty list none. Tables are the same:
`[chat]` and below it `new = "ctrl+t"`. A mistake costs its line, and the rest holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvchat.paths import ensure_private
from kvchat.ui.key_names import NoKey, is_typed, key_of, shown

LARGEST = 1 << 16  # bytes
TYPING = frozenset({"chat", "prompt", "filter", "line"})  # where letters are text
# These places lie in the chat, and all places in the app.
WITHIN_CHAT = frozenset({"prompt", "browse", "chats", "filter", "line"})
_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_LINE = re.compile(r"\s*([\w.\-\"' ]+?)\s*=")


@dataclass(frozen=True, slots=True)
class KeysFile:
    """`wanted`: action -> its keys, in the order of the file. `lines`: where each stands. `problems` are sentences with
    file and line."""

    path: Path
    wanted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def at(self, name: str, sentence: str) -> str:
        """The sentence with the place that it is about."""
        return _at(self.path, self.lines.get(name), sentence)


def read_keys(path: Path) -> KeysFile:
    """The file; one that is not there wants nothing."""
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        return KeysFile(path)
    except OSError as error:
        return KeysFile(path, problems=(f"{path} cannot be read: {error.strerror}",))
    if len(data) > LARGEST:
        return KeysFile(path, problems=(f"{path} is too large for a file of keys",))
    import tomllib  # most have no such file, and the first frame comes sooner without

    try:
        text = data.decode("utf-8")
        parsed = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        return KeysFile(path, problems=(f"{path} is not valid TOML: {error}",))
    return _keys(path, dict(_flat(parsed)), _lines(text))


def write_template(path: Path, text: str) -> bool:
    """Make the file, with mode 0600, unless there is one. KvchatError: the folder cannot be had; OSError: the disk."""
    ensure_private(path.parent)
    try:
        with open(path, "x", encoding="utf-8", opener=_private) as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _keys(path: Path, values: Mapping[str, object], lines: Mapping[str, int]) -> KeysFile:
    wanted: dict[str, tuple[str, ...]] = {}
    owners: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for name, value in values.items():
        keys: list[str] = []
        for written in _written(value):
            try:
                key = _allowed(name, written, owners)
            except NoKey as problem:
                problems.append(_at(path, lines.get(name), f"{name}: {problem}"))
                continue
            keys.append(key)
            owners[_place(name), key] = name
        if keys or value == []:
            wanted[name] = tuple(dict.fromkeys(keys))
    return KeysFile(path, wanted, lines, tuple(problems))


def _allowed(name: str, written: object, owners: Mapping[tuple[str, str], str]) -> str:
    if not isinstance(written, str):
        raise NoKey('a key is a text, such as "ctrl+t"')
    key, place = key_of(written), _place(name)
    if place in TYPING and is_typed(key):
        raise NoKey(f"{shown(key)} is what one types there; hold ctrl or alt with it, or take a function key")
    owner = owners.get((place, key), name)
    if owner != name:
        raise NoKey(f"{shown(key)} is already for {owner}")
    return key


def is_within(one: str, other: str) -> bool:
    """Whether the action `one` is in a place that lies in that of `other`, so that the keys of both count there."""
    return _place(one) != _place(other) and (
        _place(other) == "app" or (_place(other) == "chat" and _place(one) in WITHIN_CHAT)
    )


def same_place(one: str, other: str) -> bool:
    """Whether the actions are in one place, where a key can mean one thing."""
    return _place(one) == _place(other)


def _place(name: str) -> str:
    return name.partition(".")[0]


def _written(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    if isinstance(value, str) and len(value) > 1:
        return [part for part in value.split(",") if part.strip()]
    return [value]


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines(text: str) -> dict[str, int]:
    """On which line each name seems to stand."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = _bare(match[1]) + "."
        elif match := _LINE.match(line):
            found.setdefault(table + _bare(match[1]), number)
    return found


def _bare(name: str) -> str:
    return re.sub(r"[\"'\s]", "", name)


def _at(path: Path, line: int | None, sentence: str) -> str:
    return f"{path}:{line}: {sentence}" if line else f"{path}: {sentence}"

"""System prompts with a name, one Markdown file each in a folder. Owns their form; must not know chats or widgets.

A file each, so that a damaged one costs nothing but itself, and saving one never rewrites another. The text of the file
is the system prompt. Above it there may be sampling, in TOML between two lines of +++, with the names of config.toml:

    +++
    temp = 0.3
    +++
    You are brief and exact.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvchat.clean import clean
from kvchat.config_options import BadValue, nearest, shown
from kvchat.config_write import replace_file, toml_value
from kvchat.errors import KvchatError
from kvchat.ui.sampling_fields import SAMPLING

ENDING = ".md"
FENCE = "+++"
LARGEST = 1 << 18  # bytes of a file
MOST = 200  # presets that are read
_NAME = re.compile(r"[^\W_](?:[\w .+-]{0,58}[\w+-])?")
_LINE = re.compile(r"at line (\d+)")
_FIELDS = {each.key: each for each in SAMPLING}
_KEYS = {each.name: each.key for each in SAMPLING}


@dataclass(frozen=True, slots=True)
class Preset:
    """`sampling` are values of `Sampling` by name. `problem`: why the file cannot be used, with the place in it."""

    name: str
    path: Path
    system: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


class _Wrong(Exception):
    """What is wrong with a file, and on which line."""

    def __init__(self, sentence: str, line: int = 0) -> None:
        super().__init__(sentence)
        self.line = line


def presets_folder(config_file: Path) -> Path:
    """Where presets lie."""
    return config_file.with_name("presets")


def read_presets(folder: Path) -> tuple[Preset, ...]:
    """All of them by name, those that cannot be used too. A folder that is not there has none."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ENDING and entry.name[0] != ".")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KvchatError(f"{folder} cannot be read: {error.strerror}", "look at its rights") from error
    return tuple(read_preset(folder / name) for name in names[:MOST])


def read_preset(path: Path) -> Preset:
    """One file."""
    try:
        system, sampling = _parsed(_read(path))
    except _Wrong as wrong:
        return Preset(path.stem, path, problem=f"{path}{f':{wrong.line}' if wrong.line else ''}: {wrong}")
    return Preset(path.stem, path, system, sampling)


def find_preset(name: str, presets: Sequence[Preset]) -> Preset:
    """The one with this name, in any case. KvchatError, with the one that was probably meant."""
    found = next((each for each in presets if each.name.casefold() == name.casefold()), None)
    if found is None:
        guess = nearest(name, [each.name for each in presets])
        raise KvchatError(
            f"there is no preset {shown(name)}", f"did you mean {guess}?" if guess else "/preset lists them"
        )
    return found


def write_preset(folder: Path, name: str, system: str, sampling: Mapping[str, Any]) -> Path:
    """Make the file, with mode 0600. One of this name stays beside it, as NAME.md~ or NAME.md~2. KvchatError: the disk
    refuses, or the name cannot be that of a file."""
    path = _path(folder, name)
    values = {_KEYS[name]: -1 if value is None else value for name, value in sampling.items()}
    head = "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items())
    fenced = f"{FENCE}\n{head}{FENCE}\n" if head or system.startswith(FENCE) else ""
    aside = next(file for count in range(1, 1 << 20) if not (file := _aside(path, count)).exists())
    had = path.exists() or path.is_symlink()
    try:
        if had:
            path.replace(aside)
        replace_file(path, f"{fenced}{system}\n")
    except KvchatError:
        with suppress(OSError):
            if had:
                aside.replace(path)
        raise
    except OSError as error:
        raise KvchatError(f"{path} cannot be replaced: {error.strerror}", "look at its rights") from error
    return path


def _aside(path: Path, count: int) -> Path:
    return path.with_name(f"{path.name}~{count if count > 1 else ''}")


def _path(folder: Path, name: str) -> Path:
    """The file of that name, or of one that is the same but for capitals."""
    if not _NAME.fullmatch(name) or len(os.fsencode(name)) > 200 or name.casefold() == "save":
        raise KvchatError(f"{shown(name)} cannot be the name of a preset", "take letters and digits, at most 60")
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.suffix == ENDING and entry.stem.casefold() == name.casefold():
                return entry
    return folder / f"{name}{ENDING}"


def _read(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would never end
            raise _Wrong("is no file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise _Wrong(f"cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise _Wrong(f"is larger than the {LARGEST >> 10} KiB that a preset may have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Wrong("is not UTF-8 text", data[: error.start].count(b"\n") + 1) from error


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return clean(text).strip("\n"), {}
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise _Wrong(f"the {FENCE} at the beginning has no second one", 1)
    return clean("\n".join(lines[end + 1 :])).strip("\n"), _sampling(lines[1:end])


def _sampling(lines: Sequence[str]) -> dict[str, Any]:
    """What the lines after the first one of the file say."""
    try:
        values = tomllib.loads("\n".join(["", *lines]))  # an empty one, so that numbers are those of the file
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = _LINE.search(str(error))
        raise _Wrong(f"is not valid TOML: {error}", int(match[1]) if match else 2) from error
    found: dict[str, Any] = {}
    for written, value in values.items():
        key, at = written.replace("-", "_"), _line_of(written, lines)
        if key not in _FIELDS:
            guess = nearest(key, _FIELDS)
            raise _Wrong(f"there is no sampling {shown(written)}" + (f", did you mean {guess}?" if guess else ""), at)
        try:
            found[_FIELDS[key].name] = _FIELDS[key].taken(value)
        except BadValue as bad:
            raise _Wrong(f"{key}: {bad.problem}. {bad.hint}".rstrip(), at) from None
    return found


def _line_of(name: str, lines: Sequence[str]) -> int:
    pattern = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
    return next((number for number, line in enumerate(lines, 2) if pattern.match(line)), 1)

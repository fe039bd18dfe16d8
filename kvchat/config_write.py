"""Values into config.toml. Owns the edit of single `key = value` lines; all other lines stay as the person wrote them.

Must not decide what is worth saving, beyond not writing down what is so anyway. The file is replaced in one step, so a
crash leaves the old one, and the result is parsed before it replaces anything: an edit that would change another key,
or that TOML does not understand, is refused.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kvchat.backend.values import DraftMode, EngineConfig, History, OverflowPolicy, Sampling
from kvchat.config_options import NO_DRAFT_MODEL
from kvchat.errors import KvchatError
from kvchat.leftovers import sweep, unfinished
from kvchat.paths import ensure_private

Scalar = str | int | float | bool | Sequence[str]

_LARGEST = 1 << 20  # bytes, as the reader of the file has it
_BY_HAND = "edit the file by hand, or move it away"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # TOML's lines; str.splitlines knows more ends than that
_KEY = re.compile(r"""\s*(?:"(?P<quoted>[\w-]+)"|'(?P<literal>[\w-]+)'|(?P<bare>[\w-]+))\s*=\s*""", re.ASCII)
_STRING = r""""(?!"")(?:[^"\\\n]|\\.)*"|'(?!'')[^'\n]*'"""
# A value on one line: a string without line breaks, a list of such, or anything up to white space or a comment.
_VALUE = re.compile(rf"""(?:{_STRING}|\[(?:{_STRING}|[\s,])*\]|[^\s"'#\[{{]+)(?=\s*(?:#.*)?$)""")

_SURROGATE = re.compile("[\ud800-\udfff]")  # an undecodable byte of a file name, which TOML cannot hold


def save_engine_defaults(file: Path, config: EngineConfig) -> None:
    """Make this configuration the one that the program starts with. Values that are the built-in default are written
    only over others. KvchatError: the file cannot be read, is not TOML, or cannot be written."""
    plain = EngineConfig("")
    values: dict[str, Scalar] = {
        "model": config.model_path,
        "ctx_size": config.context,
        "cache_type_k": config.type_k,
        "cache_type_v": config.type_v,
        "flash_attn": config.flash_attention,
        "threads": config.threads,
        "n_gpu_layers": config.gpu_layers,
        "kv_budget": config.kv_budget,
        "kv_type_disk": config.kv_type_disk,
        "parallel": config.parallel,
        "favour": config.favour,
        "read_ahead": config.read_ahead,
        "model_draft": config.draft_path or NO_DRAFT_MODEL,
    }
    usual = {
        "ctx_size": plain.context,
        "cache_type_k": plain.type_k,
        "cache_type_v": plain.type_v,
        "flash_attn": plain.flash_attention,
        "threads": plain.threads,
        "n_gpu_layers": plain.gpu_layers,
        "kv_budget": plain.kv_budget,
        "kv_type_disk": plain.kv_type_disk,
        "parallel": plain.parallel,
        "favour": plain.favour,
        "read_ahead": plain.read_ahead,
        "model_draft": NO_DRAFT_MODEL,
    }
    _save(file, values, usual)


def save_chat_defaults(
    file: Path, sampling: Sampling, history: History, draft: DraftMode, overflow: OverflowPolicy
) -> None:
    """Make these what chats have that have nothing of their own. As `save_engine_defaults`."""
    _save(file, _chat_values(sampling, history, draft, overflow), _chat_values(Sampling(), "append", "auto", "stop"))


def _chat_values(sampling: Sampling, history: History, draft: DraftMode, overflow: OverflowPolicy) -> dict[str, Scalar]:
    return {
        "temp": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "repeat_last_n": sampling.repeat_last_n,
        "seed": -1 if sampling.seed is None else sampling.seed,
        "predict": -1 if sampling.max_tokens is None else sampling.max_tokens,
        "stop": sampling.stop,
        "history": history,
        "draft": draft,
        "overflow": overflow,
    }


def _save(file: Path, values: Mapping[str, Scalar], usual: Mapping[str, Scalar]) -> None:
    present = {_name(key) for key in _parsed(file, _read(file))}
    write_values(file, {key: value for key, value in values.items() if key in present or value != usual.get(key)})


def write_values(file: Path, values: Mapping[str, Scalar]) -> None:
    """Set these keys in the file, which is made when it is missing, with mode 0600. Errors as above."""
    before = text = _read(file)
    standing = _normal(_parsed(file, text))
    for key, value in values.items():
        if _same(standing.get(key), value):
            continue
        edited = next(
            (attempt for attempt in _attempts(text, key, value) if _differs_in(text, attempt, key, value)), None
        )
        if edited is None:
            raise KvchatError(f"{file} is written in a way that a program cannot change: {key}", _BY_HAND)
        text = edited
    if text != before:
        replace_file(file, text)


def _attempts(text: str, key: str, value: Scalar) -> Iterator[str]:
    """`text` with the value in a line that seems to be the key's, or in a new line: at the end, else before what may be
    the first table, else at the top. Which of them is right, the parser says: a line can be part of a longer string."""
    written = toml_value(value)
    if not _SURROGATE.search(written):
        lines = _LINE.findall(text)
        for index, line in enumerate(lines):
            match = _KEY.match(line)
            old = _VALUE.match(line, match.end()) if match else None
            if match and old and _name(match["quoted"] or match["literal"] or match["bare"]) == key:
                yield "".join([*lines[:index], line[: old.start()], written, line[old.end() :], *lines[index + 1 :]])
        ending = "\r\n" if "\r\n" in text else "\n"
        tables = [index for index, line in enumerate(lines) if line.lstrip().startswith("[")]
        for index in (len(lines), *tables[:1], 0):
            above = "".join(lines[:index])
            above += ending if above and not above.endswith(("\n", "\r")) else ""
            yield "".join([above, f"{key} = {written}{ending}", *lines[index:]])


def _differs_in(text: str, edited: str, key: str, value: Scalar) -> bool:
    """Whether the edit sets the key and nothing else."""
    try:
        found, expected = _normal(tomllib.loads(edited)), _normal(tomllib.loads(text))
        return _same(found.pop(key, None), value) and found == {
            name: expected[name] for name in expected if name != key
        }
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def toml_value(value: Scalar) -> str:
    """The value as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        return f"[{', '.join(map(toml_value, value))}]"
    # What JSON escapes, TOML escapes alike; of the control characters JSON lets DEL through.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _same(found: object, value: Scalar) -> bool:
    """Whether TOML's value says the same; 1 is not true."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return found == list(value)
    return found == value and isinstance(found, bool) == isinstance(value, bool)


def _name(key: str) -> str:
    return key.replace("-", "_")


def _normal(values: Mapping[str, object]) -> dict[str, object]:
    return {_name(key): value for key, value in values.items()}


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise KvchatError(f"{file} cannot be read: {error.strerror}", "look at its rights, or move it away") from error
    if len(data) > _LARGEST:
        raise KvchatError(f"{file} is too large for a settings file", "move it away")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KvchatError(f"{file} is not valid TOML: {error}", _BY_HAND) from error


def _parsed(file: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise KvchatError(f"{file} is not valid TOML: {error}", _BY_HAND) from error


def replace_file(file: Path, text: str) -> None:
    """Put the text in the place of the file, or of what it links to, in one step. KvchatError when the disk refuses."""
    target = Path(os.path.realpath(file))
    ensure_private(target.parent)
    sweep(target.parent)
    temporary = unfinished(target)
    try:
        with open(temporary, "wb", opener=_private) as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise KvchatError(f"{file} cannot be written: {error.strerror}", "look at its rights and the disk") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)

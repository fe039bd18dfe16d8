"""The settings that exist: their names in each source, and what their values may be.

Owns that table and the reading of single values; must not know where a value came from or which source wins.

Every reader takes what TOML gives (typed) or a text (environment, flags) and returns the value, or raises `BadValue`
with a sentence that goes on after the name of the setting.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kvchat.backend.choices import CACHE_TYPES, DISK_TYPES, DRAFT_MODES, OVERFLOW_POLICIES
from kvchat.clean import encodable

AUTOMATIC_GPU_LAYERS = -1
ALL_GPU_LAYERS = 9999  # more than any model has: llama.cpp takes it as "all"
LARGEST_SEED = 2**32 - 2  # 2**32 - 1 is LLAMA_DEFAULT_SEED, "draw one"
LARGEST_COUNT = 2**31 - 1
FOLLOWS = ("bottom", "start", "off")
NO_DRAFT_MODEL = "none"
_LARGEST_SIZE = 2**60
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS |= {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}
# llama.cpp's other words for the same (is_truthy, is_falsey, is_autoy in common/arg.cpp)
_FLASH_WORDS = {"enabled": "on", "true": "on", "1": "on", "disabled": "off", "false": "off", "0": "off", "-1": "auto"}
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
_SIZE = re.compile(r"([0-9]{1,300}(?:\.[0-9]{1,30})?)\s*([kmgt]i?)?b?", re.IGNORECASE)


class BadValue(Exception):
    """`problem` completes "SETTING: ..."; `hint` says what would do."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `key` is its name in config.toml; KVCHAT_ and the key in capitals is its variable. `flag` is what a
    person writes on the command line, `llama` llama.cpp's variable for the same; either is "" where there is none."""

    key: str
    read: Callable[[object], object]
    flag: str
    llama: str = ""

    @property
    def variable(self) -> str:
        return f"KVCHAT_{self.key.upper()}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def shown(value: object) -> str:
    """A value that somebody typed, fit for an error message: quoted, without control characters, not endless."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue(f"{shown(value)} is not a text")
    return encodable(value)


def _nonempty_text(value: object) -> str:
    text = _text(value)
    if not text.strip():
        raise BadValue("is empty")
    return text


def _integer(value: object, least: int, most: int, hint: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,12}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{shown(value)} is not a whole number", hint)
    if not least <= value <= most:
        raise BadValue(f"{value} is not between {least} and {most}", hint)
    return value


def _number(value: object, least: float, most: float, hint: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise BadValue(f"{shown(value)} is not a number", hint) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{shown(value)} is not a number", hint)
    if not math.isfinite(value) or not least <= value <= most:
        raise BadValue(f"{value} is not between {least:g} and {most:g}", hint)
    return float(value)


def _choice(value: object, known: tuple[str, ...], what: str) -> str:
    if isinstance(value, str) and value.strip().lower() in known:
        return value.strip().lower()
    guess = nearest(value, known) if isinstance(value, str) else None
    hint = (f"did you mean {guess}? " if guess else "") + f"there are: {', '.join(known)}"
    raise BadValue(f"{shown(value)} is not {what}", hint)


def _context(value: object) -> int:
    return _integer(value, 0, LARGEST_COUNT, "a number of tokens, or 0 for an automatic choice")


def _cache_type(value: object) -> str:
    return _choice(value, CACHE_TYPES, "a cache type")


def _disk_type(value: object) -> str:
    return _choice(value, DISK_TYPES, "a cache type for the disk")


def _flash_attention(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str) and value.lower() in _FLASH_WORDS:
        return _FLASH_WORDS[value.lower()]
    return _choice(value, ("on", "off", "auto"), "a choice for flash attention")


def _gpu_layers(value: object) -> int:
    if isinstance(value, str) and value.lower() in {"auto", "all"}:
        return AUTOMATIC_GPU_LAYERS if value.lower() == "auto" else ALL_GPU_LAYERS
    return _integer(value, AUTOMATIC_GPU_LAYERS, LARGEST_COUNT, "a number of layers, auto or all")


def _threads(value: object) -> int:
    # -1 is llama.cpp's word for "choose"
    return max(0, _integer(value, -1, 1024, "a number of threads, or 0 for an automatic choice"))


def _history(value: object) -> str:
    return _choice(value, ("append", "exact"), "a way to keep history")


def _overflow(value: object) -> str:
    return _choice(value, OVERFLOW_POLICIES, "an overflow policy")


def _draft(value: object) -> str:
    return "off" if value is False else _choice(value, DRAFT_MODES, "a way to draft")


def _draft_model(value: object) -> str | None:
    text = _text(value)
    return None if text.strip().lower() in {"", NO_DRAFT_MODEL} else text


def _follow(value: object) -> str:
    return _choice(value, FOLLOWS, "a way to follow an answer")


def _seed(value: object) -> int | None:
    seed = _integer(value, -1, LARGEST_SEED, "-1 draws another seed each time")
    return None if seed == -1 else seed


def _temperature(value: object) -> float:
    return _number(value, 0, 100, "0 always takes the likeliest token, 0.8 is usual")


def _top_k(value: object) -> int:
    return _integer(value, 0, LARGEST_COUNT, "0 turns it off")


def _probability(value: object) -> float:
    return _number(value, 0, 1, "a share between 0 and 1")


def _repeat_penalty(value: object) -> float:
    return _number(value, 0.01, 100, "1 turns it off")


def _repeat_last_n(value: object) -> int:
    return _integer(value, 0, LARGEST_COUNT, "a number of tokens; 0 turns the penalty off")


def _predict(value: object) -> int | None:
    count = _integer(value, -1, LARGEST_COUNT, "a number of tokens, or -1 to go on until the context is full")
    if count == 0:
        raise BadValue("an answer of 0 tokens is no answer", "give at least 1")
    return None if count == -1 else count


def _stop(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise BadValue(f"{shown(value)} is not a list of texts")
    stops = tuple(_text(text) for text in texts)
    if "" in stops:
        raise BadValue("an empty text would stop every answer at once")
    return stops


def _yes_or_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return _choice(value, ("yes", "no", "true", "false", "on", "off", "1", "0"), "yes or no") in {
        "yes",
        "true",
        "on",
        "1",
    }


def _folders(value: object) -> tuple[Path, ...]:
    hint = "whole paths, in config.toml as a list of texts"
    texts = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise BadValue(f"{shown(value)} is not a list of folders", hint)
    found = []
    for text in filter(None, map(_text, texts)):
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            path = Path(text)
        if not path.is_absolute() or "\0" in text:
            raise BadValue(f"{shown(text)} is not a whole path", hint)
        found.append(path)
    return tuple(found)


def _bytes(value: object) -> int:
    hint = "a size such as 8GiB or 500M, or 0 for an automatic choice"
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if not match:
        raise BadValue(f"{shown(value)} is not a size", hint)
    size = float(match[1]) * _UNITS[(match[2] or "").lower()]
    if size > _LARGEST_SIZE:
        raise BadValue(f"{shown(value)} is more than any disk holds", hint)
    return int(size)


OPTIONS: tuple[Option, ...] = (
    Option("model", _nonempty_text, "-m/--model", "LLAMA_ARG_MODEL"),
    Option("ctx_size", _context, "--ctx-size", "LLAMA_ARG_CTX_SIZE"),
    Option("cache_type_k", _cache_type, "-ctk/--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K"),
    Option("cache_type_v", _cache_type, "-ctv/--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V"),
    Option("flash_attn", _flash_attention, "-fa/--flash-attn", "LLAMA_ARG_FLASH_ATTN"),
    Option("n_gpu_layers", _gpu_layers, "-ngl/--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS"),
    Option("threads", _threads, "-t/--threads", "LLAMA_ARG_THREADS"),
    Option("model_draft", _draft_model, "-md/--model-draft", "LLAMA_ARG_SPEC_DRAFT_MODEL"),
    Option("draft", _draft, "--draft"),
    Option("overflow", _overflow, "--overflow"),
    Option("history", _history, "--history"),
    Option("seed", _seed, "--seed"),
    Option("temp", _temperature, "--temp"),
    Option("top_k", _top_k, "--top-k"),
    Option("top_p", _probability, "--top-p"),
    Option("min_p", _probability, "--min-p"),
    Option("repeat_penalty", _repeat_penalty, "--repeat-penalty"),
    Option("repeat_last_n", _repeat_last_n, "--repeat-last-n"),
    Option("predict", _predict, "-n/--predict"),
    Option("stop", _stop, "--stop"),
    Option("system", _text, "-s/--system"),
    Option("kv", _yes_or_no, "--no-kv"),
    Option("kv_budget", _bytes, "--kv-budget"),
    Option("kv_type_disk", _disk_type, "--kv-type-disk"),
    Option("theme", _nonempty_text, "--theme"),
    Option("mouse", _yes_or_no, ""),
    Option("follow", _follow, ""),
    Option("auto_title", _yes_or_no, ""),
    Option("model_folders", _folders, ""),
    Option("offline", _yes_or_no, "--offline", "LLAMA_ARG_OFFLINE"),
)
BY_KEY = {option.key: option for option in OPTIONS}

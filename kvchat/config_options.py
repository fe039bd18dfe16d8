"""The settings that exist: their names in each source, and what their values may be.

Owns that table, of which config_hardware has a part, and the reading of single values, as config_values has it. Must
not know where a value came from or which source wins.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kvchat.backend.choices import CACHE_TYPES, DISK_TYPES, DRAFT_MODES, FAVOURS, MOST_PARALLEL, OVERFLOW_POLICIES
from kvchat.config_hardware import HARDWARE_OPTIONS
from kvchat.config_remote import read_remote
from kvchat.config_values import (
    LARGEST_COUNT,
    BadValue,
    Option,
    choice,
    integer,
    nearest,
    nonempty_text,
    number,
    plain_text,
    shown,
    yes_or_no,
)
from kvchat.paths import typed_path

__all__ = ["BY_KEY", "OPTIONS", "BadValue", "Option", "nearest", "shown"]

AUTOMATIC_GPU_LAYERS = -1
ALL_GPU_LAYERS = 9999  # more than any model has: llama.cpp takes it as "all"
LARGEST_SEED = 2**32 - 2  # 2**32 - 1 is LLAMA_DEFAULT_SEED, "draw one"
FOLLOWS = ("bottom", "start", "off")
NO_DRAFT_MODEL = "none"
_LARGEST_SIZE = 2**60
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS |= {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}
# llama.cpp's other words for the same (is_truthy, is_falsey, is_autoy in common/arg.cpp)
_FLASH_WORDS = {"enabled": "on", "true": "on", "1": "on", "disabled": "off", "false": "off", "0": "off", "-1": "auto"}
_SIZE = re.compile(r"([0-9]{1,300}(?:\.[0-9]{1,30})?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def _context(value: object) -> int:
    return integer(value, 0, LARGEST_COUNT, "a number of tokens, or 0 for an automatic choice")


def _cache_type(value: object) -> str:
    return choice(value, CACHE_TYPES, "a cache type")


def _fit(value: object) -> str:
    return choice(value, ("ask", "off"), "a choice for what does not fit")


def _disk_type(value: object) -> str:
    return choice(value, DISK_TYPES, "a cache type for the disk")


def _flash_attention(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str) and value.lower() in _FLASH_WORDS:
        return _FLASH_WORDS[value.lower()]
    return choice(value, ("on", "off", "auto"), "a choice for flash attention")


def _gpu_layers(value: object) -> int:
    if isinstance(value, str) and value.lower() in {"auto", "all"}:
        return AUTOMATIC_GPU_LAYERS if value.lower() == "auto" else ALL_GPU_LAYERS
    return integer(value, AUTOMATIC_GPU_LAYERS, LARGEST_COUNT, "a number of layers, auto or all")


def _threads(value: object) -> int:
    # -1 is llama.cpp's word for "choose"
    return max(0, integer(value, -1, 1024, "a number of threads, or 0 for an automatic choice"))


def _parallel(value: object) -> int:
    # -1 is llama.cpp's word for "choose"
    return max(0, integer(value, -1, MOST_PARALLEL, "a number of answers, or 0 for an automatic choice"))


def _favour(value: object) -> str:
    return choice(value, FAVOURS, "a choice of what goes first")


def _history(value: object) -> str:
    return choice(value, ("append", "exact"), "a way to keep history")


def _overflow(value: object) -> str:
    return choice(value, OVERFLOW_POLICIES, "an overflow policy")


def _draft(value: object) -> str:
    return "off" if value is False else choice(value, DRAFT_MODES, "a way to draft")


def _draft_model(value: object) -> str | None:
    text = plain_text(value)
    return None if text.strip().lower() in {"", NO_DRAFT_MODEL} else text


def _follow(value: object) -> str:
    return choice(value, FOLLOWS, "a way to follow an answer")


def _seed(value: object) -> int | None:
    seed = integer(value, -1, LARGEST_SEED, "-1 draws another seed each time")
    return None if seed == -1 else seed


def _temperature(value: object) -> float:
    return number(value, 0, 100, "0 always takes the likeliest token, 0.8 is usual")


def _top_k(value: object) -> int:
    return integer(value, 0, LARGEST_COUNT, "0 turns it off")


def _probability(value: object) -> float:
    return number(value, 0, 1, "a share between 0 and 1")


def _repeat_penalty(value: object) -> float:
    return number(value, 0.01, 100, "1 turns it off")


def _repeat_last_n(value: object) -> int:
    return integer(value, 0, LARGEST_COUNT, "a number of tokens; 0 turns the penalty off")


def _predict(value: object) -> int | None:
    count = integer(value, -1, LARGEST_COUNT, "a number of tokens, or -1 to go on until the context is full")
    if count == 0:
        raise BadValue("an answer of 0 tokens is no answer", "give at least 1")
    return None if count == -1 else count


def _stop(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise BadValue(f"{shown(value)} is not a list of texts")
    stops = tuple(plain_text(each) for each in texts)
    if "" in stops:
        raise BadValue("an empty text would stop every answer at once")
    return stops


def _folders(value: object) -> tuple[Path, ...]:
    hint = "whole paths, in config.toml as a list of texts"
    texts = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise BadValue(f"{shown(value)} is not a list of folders", hint)
    found = []
    for text in filter(None, map(plain_text, texts)):
        path = typed_path(text)
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
    Option("model", nonempty_text, "-m/--model", "LLAMA_ARG_MODEL"),
    Option("ctx_size", _context, "--ctx-size", "LLAMA_ARG_CTX_SIZE"),
    Option("cache_type_k", _cache_type, "-ctk/--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K"),
    Option("cache_type_v", _cache_type, "-ctv/--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V"),
    Option("flash_attn", _flash_attention, "-fa/--flash-attn", "LLAMA_ARG_FLASH_ATTN"),
    Option("n_gpu_layers", _gpu_layers, "-ngl/--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS"),
    Option("threads", _threads, "-t/--threads", "LLAMA_ARG_THREADS"),
    *HARDWARE_OPTIONS,
    Option("parallel", _parallel, "-np/--parallel", "LLAMA_ARG_N_PARALLEL"),
    Option("favour", _favour, "--favour"),
    Option("read_ahead", yes_or_no, "--no-read-ahead"),
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
    Option("system", plain_text, "-s/--system"),
    Option("fit", _fit, "--fit"),
    Option("incognito", yes_or_no, "--incognito"),
    Option("kv", yes_or_no, "--no-kv"),
    Option("kv_budget", _bytes, "--kv-budget"),
    Option("kv_type_disk", _disk_type, "--kv-type-disk"),
    Option("theme", nonempty_text, "--theme"),
    Option("mouse", yes_or_no, ""),
    Option("follow", _follow, ""),
    Option("auto_title", yes_or_no, ""),
    Option("model_folders", _folders, ""),
    Option("offline", yes_or_no, "--offline", "LLAMA_ARG_OFFLINE"),
    Option("remote", read_remote, "--remote"),
)
BY_KEY = {option.key: option for option in OPTIONS}
# What an engine process is started with. A server that answers in its place was started with values of its own.
ENGINE_KEYS = (
    "model",
    "model_draft",
    "ctx_size",
    "cache_type_k",
    "cache_type_v",
    "flash_attn",
    "n_gpu_layers",
    "threads",
    *(option.key for option in HARDWARE_OPTIONS),
    *("parallel", "favour"),
)

"""The settings of how a machine runs a model, of positions (RoPE) and of LoRA adapters: names and readers.

Owns this part of the table of config_options, and which fields of `Hardware` and `Rope` the names mean. Must not know
whether a build of llama.cpp can do what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kvchat.backend.choices import ROPE_SCALINGS, SPLIT_MODES, Adapter, Hardware, Rope
from kvchat.config_values import (
    LARGEST_COUNT,
    BadValue,
    Option,
    choice,
    integer,
    number,
    plain_text,
    shown,
    yes_or_no,
)
from kvchat.paths import typed_path

_SMALLEST_BATCH, _LARGEST_BATCH = 32, 16384  # tokens; verification of drafts computes up to 16 at once
_MOST_DEVICES = 16  # of llama.cpp, GGML_SCHED_MAX_BACKENDS
_MOST_ADAPTERS = 16
_NONE = "none"
_SCALED = re.compile(r"(?P<path>.*):(?P<scale>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.DOTALL)

# Key in config.toml -> field.
HARDWARE_FIELDS = {
    "main_gpu": "main_gpu",
    "split_mode": "split_mode",
    "tensor_split": "tensor_split",
    "kv_offload": "kv_offload",
    "mmap": "mmap",
    "mlock": "mlock",
    "batch_size": "batch",
    "ubatch_size": "ubatch",
    "threads_batch": "threads_batch",
}
ROPE_FIELDS = {
    "rope_scaling": "scaling",
    "rope_freq_base": "freq_base",
    "rope_freq_scale": "freq_scale",
    "yarn_orig_ctx": "yarn_orig_ctx",
    "yarn_ext_factor": "yarn_ext_factor",
    "yarn_attn_factor": "yarn_attn_factor",
    "yarn_beta_slow": "yarn_beta_slow",
    "yarn_beta_fast": "yarn_beta_fast",
}


def hardware(values: Mapping[str, Any]) -> Hardware:
    """From values by key, of which other settings are passed over."""
    return Hardware(**{HARDWARE_FIELDS[key]: value for key, value in values.items() if key in HARDWARE_FIELDS})


def rope(values: Mapping[str, Any]) -> Rope:
    """As `hardware`."""
    return Rope(**{ROPE_FIELDS[key]: value for key, value in values.items() if key in ROPE_FIELDS})


def rope_problem(rope: Rope) -> str:
    """Why these settings contradict each other, "" if they do not."""
    if rope.scaling == "none" and rope.freq_scale is not None:
        return "--rope-freq-scale has no effect with --rope-scaling none"
    return ""


def _main_gpu(value: object) -> int:
    return integer(value, 0, _MOST_DEVICES - 1, "the number of a device, from 0; kvchat doctor lists them")


def _split_mode(value: object) -> str:
    return choice(value, SPLIT_MODES, "a way to split a model")


def _tensor_split(value: object) -> tuple[float, ...]:
    hint = "a share for each device, such as 3,1"
    shares = re.split(r"[,/]", value) if isinstance(value, str) else value
    if not isinstance(shares, list | tuple) or not 1 <= len(shares) <= _MOST_DEVICES:
        raise BadValue(f"{shown(value)} is not a list of shares", hint)
    found = tuple(number(share, 0, 1e6, hint) for share in shares)
    if not any(found):
        raise BadValue("all shares are 0", hint)
    return found


def _batch(value: object) -> int:
    size = integer(value, 0, _LARGEST_BATCH, "a number of tokens, or 0 for an automatic choice")
    if 0 < size < _SMALLEST_BATCH:
        raise BadValue(f"{size} is less than {_SMALLEST_BATCH}", f"{_SMALLEST_BATCH} tokens, or more")
    return size


def _threads_batch(value: object) -> int:
    # -1 is llama.cpp's word for "as many as threads"
    return max(0, integer(value, -1, 1024, "a number of threads, or 0 for as many as --threads"))


def _scaling(value: object) -> str:
    return choice(value, ROPE_SCALINGS, "a way to scale RoPE")


def _freq_base(value: object) -> float:
    return number(value, 1, 1e12, "the base frequency, such as 10000")


def _freq_scale(value: object) -> float:
    return number(value, 1e-6, 1e3, "the context grows by 1 divided by it, so 0.5 is twice the context")


def _orig_ctx(value: object) -> int:
    return integer(value, 1, LARGEST_COUNT, "the context in tokens that the model was trained for")


def _factor(value: object) -> float:
    return number(value, 0, 1e6, "a number, 0 or more")


def _lora(value: object) -> tuple[Adapter, ...]:
    """A text is one adapter, several are a list; "none" or "": no adapter."""
    said = [value] if isinstance(value, str) else value
    if not isinstance(said, list | tuple):
        raise BadValue(f"{shown(value)} is not a list of adapters", "PATH or PATH:SCALE, each")
    texts = [plain_text(each).strip() for each in said]
    if len(texts) == 1 and texts[0].lower() in {"", _NONE}:
        return ()
    adapters = tuple(map(_adapter, texts))
    if len(adapters) > _MOST_ADAPTERS:
        raise BadValue(f"{len(adapters)} adapters are too many", f"at most {_MOST_ADAPTERS}")
    paths = [adapter.path for adapter in adapters]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise BadValue(f"{shown(twice)} is named twice", "once, with the sum of the scales")
    return adapters


def _adapter(text: str) -> Adapter:
    match = _SCALED.fullmatch(text)
    path, scale = (match["path"], number(match["scale"], -1e3, 1e3, "a scale such as 0.5")) if match else (text, 1.0)
    if not path or path.lower() == _NONE or "\0" in path:
        raise BadValue(f"{shown(text)} is not the path of an adapter", "PATH or PATH:SCALE; none alone is no adapter")
    return Adapter(str(typed_path(path).absolute()), scale)


def _option(key: str, read: Callable[[object], object], flag: str, llama: str = "") -> Option:
    return Option(key, read, flag, f"LLAMA_ARG_{llama}" if llama else "")


HARDWARE_OPTIONS = (
    _option("main_gpu", _main_gpu, "-mg/--main-gpu", "MAIN_GPU"),
    _option("split_mode", _split_mode, "-sm/--split-mode", "SPLIT_MODE"),
    _option("tensor_split", _tensor_split, "-ts/--tensor-split", "TENSOR_SPLIT"),
    _option("kv_offload", yes_or_no, "-nkvo/--no-kv-offload", "KV_OFFLOAD"),
    _option("mmap", yes_or_no, "--no-mmap"),
    _option("mlock", yes_or_no, "--mlock"),
    _option("batch_size", _batch, "-b/--batch-size", "BATCH"),
    _option("ubatch_size", _batch, "-ub/--ubatch-size", "UBATCH"),
    _option("threads_batch", _threads_batch, "-tb/--threads-batch"),
    _option("rope_scaling", _scaling, "--rope-scaling", "ROPE_SCALING_TYPE"),
    _option("rope_freq_base", _freq_base, "--rope-freq-base", "ROPE_FREQ_BASE"),
    _option("rope_freq_scale", _freq_scale, "--rope-freq-scale", "ROPE_FREQ_SCALE"),
    _option("yarn_orig_ctx", _orig_ctx, "--yarn-orig-ctx", "YARN_ORIG_CTX"),
    _option("yarn_ext_factor", _factor, "--yarn-ext-factor", "YARN_EXT_FACTOR"),
    _option("yarn_attn_factor", _factor, "--yarn-attn-factor", "YARN_ATTN_FACTOR"),
    _option("yarn_beta_slow", _factor, "--yarn-beta-slow", "YARN_BETA_SLOW"),
    _option("yarn_beta_fast", _factor, "--yarn-beta-fast", "YARN_BETA_FAST"),
    _option("lora", _lora, "--lora"),
)

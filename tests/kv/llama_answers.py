"""Asks llama.cpp itself, in a process of its own (it may abort): bytes per token, rotation, which contexts it builds.

usage: llama_answers.py MODEL...   prints one JSON object per model: {"K V FA": {...} or null}
"""

from __future__ import annotations

import ctypes
import json
import math
import sys

import llama_cpp as llama

TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2, "bf16": 30}
FLASH = {"on": 1, "off": 0, "auto": -1}
CASES = [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"), ("f16", "q8_0"), ("bf16", "bf16")]
SHORT, LONG = 40, 48
_log: list[str] = []


@llama.llama_log_callback
def _collect(_level: int, text: bytes, _user: ctypes.c_void_p) -> None:
    _log.append(text.decode(errors="replace"))


def ask(path: str) -> dict[str, object]:
    parameters = llama.llama_model_default_params()
    parameters.use_extra_bufts = False
    parameters.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(path.encode(), parameters)
    if not model:
        raise SystemExit(f"{path} does not load: {''.join(_log)[-2000:]}")
    answers = {f"{k} {v} {flash}": _context(model, k, v, flash) for k, v in CASES for flash in FLASH}
    llama.llama_model_free(model)
    return answers


def _context(model: object, k: str, v: str, flash: str) -> dict[str, object] | None:
    parameters = llama.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads, parameters.n_threads_batch = 512, 1, 1
    parameters.type_k, parameters.type_v, parameters.flash_attn_type = TYPES[k], TYPES[v], FLASH[flash]
    parameters.kv_unified, parameters.n_seq_max, parameters.offload_kqv = True, 1, False
    _log.clear()
    context = llama.llama_init_from_model(model, parameters)
    if not context:
        return None
    rotated = ["attn_rot_k = 1" in "".join(_log), "attn_rot_v = 1" in "".join(_log)]
    finite = _decode(model, context, SHORT)
    short = llama.llama_state_seq_get_size(context, 0)
    finite &= _decode(model, context, LONG - SHORT)
    long = llama.llama_state_seq_get_size(context, 0)
    llama.llama_free(context)
    return {"per_token": (long - short) // (LONG - SHORT), "rotated": rotated, "finite": finite, "bytes": long}


def _decode(model: object, context: object, count: int) -> bool:
    tokens = (ctypes.c_int32 * count)(*range(100, 100 + count))
    if llama.llama_decode(context, llama.llama_batch_get_one(tokens, count)) != 0:
        raise SystemExit("llama_decode failed")
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    return all(map(math.isfinite, llama.llama_get_logits_ith(context, -1)[:size]))


if __name__ == "__main__":
    llama.llama_log_set(_collect, ctypes.c_void_p(0))
    llama.llama_backend_init()
    for argument in sys.argv[1:]:
        print(json.dumps(ask(argument)), flush=True)

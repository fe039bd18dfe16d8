"""Asks llama.cpp itself, in a process of its own (it may abort): bytes per token, rotation, which contexts it builds.

usage: llama_answers.py MODEL...   prints one JSON object per model: {"K V FA": {...} or null}
For the cases in BLOBS the state of the sequence is written to "MODEL.K V FA" after LONGEST tokens.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from pathlib import Path

import llama_cpp as llama
from llama_cases import BLOBS, CASES, FLASH, LONG, LONGEST, ROLLBACK, SHORT, TYPES

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
    answers = {case: _context(model, path, case) for case in CASES}
    llama.llama_model_free(model)
    return answers


def _context(model: object, path: str, case: str) -> dict[str, object] | None:
    k, v, flash = case.split()
    parameters = llama.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads, parameters.n_threads_batch = 512, 1, 1
    parameters.type_k, parameters.type_v, parameters.flash_attn_type = TYPES[k], TYPES[v], FLASH[flash]
    parameters.kv_unified, parameters.n_seq_max, parameters.offload_kqv = True, 1, False
    parameters.n_rs_seq = ROLLBACK
    _log.clear()
    context = llama.llama_init_from_model(model, parameters)
    if not context:
        return None
    rotated = ["attn_rot_k = 1" in "".join(_log), "attn_rot_v = 1" in "".join(_log)]
    finite = _decode(model, context, SHORT)
    short = llama.llama_state_seq_get_size(context, 0)
    finite &= _decode(model, context, LONG - SHORT)
    long = llama.llama_state_seq_get_size(context, 0)
    if case in BLOBS:
        finite &= _decode(model, context, LONGEST - LONG)
        Path(f"{path}.{case}").write_bytes(_state(context))
    states = llama.llama_n_rs_seq(context)
    llama.llama_free(context)
    per_token = (long - short) // (LONG - SHORT)
    return {"per_token": per_token, "rotated": rotated, "finite": finite, "states": states}


def _state(context: object) -> bytes:
    size = llama.llama_state_seq_get_size_ext(context, 0, 0)
    buffer = (ctypes.c_uint8 * size)()
    if llama.llama_state_seq_get_data_ext(context, buffer, size, 0, 0) != size:
        raise SystemExit("llama_state_seq_get_data_ext failed")
    return bytes(buffer)


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

"""Asks llama.cpp, in a process of its own, what it allocates: its log, and what the state of a sequence weighs.

usage: ledger_answers.py < JSON list of [MODEL, [CASE, ...]]   prints one JSON list of answers per model
A case is [context, sequences, batch, type of K, type of V, flash attention, rollback, outputs]; its answer is the log
of the context. One more answer per model: [tokens, bytes of the state] for each of TOKENS.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import llama_cpp as llama
from llama_cases import FLASH, TYPES

TOKENS = (1, 40, 200, 300)
_log: list[str] = []


@llama.llama_log_callback
def _collect(_level: int, text: bytes, _user: ctypes.c_void_p) -> None:
    _log.append(text.decode(errors="replace"))


def _model(path: str) -> object:
    parameters = llama.llama_model_default_params()
    parameters.use_extra_bufts = False
    parameters.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(path.encode(), parameters)
    if not model:
        raise SystemExit(f"{path} does not load: {''.join(_log)[-2000:]}")
    return model


def _context(model: object, case: list[Any]) -> object:
    size, sequences, batch, type_k, type_v, flash, rollback, outputs = case
    parameters = llama.llama_context_default_params()
    parameters.n_ctx, parameters.n_seq_max, parameters.n_rs_seq = size, sequences, rollback
    parameters.n_batch = parameters.n_ubatch = batch
    parameters.n_outputs_max = outputs
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.type_k, parameters.type_v, parameters.flash_attn_type = TYPES[type_k], TYPES[type_v], FLASH[flash]
    parameters.kv_unified, parameters.swa_full, parameters.offload_kqv = True, False, False
    _log.clear()
    context = llama.llama_init_from_model(model, parameters)
    if not context:
        raise SystemExit(f"no context for {case}: {''.join(_log)[-2000:]}")
    return context


def _sizes(model: object) -> list[list[int]]:
    context = _context(model, [512, 1, 64, "f16", "f16", "off", 0, 0])
    sizes, done = [], 0
    for tokens in TOKENS:
        while done < tokens:
            count = min(64, tokens - done)
            ids = (ctypes.c_int32 * count)(*range(100, 100 + count))
            if llama.llama_decode(context, llama.llama_batch_get_one(ids, count)) != 0:
                raise SystemExit("llama_decode failed")
            done += count
        sizes.append([tokens, llama.llama_state_seq_get_size(context, 0)])
    llama.llama_free(context)
    return sizes


def ask(path: str, cases: list[list[Any]]) -> list[object]:
    model = _model(path)
    answers: list[object] = []
    for case in cases:
        llama.llama_free(_context(model, case))
        answers.append("".join(_log))
    answers.append(_sizes(model))
    llama.llama_model_free(model)
    return answers


if __name__ == "__main__":
    llama.llama_log_set(_collect, ctypes.c_void_p(0))
    llama.llama_backend_init()
    for file, wanted in json.load(sys.stdin):
        print(json.dumps(ask(file, wanted)), flush=True)

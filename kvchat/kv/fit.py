"""What the engine builds when nobody asks for something else: sequences, batch, flash attention, context. Owns these
rules, which the engine and the plan share, so that what is foretold is what is built; reads no machine and no file."""

from __future__ import annotations

from typing import Literal

from kvchat.formats.ggml import type_named
from kvchat.kv import architectures as arch
from kvchat.kv.geometry import Geometry
from kvchat.kv.ledger import CacheConfig, ledger

Flash = Literal["on", "off", "auto"]

DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 512
OUTPUTS = 16  # llama.cpp's `n_outputs_max`: tokens of a batch for which it provides logits; a turn wants one
_PARALLEL, _PARALLEL_DEAR = 4, 2
_GPU_CHUNK = 512
_CHUNKS = ((1_500_000_000, 256), (5_000_000_000, 128))  # models with fewer parameters, tokens
_SMALLEST_CHUNK = 64
_MOST_ROLLBACK = 8  # tokens
_ROLLBACK_BYTES = 32 * 2**20
LARGEST_CHUNK = _CHUNKS[0][1]


def turns_at_once(geometry: Geometry, asked: int = 0) -> int:
    """Turns that are computed together at most, where so many were asked for; 0: as many as cost no memory, and two in
    any case. One where the state cannot be kept: nothing else can be done with it either."""
    if not geometry.kept:
        return 1
    free = "window" not in geometry.parts and not geometry.state_bytes
    return asked or (_PARALLEL if free else _PARALLEL_DEAR)


def sequences(geometry: Geometry, parallel: int = 0) -> int:
    """Sequences of a context: one for each turn, see `turns_at_once`, and one through which state is copied where it
    can be kept."""
    return turns_at_once(geometry, parallel) + geometry.kept


def chunk(parameters: int, on_gpu: bool) -> int:
    """Tokens in one prefill step: progress about every second, and a bounded wait for a cancel on a GPU, where the
    abort callback is not asked. A function of the model alone, so that the same prompt has the same batch shapes."""
    if on_gpu:
        return _GPU_CHUNK
    return next((tokens for below, tokens in _CHUNKS if parameters < below), _SMALLEST_CHUNK)


def computed_at_once(batch: int, ubatch: int) -> int:
    """Tokens of one computation where somebody asked for a size of batches, 0 where nobody did."""
    return min(ubatch, batch) if ubatch and batch else ubatch or batch


def rollback_rows(geometry: Geometry, parallel: int = 0) -> int:
    """Recurrent states of so many last tokens that a context keeps beside the present one (llama.cpp's `n_rs_seq`),
    where the architecture can and they are small: every one costs as much as the present one."""
    if not geometry.rollback or not geometry.state_bytes:
        return 0
    return min(_MOST_ROLLBACK, _ROLLBACK_BYTES // (geometry.state_bytes * sequences(geometry, parallel)))


def uses_flash(geometry: Geometry, type_v: str, flash: Flash, on_gpu: bool) -> bool:
    """Whether a context has flash attention before anything was measured. On CPU it costs decode speed with caches that
    are not quantized, and quantized V cannot do without it."""
    if geometry.architecture in arch.FLASH_ATTENTION_NEVER:
        return False
    return flash == "on" or (flash == "auto" and (on_gpu or type_named(type_v).block > 1))


def cache_bytes(geometry: Geometry, type_k: str, type_v: str, context: int, parallel: int = 0) -> int:
    """Bytes of the cache of `context` tokens that the engine builds on a CPU, with the recurrent states. Windows count
    as windows. KvchatError when the model cannot have these types."""
    flash = uses_flash(geometry, type_v, "auto", on_gpu=False)
    count, rollback = sequences(geometry, parallel), rollback_rows(geometry, parallel)
    config = CacheConfig(context, type_k, type_v, flash, count, LARGEST_CHUNK, rollback)
    return ledger(geometry, config).bytes


def draft_context(geometry: Geometry, context: int) -> int:
    """Tokens of the context of a draft model beside one of `context`: as many, but none that it was not trained for,
    where some architectures cannot go."""
    return min(context, geometry.context_trained or context)


def default_context(geometry: Geometry) -> int:
    """Tokens of the context where there is memory enough: as trained, at most DEFAULT_CONTEXT."""
    return min(geometry.context_trained or DEFAULT_CONTEXT, DEFAULT_CONTEXT)

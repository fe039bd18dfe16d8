"""How much memory llama.cpp's computations take beside weights and cache: an estimate. Owns the formula; reads no file.

llama.cpp plans its graph for one batch and reuses the memory of what is no longer needed. Its largest moments are the
attention and the feed-forward part of a layer, and the logits. What a layer makes is read off its weights: a matrix
makes as many numbers a token as it has rows. The estimate is meant to lie above the sum of what llama.cpp logs as
"compute buffer size" and "output buffer size", and by half of it at most.
Source: llama.cpp `llama_context::sched_reserve`, `output_reserve`, `llama-graph.cpp`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.formats.gguf import Array, GgufHeader, TensorInfo
from kvchat.kv.geometry import Geometry
from kvchat.kv.hparams import Hparams
from kvchat.kv.ledger import CacheConfig, Ledger, ledger

_F32, _F16, _INDEX = 4, 2, 8
_RESIDUALS = 4  # copies of the hidden state that live beside what a part of a layer makes
_GAPS = 1.05  # memory that lies between what is used
_FIXED = 128 << 10  # rotations, positions, alignment
_LAYER = re.compile(r"blk\.(?P<layer>\d+)\.(?P<part>[a-z]+)\w*?(?P<experts>_exps|_shexp)?\.weight")


@dataclass(frozen=True, slots=True)
class PartWork:
    """A part of a layer: attention, recurrence, feed-forward. `made`: numbers that one token makes in it. `heads`: of
    an attention over all tokens or, with `window`, over the last ones; else 0."""

    made: int
    heads: int = 0
    window: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """What one token makes while it is computed, in numbers: a row of logits, copies of the hidden state, and the parts
    of layers, each kind once. `merges`: rules by which its text is made tokens. `latent`: elements of V that lie inside
    K (MLA), else 0. `value`: the widest row of V. `state`: the recurrent state of one layer."""

    vocabulary: int
    merges: int
    hidden: int
    parts: frozenset[PartWork]
    latent: int
    value: int
    state: int


def workload(header: GgufHeader, geometry: Geometry) -> Workload:
    """From a header with the tensors of all parts of the model."""
    hparams = Hparams(header)
    layers = geometry.cache
    return Workload(
        vocabulary=_length(header, "tokenizer.ggml.tokens"),
        merges=_length(header, "tokenizer.ggml.merges"),
        hidden=_RESIDUALS * hparams.count("embedding_length"),
        parts=_parts(header, hparams, {layer.index: layer.window for layer in layers}),
        latent=0 if geometry.has_v else max((hparams.head_sizes(layer.index)[1] for layer in layers), default=0),
        value=max((layer.value for layer in layers), default=0),
        state=hparams.state_elements() if geometry.state_bytes else 0,
    )


def compute_bytes(work: Workload, geometry: Geometry, config: CacheConfig) -> int:
    """Bytes for the computations of a context of this model, an estimate. KvchatError as `ledger` has it."""
    cache = ledger(geometry, config)
    batch = min(config.batch, cache.full.cells)
    made = max((part.made + _scores(part, cache, config) for part in work.parts), default=0)
    layer = batch * (_input_bytes(work, cache, config) + _F32 * (made + work.hidden))
    # Once a batch: the states that are kept, and without flash attention the V of MLA, copied out of K and transposed.
    layer += config.sequences * (1 + config.rollback) * work.state * _F32
    layer += 0 if config.flash else cache.full.cells * work.latent * _F16
    logits = _F32 * (min(config.outputs or batch, batch) * work.vocabulary + batch * work.hidden)
    outputs = _F32 * config.sequences * work.vocabulary
    return int(max(layer, logits) * _GAPS) + outputs + _FIXED


def work_bytes(work: Workload, geometry: Geometry, config: CacheConfig) -> int:
    """Bytes that ggml takes on a CPU, beside the buffers that it plans, for what it converts before a product: without
    flash attention the scores of all heads, as f16 like the V that they are multiplied with. KvchatError as `ledger`
    has it. Source: ggml `ggml_graph_plan`."""
    cache = ledger(geometry, config)
    return (
        min(config.batch, cache.full.cells)
        * _F16
        * max((_scores(part, cache, config) for part in work.parts), default=0)
    )


def _length(header: GgufHeader, key: str) -> int:
    found = header.get(key)
    return found.length if isinstance(found, Array) else 0


def _scores(part: PartWork, cache: Ledger, config: CacheConfig) -> int:
    """Without flash attention each head has a score for each cell."""
    return 0 if config.flash else part.heads * (cache.window if part.window else cache.full).cells


def _input_bytes(work: Workload, cache: Ledger, config: CacheConfig) -> int:
    """Of one token: a mask of the cells for each group of layers, and without flash attention, when V lies transposed,
    the place of each element of V."""
    masked = sum(rows.cells for rows in (cache.full, cache.window) if rows.layers)
    return masked * _F16 if config.flash else masked * _F32 + work.value * _INDEX


def _parts(header: GgufHeader, hparams: Hparams, windows: Mapping[int, bool]) -> frozenset[PartWork]:
    """From the matrices of each layer; `windows` has the layers that attend."""
    experts = header.get(f"{header.architecture}.expert_used_count", 1)
    rows: dict[tuple[int, str], list[int]] = defaultdict(list, {(layer, "attn"): [0] for layer in windows})
    for tensor in header.tensors:
        match = _LAYER.fullmatch(tensor.name)
        if match and int(match["layer"]) < hparams.layers and len(tensor.shape) > 1:
            part = match["part"] + (match["experts"] or "")
            rows[int(match["layer"]), part].append(_rows(tensor, experts if isinstance(experts, int) else 1))
    parts = set()
    for (layer, name), found in rows.items():
        made = sum(found) + max(found)  # the largest exists twice: before and after its activation
        attends = name == "attn" and layer in windows
        parts.add(PartWork(made, hparams.heads(layer), windows[layer]) if attends else PartWork(made))
    return frozenset(parts)


def _rows(tensor: TensorInfo, experts: int) -> int:
    """Numbers that the matrix makes of one token; of a stack of experts so many are asked. Interpolations (RWKV) work
    on each element."""
    if "lerp" in tensor.name:
        return tensor.elements
    stack = tensor.shape[2] if len(tensor.shape) > 2 else 1
    return tensor.shape[1] * (min(experts, stack) if "_exps" in tensor.name else stack)

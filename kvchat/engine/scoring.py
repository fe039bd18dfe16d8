"""How much attention a key attracts, told without attention: by its L2 norm.

Owns the reading of keys out of the cells; must not decide what leaves. Keys with a low norm attract attention (Devoto
et al., arXiv 2406.11430). Neither RoPE nor llama.cpp's rotation of quantized rows changes a norm.

Two other scores were measured in its place and left out. On the ten texts of benchmarks/overflow.py (SmolLM2-135M, f16,
384 cells; with all in the context 2.325 nats, with the policy sinks 2.386) the norm gives 2.436.

- How near a key is to the mean of all (KeyDiff, arXiv 2504.15364): 2.456.
- The attention of the last 32 tokens (SnapKV, arXiv 2404.14469): 2.366. llama.cpp hands it to an eval callback, where
  flash attention is off, so not with a quantized V. That can be given to a context only when it is made, and is then
  called 1,086 times in every decode: a token takes 19.7 ms of the processor instead of 16.4. In a context of its own,
  computing the 32 tokens once more at an eviction takes 0.25 s, and its cache as much memory again as the chat's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvchat.engine.memory import Memory
from kvchat.errors import KvchatError
from kvchat.formats.ggml import GGML_TYPES
from kvchat.formats.past import Range, count
from kvchat.kv.transcode import Quants

_FIRST_LAYERS = 2  # whose norms do not tell attention (section 4 there)


def key_norms(memory: Memory, ranges: Sequence[Range], quants: Quants, head: int) -> npt.NDArray[np.float32]:
    """Mean L2 norm, over heads and layers, of the keys of each token in `ranges`, float32 (tokens,). `head`: elements
    of a head, 0 when layers differ: then a whole row counts as one. Only layers that keep all tokens are read. Raises
    KvchatError when there are none."""
    rows = memory.live_rows("full")
    if rows is None:
        raise KvchatError("this model keeps no token for long", "use the overflow policy sinks")
    wanted = np.isin(rows.positions, np.concatenate([np.arange(start, end) for start, end in ranges]))
    total = np.zeros(count(ranges), np.float32)
    layers = range(min(_FIRST_LAYERS, len(rows.shape.layers) - 1), len(rows.shape.layers))
    for layer in layers:
        raw = np.ascontiguousarray(rows.k(layer)[wanted])
        kind = GGML_TYPES[rows.shape.layers[layer].k_type]
        values = np.empty(raw.size // kind.bytes * kind.block, np.float32)
        quants.decode(kind.name, raw.reshape(-1), values)
        width = values.size // len(total)
        size = head if head and width % head == 0 else width
        heads = values.reshape(len(total), width // size, size)
        total += np.linalg.norm(heads, axis=2).mean(axis=1)
    return (total / len(layers)).astype(np.float32)

"""How much attention a key attracts, told without attention: by its L2 norm.

Owns the reading of keys out of the cells; must not decide what leaves. Keys with a low norm attract attention (Devoto
et al., arXiv 2406.11430). Neither RoPE nor llama.cpp's rotation of quantized rows changes a norm."""

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

"""The memory ledger: what llama.cpp allocates for a cache, to the byte. Owns that arithmetic; reads nothing.

Exact where kvchat can keep the state (`Geometry.kept`); caches with an indexer are counted as if every attention layer
had one, and a compressed cache (deepseek4) as if it were not compressed. Source: llama.cpp `llama-kv-cache.cpp`,
`llama-kv-cache-iswa.cpp`, `llama-memory-recurrent.cpp` (constructors), `llama-context.cpp` (padding).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.formats.ggml import row_bytes
from kvchat.kv.geometry import CacheLayer, Geometry

CELLS = 256  # llama.cpp makes caches in multiples of so many cells


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """What a context is built with. `context`: tokens asked for, 0 for as many as the model was trained for. `batch`:
    tokens of one computation (`n_ubatch`). `rollback`: recurrent states of so many last tokens are kept too. `outputs`:
    tokens of a batch that can have logits, 0 for all."""

    context: int
    type_k: str
    type_v: str
    flash: bool = True
    sequences: int = 1
    batch: int = 512
    rollback: int = 0
    outputs: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The cache of a group of layers: so many cells, each a K row and a V row in each layer. Bytes of all K, all V."""

    cells: int
    layers: int
    key_bytes: int
    value_bytes: int

    @property
    def bytes(self) -> int:
        return self.key_bytes + self.value_bytes


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is allocated. `full`: layers that keep all tokens; `window`: those that keep the last ones, no cells where
    the model has none; `state_bytes`: the recurrent states of all sequences."""

    full: Rows
    window: Rows
    state_bytes: int

    @property
    def kv_bytes(self) -> int:
        """The cache of keys and values, which grows with the context."""
        return self.full.bytes + self.window.bytes

    @property
    def bytes(self) -> int:
        return self.kv_bytes + self.state_bytes


def ledger(geometry: Geometry, config: CacheConfig) -> Ledger:
    """What llama.cpp allocates for this cache. KvchatError when a row is not a whole number of blocks of its type."""
    cells = context_cells(geometry, config.context)
    window = window_cells(geometry, cells, config) if geometry.window else 0
    states = config.sequences * (1 + (config.rollback if geometry.rollback else 0))
    return Ledger(
        full=_rows(geometry, config, cells, windowed=False),
        window=_rows(geometry, config, window, windowed=True),
        state_bytes=geometry.state_bytes * max(1, states),
    )


def context_cells(geometry: Geometry, context: int) -> int:
    """Cells of a context of `context` tokens: llama.cpp rounds up."""
    return _padded(context or geometry.context_trained)


def window_cells(geometry: Geometry, cells: int, config: CacheConfig) -> int:
    """Cells of the window layers in a context of `cells` cells: a window for each sequence, and the batch."""
    batch = min(config.batch, config.context or geometry.context_trained)
    return _padded(min(cells, geometry.window * config.sequences + batch))


def held_bytes(geometry: Geometry, type_k: str, type_v: str, tokens: int) -> int:
    """Bytes of the state of one sequence of `tokens` tokens: what a copy of it weighs, without its list of cells. Of a
    window layer only what the next token looks back on. KvchatError as in `ledger`."""
    kept = min(tokens, geometry.window)
    rows = sum(
        (row_bytes(layer.key, type_k) + row_bytes(layer.value, type_v)) * (kept if layer.window else tokens)
        for layer in geometry.cache
    )
    return rows + (geometry.state_bytes if tokens else 0)


def _rows(geometry: Geometry, config: CacheConfig, cells: int, *, windowed: bool) -> Rows:
    layers = [layer for layer in geometry.cache if layer.window == windowed]
    widths = _value_widths(geometry, config.flash)
    return Rows(
        cells,
        len(layers),
        cells * sum(row_bytes(layer.key, config.type_k) for layer in layers),
        cells * sum(row_bytes(widths[layer], config.type_v) for layer in layers),
    )


def _value_widths(geometry: Geometry, flash: bool) -> dict[CacheLayer, int]:
    """Elements of V of each layer as allocated. Without flash attention V lies transposed, and every layer, also one
    without heads, gets as much as the widest; an indexer, the second cache of a layer, has no V."""
    if flash:
        return {layer: layer.value for layer in geometry.cache}
    widest = max((layer.value for layer in geometry.cache), default=0)
    widths: dict[CacheLayer, int] = {}
    seen: set[int] = set()
    for layer in geometry.cache:
        widths[layer] = 0 if layer.index in seen else widest
        seen.add(layer.index)
    return widths


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS

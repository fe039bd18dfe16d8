"""The shape of a model's KV cache, from its header. Owns the arithmetic; must not know llama.cpp's objects.

What llama.cpp will allocate for one token, which layers keep it and how, and what it will refuse, known before the
model is loaded. Source: llama.cpp `llama-hparams.cpp`, `llama-kv-cache.cpp` (constructor), `llama_init_from_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.ggml import GgmlType, row_bytes, type_named
from kvchat.formats.gguf import GgufHeader
from kvchat.kv import architectures as arch
from kvchat.kv.hparams import Hparams

Attention = Literal["MHA", "GQA", "MQA", "MLA", "SWA", "recurrent", "hybrid"]
Part = Literal["full", "window", "state"]

_F32 = 4
_ROTATED_HEAD = 64


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One layer of the cache: elements of the K row and of the V row of one token. `value` 0: no V (MLA).

    `window`: only the last tokens are kept. `index`: the layer of the model; an indexer's cache is a layer of its own.
    """

    index: int
    key: int
    value: int
    window: bool


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a context of this model keeps. Sizes in elements unless they are called bytes.

    `layers`: blocks of the model. `cache`: the layers that keep KV, in llama.cpp's order. `head_k`, `head_v`: head
    sizes, 0 when layers differ. `head_sizes`: all (K, V) head sizes that occur. `window`: tokens that window layers
    look back, 0 without; `chunked`: not that many tokens, but to the last multiple of it. `rotates`: whether llama.cpp
    wants quantized K, quantized V rotated; `blocks`: elements of the blocks in which K rows and V rows then really are
    (0: they are not), of the layers that keep all tokens and of those that keep a window. `state_bytes`: recurrent
    state of one sequence, whatever its length.

    `parts`: what the state of a sequence consists of, in llama.cpp's order: rows of the layers that keep all tokens,
    rows of those that keep a window, a recurrent state; empty where kvchat cannot take it apart, and so cannot keep it.
    `plane_positions`: cells have two-dimensional positions (M-RoPE). `rollback`: llama.cpp can keep the recurrent
    states of the last few tokens too, and go back to one.
    """

    architecture: str
    attention: Attention
    layers: int
    cache: tuple[CacheLayer, ...]
    head_k: int
    head_v: int
    head_sizes: frozenset[tuple[int, int]]
    window: int
    chunked: bool
    rotates: tuple[bool, bool]
    blocks: tuple[tuple[int, int], tuple[int, int]]
    state_bytes: int
    context_trained: int
    parts: tuple[Part, ...]
    plane_positions: bool
    rollback: bool

    @property
    def kept(self) -> bool:
        """Whether the state of a sequence can be kept on disk and put back."""
        return bool(self.parts)

    @property
    def has_v(self) -> bool:
        """Whether the cache has a V part: MLA has none."""
        return any(layer.value for layer in self.cache)

    def bytes_per_token(self, type_k: str, type_v: str) -> int:
        """Bytes of one token over all layers that keep KV, with flash attention on. A window layer counts although it
        forgets. KvchatError when a row is not a whole number of blocks of the type."""
        return sum(row_bytes(layer.key, type_k) + row_bytes(layer.value, type_v) for layer in self.cache)

    def rotated(self, type_k: str, type_v: str) -> tuple[bool, bool]:
        """Whether llama.cpp stores K and V rotated (Walsh-Hadamard), when LLAMA_ATTN_ROT_DISABLE is not set.

        True when any part of the cache does: layers that keep a window may have heads of their own.
        """
        return _quantized(type_k) and self.rotates[0], _quantized(type_v) and self.rotates[1]

    def rotation(self, part: Part, type_k: str, type_v: str) -> tuple[int, int]:
        """Elements of the Walsh-Hadamard blocks in which llama.cpp stores K rows and V rows of a part, 0: as they are.
        When LLAMA_ATTN_ROT_DISABLE is not set."""
        if part == "state":
            return 0, 0
        key, value = self.blocks[part == "window"]
        return key if _quantized(type_k) else 0, value if _quantized(type_v) else 0

    def saved_types(self, type_k: str, type_v: str, wanted: str) -> tuple[str, str]:
        """The cache types in which K and V of a cache are saved when `wanted` is asked for on disk: that, where it
        takes less room; as they are where it does not, where the model cannot have it, or for "same"."""
        if wanted == "same":
            return type_k, type_v
        kinds = [min(type_named(kind), type_named(wanted), key=GgmlType.bits) for kind in (type_k, type_v)]
        found = kinds[0].name, kinds[1].name
        return found if self.refusal(*found, "auto") is None else (type_k, type_v)

    def first_visible(self, position: int) -> int:
        """The first position that a token at `position` sees in the layers that keep a window; 0 without a window."""
        if self.chunked:
            return position - position % self.window
        return max(0, position - self.window + 1) if self.window else 0

    def refusal(self, type_k: str, type_v: str, flash: Literal["on", "off", "auto"]) -> KvchatError | None:
        """Why llama.cpp would not build a context with these cache types; None when it would."""
        if not self.has_v and self.cache and type_k != type_v:
            return KvchatError(
                f"{self.architecture} models need the same cache type for K and V, not {type_k} and {type_v}",
                f"use --cache-type-k {type_k} --cache-type-v {type_k}",
            )
        never = self.architecture in arch.FLASH_ATTENTION_NEVER
        if _quantized(type_v) and (flash == "off" or never):
            return KvchatError(
                f"a {type_v} cache for V needs flash attention, "
                + (f"which {self.architecture} models cannot use" if never else "which is off"),
                "use --cache-type-v f16" + ("" if never else ", or --flash-attn on"),
            )
        return self._head_refusal("K", type_k, 0) or self._head_refusal("V", type_v, 1)

    def _head_refusal(self, side: str, type_name: str, which: int) -> KvchatError | None:
        block = type_named(type_name).block
        odd = sorted({sizes[which] for sizes in self.head_sizes if sizes[which] % block})
        if not odd:
            return None
        return KvchatError(
            f"a {type_name} cache for {side} needs heads of a multiple of {block}; this model's have {odd[0]}",
            f"use --cache-type-{side.lower()} f16",
        )


def geometry(header: GgufHeader) -> Geometry:
    """The cache of the model with this header.

    KvchatError: the model cannot chat (an encoder, a projector). FormatError: hyper-parameters missing or absurd.
    """
    if header.architecture in arch.NO_CHAT:
        raise KvchatError(f"{header.architecture} models do not generate text", "choose a chat model")
    hparams = Hparams(header)
    window = hparams.window()
    cache = _cache_layers(hparams)
    sizes = frozenset(hparams.head_sizes(layer) for layer in range(hparams.layers))
    kept = {hparams.head_sizes(layer.index) for layer in cache}
    keys, values = {key for key, _ in kept}, {value for _, value in kept}
    return Geometry(
        architecture=hparams.architecture,
        attention=_attention(hparams, window),
        layers=hparams.blocks,
        cache=cache,
        head_k=keys.pop() if len(keys) == 1 else 0,
        head_v=values.pop() if len(values) == 1 else 0,
        head_sizes=sizes,
        window=window,
        chunked=hparams.chunked,
        rotates=(_rotates(hparams, cache, 0), _rotates(hparams, cache, 1)),
        blocks=(_blocks(hparams, cache, windowed=False), _blocks(hparams, cache, windowed=True)),
        state_bytes=sum(map(hparams.is_recurrent, range(hparams.all_layers))) * hparams.state_elements() * _F32,
        context_trained=hparams.count("context_length"),
        parts=_parts(hparams, window),
        plane_positions=hparams.plane_positions,
        rollback=hparams.architecture in arch.ROLLBACK,
    )


def _quantized(type_name: str) -> bool:
    return type_named(type_name).block > 1


def _cache_layers(hparams: Hparams) -> tuple[CacheLayer, ...]:
    keys_only = hparams.mla or hparams.architecture in arch.KEYS_ONLY
    layers = []
    for index in filter(hparams.keeps_kv, range(hparams.all_layers)):
        heads = hparams.kv_heads(index)
        key, value = hparams.head_sizes(index)
        layers.append(CacheLayer(index, heads * key, 0 if keys_only else heads * value, hparams.is_windowed(index)))
    if not any(layer.key for layer in layers) and hparams.architecture not in arch.RECURRENT:
        raise FormatError(f"damaged header: no layer of this {hparams.architecture} model has attention heads")
    layers.sort(key=lambda layer: layer.window)  # the cache of the full layers comes first
    indexer = hparams.count("attention.indexer.key_length", 0) if hparams.architecture in arch.INDEXED else 0
    if indexer:
        layers += [CacheLayer(layer.index, indexer, 0, layer.window) for layer in tuple(layers)]
    return tuple(layers)


def _rotates(hparams: Hparams, cache: tuple[CacheLayer, ...], side: int) -> bool:
    """Whether any part of the cache is rotated."""
    return any(_rotated_head(hparams, cache, windowed=windowed, side=side) for windowed in (False, True))


def _rotated_head(hparams: Hparams, cache: tuple[CacheLayer, ...], *, windowed: bool, side: int) -> int:
    """The size of the heads of a part that is rotated, 0 of one that is not. llama.cpp asks the first layer of the
    model, but each part of the cache must have heads of one size."""
    layers = [layer for layer in cache if layer.window == windowed and (layer.value or side == 0)]
    sizes = {hparams.head_sizes(layer.index)[side] for layer in layers}
    return sizes.pop() if hparams.head_sizes(0)[side] % _ROTATED_HEAD == 0 and len(sizes) == 1 else 0


def _blocks(hparams: Hparams, cache: tuple[CacheLayer, ...], *, windowed: bool) -> tuple[int, int]:
    """K: the largest power of two that divides the head, V: the smallest block (llama-kv-cache.cpp, build_input_k_rot,
    build_input_v_rot). With MLA, and in hybrid models with a window, llama.cpp says that it rotates and does not
    (llama-graph.cpp, build_attn of K alone, build_inp_mem_hybrid_iswa)."""
    hybrid_window = hparams.architecture in arch.HYBRID and any(layer.window for layer in cache)
    if hybrid_window or not any(layer.value for layer in cache):
        return 0, 0
    key, value = (_rotated_head(hparams, cache, windowed=windowed, side=side) for side in (0, 1))
    return max(key & -key, _ROTATED_HEAD) if key else 0, _ROTATED_HEAD if value else 0


def _attention(hparams: Hparams, window: int) -> Attention:
    if hparams.architecture in arch.RECURRENT:
        return "recurrent"
    if hparams.architecture in arch.HYBRID:
        return "hybrid"
    if window:
        return "SWA"
    if hparams.mla:
        return "MLA"
    heads = [(hparams.heads(layer), hparams.kv_heads(layer)) for layer in range(hparams.layers)]
    used = [(query, kv) for query, kv in heads if kv]
    if all(query == kv for query, kv in used):
        return "MHA"
    return "MQA" if all(kv == 1 for _, kv in used) else "GQA"


def _parts(hparams: Hparams, window: int) -> tuple[Part, ...]:
    name = hparams.architecture
    if name in arch.INDEXED or name in arch.OTHER_STATE:
        return ()
    if name in arch.RECURRENT:
        return ("state",)
    attention: tuple[Part, ...] = ("full", "window") if window else ("full",)
    return (*attention, "state") if name in arch.HYBRID else attention

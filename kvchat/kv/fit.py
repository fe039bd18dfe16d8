"""How large a cache is and which context is chosen for it. Owns that arithmetic; reads no machine and no file."""

from __future__ import annotations

from kvchat.kv.geometry import Geometry

DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 512


def cache_bytes(geometry: Geometry, type_k: str, type_v: str, context: int) -> int:
    """Bytes of a cache of `context` tokens, with the recurrent state of one chat. At most: window layers are counted
    as if they kept all. KvchatError when the model cannot have these types."""
    return geometry.bytes_per_token(type_k, type_v) * context + geometry.state_bytes


def automatic_context(geometry: Geometry, type_k: str, type_v: str, free: int | None) -> int:
    """Tokens of the context when nobody asks for a size: as trained, at most DEFAULT_CONTEXT, and halved until it takes
    no more than half of the free memory (bytes, None: not known). KvchatError as in `cache_bytes`."""
    size = min(geometry.context_trained or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    per_token = geometry.bytes_per_token(type_k, type_v)
    while free is not None and size > SMALLEST_CONTEXT and size * per_token > free // 2:
        size //= 2
    return size

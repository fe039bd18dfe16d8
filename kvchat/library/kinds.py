"""What kind of model a file holds, from the beginning of its header. Owns which kinds one cannot chat with."""

from __future__ import annotations

from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.formats.gguf_peek import Peek, peek
from kvchat.library.cache import FactCache

UNFINISHED = "a download that is not finished"
PROJECTOR = "a projector for images or sound"
_KIND = "kind"
_TYPES = {  # general.type
    "adapter": "a LoRA adapter, not a whole model",
    "mmproj": PROJECTOR,
    "imatrix": "an importance matrix",
}
_ARCHITECTURES = {
    "clip": PROJECTOR,
    "controlvector": "a control vector, not a whole model",
}
_POOLING = {4: "a model that ranks texts"}  # llama.h, enum llama_pooling_type
_EMBEDDING = "a model for embeddings"


def unfit(path: Path, cache: FactCache) -> str:
    """Why one cannot chat with this file, in a few words; "" for a model, and for a file that cannot be read: what is
    wrong with that is told where somebody chooses it."""
    try:
        return str(cache.get(path, _KIND, lambda: {"unfit": _read(path)})["unfit"])
    except (OSError, KeyError):
        return ""


def _read(path: Path) -> str:
    try:
        return kind(peek(path))
    except KvchatError:
        return ""


def kind(found: Peek) -> str:
    """As `unfit`, of a header."""
    stated, architecture = found.metadata.get("general.type"), found.architecture
    if isinstance(stated, str) and stated in _TYPES:
        return _TYPES[stated]
    if architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    pooling = found.metadata.get(f"{architecture}.pooling_type")
    if isinstance(pooling, int) and pooling > 0:
        return _POOLING.get(pooling, _EMBEDDING)
    if found.metadata.get(f"{architecture}.attention.causal") is False:
        return _EMBEDDING
    return "only a vocabulary, without weights" if not found.tensors else ""

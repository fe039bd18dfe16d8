"""The models that are offered by name: what they are, where they come from, what shape they have. Owns `catalog.toml`.

Must not fetch anything. A model of the catalogue has a header before it has a file: hyper-parameters as they will be,
and matrices of the sizes that follow, so that its memory is planned like that of any other.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import kvchat
from kvchat.formats.gguf import Array, GgufHeader, TensorInfo, Value

_MIRROR = "HF_ENDPOINT"  # as huggingface_hub has it
_F16 = 1  # of ggml's types
_VERSION = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """A model of the catalogue. `size`: bytes of its file, which is at `address` of the `endpoint`. `draft`: the name
    of one that may draft for it, or "". `header`: what its file's header will say of its shape."""

    name: str
    title: str
    about: str
    repository: str
    file: str
    endpoint: str
    address: str
    size: int
    sha256: str
    licence: str
    draft: str
    header: GgufHeader

    @property
    def url(self) -> str:
        """Where the file is: at the person's mirror, if there is one."""
        return f"{(os.environ.get(_MIRROR) or self.endpoint).rstrip('/')}/{self.address}"


@cache
def offers() -> tuple[Offer, ...]:
    """All of them, the smallest first."""
    with _file().open("rb") as stream:
        found = tomllib.load(stream)
    return tuple(_offer(model, found["endpoint"], found["address"]) for model in found["model"])


def offer(name: str) -> Offer | None:
    """The one that is called so, whatever its case."""
    return next((each for each in offers() if each.name == name.lower()), None)


def _file() -> Path:
    """In an installed package beside this module, in a checkout in `models`."""
    installed = Path(__file__).with_name("catalog.toml")
    return installed if installed.is_file() else Path(kvchat.__file__).parent.parent / "models" / "catalog.toml"


def _offer(model: Mapping[str, Any], endpoint: str, address: str) -> Offer:
    file, repository = model["file"], model["repository"]
    return Offer(
        model["name"],
        model["title"],
        model["about"],
        repository,
        file,
        endpoint,
        address.format(repository=repository, revision=model.get("revision", "main"), file=quote(file)),
        model["size"],
        model["sha256"],
        model["licence"],
        model.get("draft", ""),
        _header(model["shape"], model["size"]),
    )


def _header(shape: Mapping[str, Any], size: int) -> GgufHeader:
    name = shape["architecture"]
    counts = _flat(shape)
    vocabulary = counts.pop("vocabulary")
    metadata: dict[str, Value] = {f"{name}.{key}": value for key, value in counts.items()}
    metadata |= {"general.architecture": name, "tokenizer.ggml.tokens": Array("string", vocabulary, None)}
    tensors = _tensors(counts, vocabulary)
    return GgufHeader(_VERSION, name, MappingProxyType(metadata), tensors, 0, 0, size)


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, int]:
    """The whole numbers of a table, and of the tables in it."""
    found: dict[str, int] = {}
    for key, value in table.items():
        if isinstance(value, int):
            found[above + key] = value
        elif isinstance(value, dict):
            found |= _flat(value, f"{above}{key}.")
    return found


def _tensors(counts: Mapping[str, int], vocabulary: int) -> tuple[TensorInfo, ...]:
    """The matrices of a transformer with gated feed-forward layers, or with experts of such."""
    width, inner = counts["embedding_length"], counts["feed_forward_length"]
    heads, kv_heads = counts["attention.head_count"], counts["attention.head_count_kv"]
    head = counts.get("attention.key_length", width // heads)
    experts = counts.get("expert_count", 0)
    kind, stack = ("_exps", (experts,)) if experts else ("", ())
    shapes = {
        "attn_q": (width, heads * head),
        "attn_k": (width, kv_heads * head),
        "attn_v": (width, kv_heads * head),
        "attn_output": (heads * head, width),
        f"ffn_gate{kind}": (width, inner, *stack),
        f"ffn_up{kind}": (width, inner, *stack),
        f"ffn_down{kind}": (inner, width, *stack),
    }
    layers = [
        TensorInfo(f"blk.{layer}.{part}.weight", shape, _F16, 0)
        for layer in range(counts["block_count"])
        for part, shape in shapes.items()
    ]
    return (TensorInfo("token_embd.weight", (width, vocabulary), _F16, 0), *layers)

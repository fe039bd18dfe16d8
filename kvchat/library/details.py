"""What the headers of a model say beyond its shape: how its weights are quantized, by whom it is, under which licence.

Owns these facts as values; must not word them. All texts are the file's: they are cleaned where they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.formats.gguf import GgufHeader, TensorInfo, read_header
from kvchat.library.find import ModelFile, files_of_model


@dataclass(frozen=True, slots=True)
class TypeShare:
    """All tensors of one type: how many, their elements and bytes. `share`: of the bytes of all tensors, 0 to 1."""

    type: str
    tensors: int
    elements: int
    bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class Details:
    """`mix`: the largest share first. `licence` and the rest are "" where the file says nothing. `bits_per_weight`:
    0 without weights."""

    title: str
    author: str
    licence: str
    licence_link: str
    base_model: str
    parameters: int
    bits_per_weight: float
    mix: tuple[TypeShare, ...]


def details(model: ModelFile, header: GgufHeader) -> Details:
    """Of all parts of a model, whose first has this header. KvchatError: one of them cannot be read."""
    tensors = list(header.tensors)
    for part in files_of_model(model, header):
        if part != model.path:
            tensors += read_header(part).tensors
    elements, size = sum(each.elements for each in tensors), sum(each.bytes for each in tensors)
    return Details(
        title=_first(header, "general.name"),
        author=_first(header, "general.organization", "general.author"),
        licence=_first(header, "general.license.name", "general.license"),
        licence_link=_first(header, "general.license.link"),
        base_model=_first(header, "general.base_model.0.repo_url", "general.base_model.0.name"),
        parameters=elements,
        bits_per_weight=8 * size / elements if elements else 0.0,
        mix=quantization_mix(tensors),
    )


def quantization_mix(tensors: Sequence[TensorInfo]) -> tuple[TypeShare, ...]:
    """The types of these tensors, the largest share first."""
    whole = sum(tensor.bytes for tensor in tensors) or 1
    kinds = {tensor.type.name for tensor in tensors}
    found = []
    for kind in kinds:
        alike = [tensor for tensor in tensors if tensor.type.name == kind]
        size = sum(tensor.bytes for tensor in alike)
        found.append(TypeShare(kind, len(alike), sum(tensor.elements for tensor in alike), size, size / whole))
    return tuple(sorted(found, key=lambda share: (-share.bytes, share.type)))


def _first(header: GgufHeader, *keys: str) -> str:
    return next((found for key in keys if (found := header.text(key))), "")

"""A LoRA adapter in a GGUF file: what it is for, how large it is, and what names its content. Must not apply it.

Source: llama.cpp, `llama_adapter_lora_init_impl`. What that refuses is refused here first, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_128

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.bounded import BoundedReader
from kvchat.formats.gguf import GgufHeader, TensorInfo, read_header

_A, _B = ".lora_a", ".lora_b"
_IGNORED = "_norm.weight"  # llama.cpp passes these over
_EMBEDDING = "token_embd.weight"
_INVOCATION = "adapter.alora.invocation_tokens"
_OTHER = "take one that was made for this model"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """`bytes` of its tensors, as they lie in memory. `pairs`: the tensors of the model that it changes, with the two
    factors of the change."""

    path: Path
    architecture: str
    bytes: int
    pairs: dict[str, tuple[TensorInfo, TensorInfo]]


def read_adapter(path: Path) -> AdapterFile:
    """Read its header. FormatError: it is no adapter that kvchat can use, or it is damaged; KvchatError: it cannot be
    read."""
    header = read_header(path)
    kind, form = header.text("general.type"), header.text("adapter.type")
    if kind != "adapter":
        raise FormatError(f"{path} is not a LoRA adapter but a model", "name a model with --model")
    if form != "lora":
        raise FormatError(f"{path} is an adapter of another kind than LoRA", "kvchat applies LoRA adapters only")
    if header.get(_INVOCATION) is not None:
        reason = "this adapter acts only after words that invoke it (aLoRA)"
        raise FormatError(f"{path}: {reason}, which kvchat does not do", "take an adapter that always acts")
    used = [tensor for tensor in header.tensors if tensor.name.endswith((_A, _B))]
    return AdapterFile(path, header.architecture, sum(tensor.bytes for tensor in used), _pairs(path, header))


def adapter_digest(path: Path) -> str:
    """32 hex digits that name the whole content. KvchatError when it cannot be read."""
    digest = xxh3_128()
    with BoundedReader(path) as reader:
        for start in range(0, reader.size, _CHUNK):
            digest.update(reader.read_at(start, min(_CHUNK, reader.size - start)))
    return digest.hexdigest()


def check_adapter(adapter: AdapterFile, model: GgufHeader) -> None:
    """KvchatError when it belongs to another model, as far as the header of this one tells: of a split model it has a
    part of the tensors."""
    if adapter.architecture != model.architecture:
        raise KvchatError(
            f"the adapter {adapter.path} is for the architecture {_quoted(adapter.architecture)}, "
            f"and the model is {_quoted(model.architecture)}",
            _OTHER,
        )
    shapes = {tensor.name: tensor.shape for tensor in model.tensors}
    for name, (a, b) in adapter.pairs.items():
        shape = shapes.get(name)
        if shape is None and model.split is None:
            raise KvchatError(f"the adapter {adapter.path} changes {_quoted(name)}, which the model has not", _OTHER)
        if shape is not None and not _fits(name, shape, a.shape, b.shape):
            raise KvchatError(f"the adapter {adapter.path} is for a model of another size: {_quoted(name)}", _OTHER)


def _fits(name: str, model: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if min(len(model), len(a), len(b)) < 2:
        return False
    if name.endswith(_EMBEDDING):
        return model[0] == b[1] and model[1] == a[1]
    return model[0] == a[0] and model[1] == b[1] and a[1] == b[0]


def _pairs(path: Path, header: GgufHeader) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        name, suffix = tensor.name[: -len(_A)], tensor.name[-len(_A) :]
        if suffix in (_A, _B):
            found.setdefault(name, {})[suffix] = tensor
        elif not tensor.name.endswith(_IGNORED):
            raise FormatError(f"{path}: {_quoted(tensor.name)} is no part of a LoRA adapter", "convert it anew")
    for name, pair in found.items():
        if len(pair) != 2:
            raise FormatError(f"{path}: half of the change of {_quoted(name)} is missing", "convert it anew")
    return {name: (pair[_A], pair[_B]) for name, pair in found.items()}


def _quoted(text: str) -> str:
    """No control characters, no long texts."""
    return repr(text) if len(text) <= 80 else repr(text[:77] + "...")

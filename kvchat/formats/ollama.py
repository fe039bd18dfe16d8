"""Ollama's store: manifests that give names to blobs. Owns that layout; must not change anything in it.

`manifests/HOST/NAMESPACE/MODEL/TAG` is a small JSON file that lists layers by digest; the layer with the weights is the
GGUF file `blobs/sha256-DIGEST`. What cannot be read or is not of this form is passed over. Source: Ollama
`types/model/name.go`, `manifest/layer.go`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

WEIGHTS = "application/vnd.ollama.image.model"
_LARGEST = 1 << 20  # bytes of a manifest
_MOST = 10_000  # manifests
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A model as Ollama calls it, such as "llama3.2:3b", and the file that it names, which may be missing."""

    name: str
    path: Path


def named_blobs(folder: Path) -> Iterator[NamedBlob]:
    """All models of the store in this folder (the one that OLLAMA_MODELS names), by the names of their manifests."""
    for manifest in _manifests(folder / "manifests"):
        name = _name(manifest)
        for digest in _weights(manifest):
            yield NamedBlob(name, _blob(folder, digest))


@lru_cache(maxsize=256)
def blob_name(path: Path) -> str:
    """What Ollama calls this file; "" when it is no blob of a store. Of several names the shortest."""
    digest = _DIGEST.fullmatch(path.name)
    if digest is None or path.parent.name != "blobs":
        return ""
    names = [blob.name for blob in named_blobs(path.parent.parent) if blob.path.name == path.name]
    return min(names, key=lambda name: (len(name), name), default="")


def _blob(folder: Path, digest: str) -> Path:
    usual = folder / "blobs" / f"sha256-{digest}"
    older = usual.with_name(f"sha256:{digest}")
    return older if not os.path.lexists(usual) and os.path.lexists(older) else usual


def _name(manifest: Path) -> str:
    """The host of Ollama's own registry and its namespace for everybody are not spoken of."""
    *_, host, namespace, model, tag = manifest.parts
    if not host.startswith("registry."):
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _manifests(folder: Path) -> Iterator[Path]:
    left, levels = _MOST, 4
    waiting = [(folder, 0)]
    while waiting and left > 0:
        at, level = waiting.pop()
        for entry in reversed(_entries(at)):
            left -= 1
            if level == levels - 1:
                yield Path(entry.path)
            elif _is_folder(entry):
                waiting.append((Path(entry.path), level + 1))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _weights(manifest: Path) -> list[str]:
    """Digests of the layers that are models."""
    try:
        if not manifest.is_file():
            return []
        with manifest.open("rb") as file:
            data = file.read(_LARGEST + 1)
        found = json.loads(data) if len(data) <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return []
    layers = found.get("layers") if isinstance(found, dict) else None
    digests = []
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == WEIGHTS:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            digests += [match[1]] if match else []
    return digests

"""GGUF files byte by byte, right and wrong ones."""

from __future__ import annotations

import struct
from pathlib import Path

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ARCHITECTURE = pair("general.architecture", STRING, text("llama"))


def file(
    tmp_path: Path,
    pairs: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> Path:
    """A hand-made file: tensors after the metadata, data at the next multiple of 32."""
    pairs = [ARCHITECTURE] if pairs is None else pairs
    tensors = tensors or []
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    head = magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs) + b"".join(tensors)
    if tensors:
        head += bytes(-len(head) % 32)
    path = tmp_path / "hand.gguf"
    path.write_bytes(head + data)
    return path

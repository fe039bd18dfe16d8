"""A copy of a GGUF file with more metadata, as bytes: a reader of the whole vocabulary takes seconds."""

from __future__ import annotations

import struct
from pathlib import Path

from kvchat.formats.gguf import read_header

_COUNTS = struct.Struct("<4sIQQ")  # magic, version, tensors, keys
_UINT32, _FLOAT32, _STRING = 4, 6, 8


def with_keys(source: Path, target: Path, **keys: str | int | float) -> Path:
    """`keys`: with two underscores for a dot."""
    header = read_header(source)
    raw = source.read_bytes()
    magic, version, tensors, count = _COUNTS.unpack_from(raw)
    table = sum(24 + len(each.name.encode()) + 8 * len(each.shape) for each in header.tensors)
    start = header.table_end - table
    more = b"".join(_entry(key.replace("__", "."), value) for key, value in keys.items())
    head = _COUNTS.pack(magic, version, tensors, count + len(keys)) + raw[_COUNTS.size : start] + more
    head += raw[start : header.table_end]
    target.write_bytes(head + bytes(-len(head) % 32) + raw[header.data_offset :])
    return target


def _entry(key: str, value: str | int | float) -> bytes:
    name = key.encode()
    match value:
        case str():
            content = struct.pack("<IQ", _STRING, len(value.encode())) + value.encode()
        case int():
            content = struct.pack("<II", _UINT32, value)
        case _:
            content = struct.pack("<If", _FLOAT32, value)
    return struct.pack("<Q", len(name)) + name + content

"""The built-in model made smaller or worse in a moment, with its vocabulary: what drafts for it, well or badly.

The file is taken apart and put together again as bytes: a reader of the whole vocabulary takes seconds.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

from kvchat.formats.gguf import TensorInfo, read_header

_LAYERS = b"llama.block_count"
_CONTEXT = b"llama.context_length"
_COUNTS = struct.Struct("<4sIQQ")  # magic, version, tensors, keys


def alter(source: Path, target: Path, *, layers: int, wrong: bool = False, context: int | None = None) -> Path:
    """Write `source` with its first `layers` only. `wrong`: what it means to say comes out as the token at the same
    place from the other end of the vocabulary. `context`: it claims to be trained for so many tokens."""
    header = read_header(source)
    raw = memoryview(source.read_bytes())
    magic, version, _, keys = _COUNTS.unpack_from(raw)
    table = sum(24 + len(each.name.encode()) + 8 * len(each.shape) for each in header.tensors)
    metadata = bytearray(raw[_COUNTS.size : header.table_end - table])
    _patch(metadata, _LAYERS, layers)
    if context is not None:
        _patch(metadata, _CONTEXT, context)
    kept = [
        (each, raw[header.data_offset + each.offset :][: each.bytes])
        for each in header.tensors
        if (_layer(each) or 0) < layers
    ]
    if wrong:  # where there is no such matrix, that of the input is the output, too
        tokens, content = next((each, content) for each, content in kept if each.name == "token_embd.weight")
        kept.append((replace(tokens, name="output.weight"), _reversed(content, tokens.shape[1])))
    entries, data = bytearray(), bytearray()
    for each, content in kept:
        name = each.name.encode()
        entries += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(each.shape))
        entries += struct.pack(f"<{len(each.shape)}QIQ", *each.shape, each.ggml_type, len(data))
        data += content
        data += bytes(-len(content) % 32)
    start = _COUNTS.pack(magic, version, len(kept), keys) + metadata + entries
    target.write_bytes(start + bytes(-len(start) % 32) + data)
    return target


def _patch(metadata: bytearray, key: bytes, value: int) -> None:
    at = metadata.index(key) + len(key) + 4  # the number of its type
    struct.pack_into("<I", metadata, at, value)


def _layer(tensor: TensorInfo) -> int | None:
    found = re.match(r"blk\.(\d+)\.", tensor.name)
    return int(found[1]) if found else None


def _reversed(content: bytes, rows: int) -> bytes:
    size = len(content) // rows
    return b"".join(content[at : at + size] for at in range(len(content) - size, -1, -size))

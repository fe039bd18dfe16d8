"""Page files and chain keys.

Owns the bytes of a page file and the hash that names it; must not know folders, budgets or llama.cpp.

A chain key names the history of a sequence: a page is the hash of its parent's key and its own token ids, an
eviction the hash of its parent's key and the ranges that it dropped. Every field is hashed with its length before
it, so that no two histories hash the same bytes.

A page file, little endian:

    0    magic "KVCHATPG"
    8    u32 version, u32 number of ids, u32 bytes of JSON, u32 offset of the payload
    24   u64 bytes of the payload
    32   xxh3-128 of the payload
    48   blake2b-128 of everything before the payload, with this field zero
    64   parent key (32 bytes); ids (i32 each); JSON: the other fields of PageHeader; zeros up to the payload

The payload begins at a multiple of 64 and is one run without gaps: for each layer group the K rows of every layer,
then the V rows of every layer that has any. So one `preadv` fills all layers, wherever their rows shall lie.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from xxhash import xxh3_128

from kvchat.errors import FormatError
from kvchat.formats.state import LayerShape

MAGIC = b"KVCHATPG"
VERSION = 1
KEY_BYTES = 32
ALIGNMENT = 64
MAX_HEADER = 2**20

_FIXED = struct.Struct("<8s4IQ16s16s")
_CHECK = slice(48, 64)
_LENGTH = struct.Struct("<Q")


class OtherVersionError(FormatError):
    """A page file of an older or newer version: nothing can be said about it here, and it need not be damaged."""


# ------------------------------------------------------------------ keys


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian int32, the form in which they are hashed and stored."""
    return struct.pack(f"<{len(ids)}i", *ids)


def chain_tokens(parent: bytes, tag: str, ids: Sequence[int]) -> bytes:
    """Key (32 bytes) of the page that holds `ids` after the history `parent`. `tag` is empty for computed rows."""
    return chain_packed(parent, tag, pack_ids(ids))


def chain_packed(parent: bytes, tag: str, packed: bytes) -> bytes:
    """`chain_tokens` for ids that are packed already."""
    return digest(parent, b"tokens", tag.encode(), packed)


def chain_evict(parent: bytes, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Key (32 bytes) of the history `parent` after the positions [start, end) of each range were dropped."""
    packed = b"".join(struct.pack("<qq", start, end) for start, end in ranges)
    return digest(parent, b"evict", packed)


def digest(*fields: bytes) -> bytes:
    """blake2b-256 of fields, each with its length before it."""
    state = blake2b(digest_size=KEY_BYTES)
    for value in fields:
        state.update(_LENGTH.pack(len(value)))
        state.update(value)
    return state.digest()


# ------------------------------------------------------------------ header


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that keep the same cells: all of them, or those with a sliding window.

    `layers` are indices in the cache, one per shape; the cells are those of positions [start, start + cells).
    """

    name: str
    layers: tuple[int, ...]
    shapes: tuple[LayerShape, ...]
    start: int
    cells: int

    @property
    def rows(self) -> list[int]:
        """Bytes of one row of each part, in payload order."""
        return [shape.k_row for shape in self.shapes] + [shape.v_row for shape in self.shapes if shape.v_row]

    @property
    def payload_bytes(self) -> int:
        return self.cells * sum(shape.k_row + shape.v_row for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page file says about its payload.

    `namespace` is the id of the namespace, `position` that of the first token, `seconds` what computing the rows took.
    `labels` are facts that are worth knowing and need not match: flash attention, V layout, threads, backend.
    """

    namespace: str
    parent: bytes
    tag: str
    ids: tuple[int, ...]
    position: int
    groups: tuple[LayerGroup, ...]
    labels: Mapping[str, str]
    seconds: float
    checksum: bytes = bytes(16)
    payload_offset: int = 0

    @property
    def key(self) -> bytes:
        return chain_tokens(self.parent, self.tag, self.ids)

    @property
    def payload_bytes(self) -> int:
        return sum(group.payload_bytes for group in self.groups)

    def spans(self, skip: int, take: int) -> list[tuple[int, int]]:
        """Where tokens [skip, take) of this page lie in the payload: (offset, bytes) of each part, in payload order."""
        found = []
        offset = 0
        for group in self.groups:
            first = group.start - self.position
            low = max(skip, first)
            count = max(0, min(take, first + group.cells) - low)
            for row in group.rows:
                found.append((offset + (low - first) * row, count * row))
                offset += group.cells * row
        return found


def payload_checksum(parts: Sequence[memoryview]) -> bytes:
    """xxh3-128 over the parts of a payload, as if they were one."""
    state = xxh3_128()
    for part in parts:
        state.update(part)
    return state.digest()


def encode_header(header: PageHeader) -> bytes:
    """The file up to its payload. Raises ValueError when the header is too large. `payload_offset` is chosen here."""
    text = json.dumps(_fields(header), separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    body = header.parent + pack_ids(header.ids) + text
    offset = -(-(_FIXED.size + len(body)) // ALIGNMENT) * ALIGNMENT
    if offset > MAX_HEADER:
        raise ValueError(f"page header of {offset} bytes")
    fixed = (MAGIC, VERSION, len(header.ids), len(text), offset, header.payload_bytes, header.checksum, bytes(16))
    raw = bytearray(_FIXED.pack(*fixed) + body)
    raw.extend(bytes(offset - len(raw)))
    raw[_CHECK] = blake2b(raw, digest_size=16).digest()
    return bytes(raw)


def decode_header(raw: bytes) -> PageHeader:
    """Read the beginning of a page file, at least up to its payload. Raises FormatError (OtherVersionError)."""
    ids, text, offset, payload, checksum = _fixed(raw)
    if len(raw) < offset:
        raise FormatError("page file ends within its header")
    checked = bytearray(raw[:offset])
    checked[_CHECK] = bytes(16)
    if blake2b(checked, digest_size=16).digest() != raw[_CHECK]:
        raise FormatError("page header fails its checksum")
    start = _FIXED.size + KEY_BYTES
    end = start + 4 * ids
    try:
        fields = json.loads(raw[end : end + text])
        header = PageHeader(
            namespace=_text(fields["namespace"]),
            parent=raw[_FIXED.size : start],
            tag=_text(fields["tag"]),
            ids=struct.unpack(f"<{ids}i", raw[start:end]),
            position=_count(fields["position"]),
            groups=tuple(_group(group) for group in fields["groups"]),
            labels={_text(name): _text(value) for name, value in fields["labels"].items()},
            seconds=_seconds(fields["seconds"]),
            checksum=checksum,
            payload_offset=offset,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"page header is malformed: {error!r}") from None
    _check_groups(header, payload)
    return header


def _fixed(raw: bytes) -> tuple[int, int, int, int, bytes]:
    if len(raw) < _FIXED.size:
        raise FormatError(f"page file of {len(raw)} bytes has no header")
    magic, version, ids, text, offset, payload, checksum, _ = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise FormatError("not a page file")
    if version != VERSION:
        raise OtherVersionError(f"page file of version {version}, this program reads version {VERSION}")
    least = _FIXED.size + KEY_BYTES + 4 * ids + text
    if not ids or not least <= offset <= MAX_HEADER or offset % ALIGNMENT:
        raise FormatError(f"page header has absurd sizes: {ids} ids, {text} bytes of fields, payload at {offset}")
    return ids, text, offset, payload, checksum


def _check_groups(header: PageHeader, payload: int) -> None:
    end = header.position + len(header.ids)
    for group in header.groups:
        if len(group.layers) != len(group.shapes) or not header.position <= group.start <= end - group.cells:
            raise FormatError(f"page header has a malformed layer group {group.name!r}")
    if not payload or header.payload_bytes != payload:
        raise FormatError(f"page header promises {payload} bytes, its layers have {header.payload_bytes}")


def _fields(header: PageHeader) -> dict[str, object]:
    return {
        "namespace": header.namespace,
        "tag": header.tag,
        "position": header.position,
        "groups": [
            {
                "name": group.name,
                "start": group.start,
                "cells": group.cells,
                "layers": list(group.layers),
                "shapes": [[shape.k_type, shape.k_row, shape.v_type, shape.v_row] for shape in group.shapes],
            }
            for group in header.groups
        ],
        "labels": dict(header.labels),
        "seconds": header.seconds,
    }


def _group(fields: Mapping[str, object]) -> LayerGroup:
    layers, shapes = fields["layers"], fields["shapes"]
    if not isinstance(layers, list) or not isinstance(shapes, list):
        raise TypeError("layers")
    return LayerGroup(
        name=_text(fields["name"]),
        layers=tuple(_count(layer) for layer in layers),
        shapes=tuple(LayerShape(*(_count(number) for number in shape)) for shape in shapes),
        start=_count(fields["start"]),
        cells=_count(fields["cells"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # a lone surrogate has no bytes to hash
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise TypeError(value)
    return value


def _seconds(value: object) -> float:
    if type(value) not in (int, float) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise TypeError(value)
    return float(value)

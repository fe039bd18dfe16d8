"""Page files and chain keys.

Owns the bytes of a page file and the hash that names it; must not know folders, budgets or llama.cpp.

A chain key names the history of a sequence: a page is the hash of its parent's key and its own token ids, an
eviction the hash of its parent's key and the ranges that it dropped. Every field is hashed with its length before
it, so that no two histories hash the same bytes. A checkpoint, which holds the recurrent state after its last token, is
named like the page that ends there, and differs in its kind.

A page file, little endian:

    0    magic "KVCHATPG"
    8    u32 version, u32 number of ids, u32 bytes of JSON, u32 offset of the payload
    24   u64 bytes of the payload
    32   blake2b-128 of everything before the payload, with this field zero
    48   parent key (32 bytes); ids (i32 each); JSON: the other fields of PageHeader; zeros up to the payload

The payload begins at a multiple of 64 and is one run without gaps: for each layer group the K rows of every layer,
then the V rows of every layer that has any. So one `preadv` fills all layers, wherever their rows shall lie. Each group
has its own xxh3-128, so that one can be read without the others: of an old page only the layers that keep all tokens
are wanted. A model without keys and values has pages without payload: they say which tokens were computed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from xxhash import xxh3_128

from kvchat.errors import FormatError
from kvchat.formats.rows import LayerShape

MAGIC = b"KVCHATPG"
VERSION = 2
KEY_BYTES = 32
ALIGNMENT = 64
MAX_HEADER = 2**20

_FIXED = struct.Struct("<8s4IQ16s")
_CHECK = slice(32, 48)
_LENGTH = struct.Struct("<Q")

Kind = Literal["page", "checkpoint"]
KINDS: tuple[Kind, ...] = ("page", "checkpoint")


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


def checkpoint_key(parent: bytes, packed: bytes) -> bytes:
    """Key (32 bytes) of the state after the packed ids, which come after the history `parent`."""
    return digest(parent, b"checkpoint", packed)


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
    """The rows of one part of the cache in a page.

    `shapes`: one per layer of the part. The cells are those of positions [start, start + cells), and end where the page
    ends. `checksum`: xxh3-128 of the group's payload.
    """

    name: str
    shapes: tuple[LayerShape, ...]
    start: int
    cells: int
    checksum: bytes = bytes(16)

    @property
    def rows(self) -> list[int]:
        """Bytes of one row of each buffer, in payload order."""
        return [row for row in (*(s.k_row for s in self.shapes), *(s.v_row for s in self.shapes)) if row]

    @property
    def payload_bytes(self) -> int:
        return self.cells * sum(shape.k_row + shape.v_row for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page file says about its payload.

    `kind`: a page, or a checkpoint, whose only group is the recurrent state after its last token. `namespace` is the id
    of the namespace, `position` that of the first token, `seconds` what computing the rows took. `labels` are facts
    that are worth knowing and need not match: flash attention, V layout, threads, backend.
    """

    kind: Kind
    namespace: str
    parent: bytes
    tag: str
    ids: tuple[int, ...]
    position: int
    groups: tuple[LayerGroup, ...]
    labels: Mapping[str, str]
    seconds: float
    payload_offset: int = 0

    @property
    def key(self) -> bytes:
        if self.kind == "checkpoint":
            return checkpoint_key(self.parent, pack_ids(self.ids))
        return chain_tokens(self.parent, self.tag, self.ids)

    @property
    def payload_bytes(self) -> int:
        return sum(group.payload_bytes for group in self.groups)

    @property
    def complete(self) -> int:
        """So many tokens at the end have their rows in every group."""
        return min((group.cells for group in self.groups if group.name != "state"), default=len(self.ids))

    def group(self, name: str) -> tuple[LayerGroup, int]:
        """The group of that name, and where its payload begins in that of the page. Raises FormatError without it."""
        offset = 0
        for group in self.groups:
            if group.name == name:
                return group, offset
            offset += group.payload_bytes
        raise FormatError(f"page has no {name!r} rows")


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
    fixed = (MAGIC, VERSION, len(header.ids), len(text), offset, header.payload_bytes, bytes(16))
    raw = bytearray(_FIXED.pack(*fixed) + body)
    raw.extend(bytes(offset - len(raw)))
    raw[_CHECK] = blake2b(raw, digest_size=16).digest()
    return bytes(raw)


def decode_header(raw: bytes) -> PageHeader:
    """Read the beginning of a page file, at least up to its payload. Raises FormatError (OtherVersionError)."""
    ids, text, offset, payload = _fixed(raw)
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
            kind=_kind(fields["kind"]),
            namespace=_text(fields["namespace"]),
            parent=raw[_FIXED.size : start],
            tag=_text(fields["tag"]),
            ids=struct.unpack(f"<{ids}i", raw[start:end]),
            position=_count(fields["position"]),
            groups=tuple(_group(group) for group in fields["groups"]),
            labels={_text(name): _text(value) for name, value in fields["labels"].items()},
            seconds=_seconds(fields["seconds"]),
            payload_offset=offset,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"page header is malformed: {error!r}") from None
    _check_groups(header, payload)
    return header


def _fixed(raw: bytes) -> tuple[int, int, int, int]:
    if len(raw) < _FIXED.size:
        raise FormatError(f"page file of {len(raw)} bytes has no header")
    magic, version, ids, text, offset, payload, _ = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise FormatError("not a page file")
    if version != VERSION:
        raise OtherVersionError(f"page file of version {version}, this program reads version {VERSION}")
    least = _FIXED.size + KEY_BYTES + 4 * ids + text
    if not ids or not least <= offset <= MAX_HEADER or offset % ALIGNMENT:
        raise FormatError(f"page header has absurd sizes: {ids} ids, {text} bytes of fields, payload at {offset}")
    return ids, text, offset, payload


def _check_groups(header: PageHeader, payload: int) -> None:
    end = header.position + len(header.ids)
    for group in header.groups:
        if not header.position <= group.start or group.start + group.cells != end:
            raise FormatError(f"page header has a malformed layer group {group.name!r}")
    if header.payload_bytes != payload:
        raise FormatError(f"page header promises {payload} bytes, its layers have {header.payload_bytes}")


def _fields(header: PageHeader) -> dict[str, object]:
    return {
        "kind": header.kind,
        "namespace": header.namespace,
        "tag": header.tag,
        "position": header.position,
        "groups": [
            {
                "name": group.name,
                "start": group.start,
                "cells": group.cells,
                "shapes": [[shape.k_type, shape.k_row, shape.v_type, shape.v_row] for shape in group.shapes],
                "checksum": group.checksum.hex(),
            }
            for group in header.groups
        ],
        "labels": dict(header.labels),
        "seconds": header.seconds,
    }


def _group(fields: Mapping[str, object]) -> LayerGroup:
    shapes = fields["shapes"]
    if not isinstance(shapes, list):
        raise TypeError("shapes")
    checksum = bytes.fromhex(_text(fields["checksum"]))
    if len(checksum) != 16:
        raise ValueError("checksum")
    return LayerGroup(
        name=_text(fields["name"]),
        shapes=tuple(LayerShape(*(_count(number) for number in shape)) for shape in shapes),
        start=_count(fields["start"]),
        cells=_count(fields["cells"]),
        checksum=checksum,
    )


def _kind(value: object) -> Kind:
    for kind in KINDS:
        if value == kind:
            return kind
    raise ValueError(f"kind {value!r}")


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

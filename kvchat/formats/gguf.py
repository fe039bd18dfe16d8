"""The header of a GGUF model file: metadata and tensor table. Owns the format; must not interpret a model.

Reads versions 2 and 3, little endian, in bounded time and memory: every count is checked against the size of the
file before anything is looped over or allocated, long arrays (the vocabulary) are passed over. What llama.cpp refuses
to read is refused here too, with its reason. Source: `ggml/src/gguf.cpp`, `gguf_init_from_reader`.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kvchat.errors import FormatError
from kvchat.formats.bounded import BoundedReader
from kvchat.formats.ggml import FILE_TYPES, GGML_TYPES, GgmlType
from kvchat.formats.ollama import blob_name

MAGIC = b"GGUF"
LONGEST_STRING = 1 << 20
LONGEST_ARRAY = 1024
_KEPT_BYTES = 16 << 20
_NUMBER_BYTES = 40  # what a number in a tuple takes, or a little more
LONGEST_NAME = 1 << 16
_MOST_KEYS, _MOST_TENSORS = 1 << 16, 1 << 17
_MOST_STRINGS, _MOST_STRING_BYTES = 2 << 20, 256 << 20  # the largest vocabularies have a quarter of it
_SAMPLE = 4096
_LONGEST_TENSOR_NAME = 63
_MOST_DIMENSIONS = 4
_LARGEST = 2**63 - 1
PART_NAME = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})", re.ASCII)

_STRING, _ARRAY = 8, 9
_NUMBERS: dict[int, tuple[str, struct.Struct]] = {
    0: ("uint8", struct.Struct("<B")),
    1: ("int8", struct.Struct("<b")),
    2: ("uint16", struct.Struct("<H")),
    3: ("int16", struct.Struct("<h")),
    4: ("uint32", struct.Struct("<I")),
    5: ("int32", struct.Struct("<i")),
    6: ("float32", struct.Struct("<f")),
    7: ("bool", struct.Struct("<?")),
    10: ("uint64", struct.Struct("<Q")),
    11: ("int64", struct.Struct("<q")),
    12: ("float64", struct.Struct("<d")),
}
_AGAIN = "copy or download it again"

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that was passed over: a long string (`kind` "string", `length` in bytes)."""

    kind: str
    length: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array. `values` are kept for numbers, up to LONGEST_ARRAY elements and while there is room, else None."""

    kind: str
    length: int
    values: tuple[Number, ...] | None


Value = Number | str | Array | Skipped


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `shape` as in the file: the contiguous dimension first. `offset` counts from `data_offset`."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int

    @property
    def type(self) -> GgmlType:
        return GGML_TYPES[self.ggml_type]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements // self.type.block * self.type.bytes


class Split(NamedTuple):
    """This file is part `part` (from 0) of `parts` files that together are one model."""

    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before the tensor data. `architecture` is "" only in a later part of a split model."""

    version: int
    architecture: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    table_end: int
    data_offset: int
    file_size: int

    def get(self, key: str, default: Value | None = None) -> Value | None:
        return self.metadata.get(key, default)

    def text(self, key: str) -> str | None:
        """The string under the key, None when there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    @property
    def split(self) -> Split | None:
        """None: the whole model is in this file."""
        part, parts = self.metadata.get("split.no", 0), self.metadata.get("split.count", 0)
        return Split(part, parts) if isinstance(part, int) and isinstance(parts, int) and parts > 1 else None

    @property
    def chat_template(self) -> str | None:
        return self.text("tokenizer.chat_template")

    @property
    def parameters(self) -> int:
        """Elements of all tensors in this file."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def quantization(self) -> str:
        """What the file says about itself, else the type that most elements have. "" without tensors."""
        stated = self.metadata.get("general.file_type")
        if isinstance(stated, int) and stated in FILE_TYPES:
            return FILE_TYPES[stated]
        elements: Counter[str] = Counter()
        for tensor in self.tensors:
            elements[tensor.type.name] += tensor.elements
        return elements.most_common(1)[0][0].upper() if elements else ""


def model_name(path: Path) -> str:
    """What a model is called: as Ollama has it, else its file without suffix and without the number of a part."""
    part = PART_NAME.fullmatch(path.stem)
    return blob_name(path) or (part["stem"] if part else path.stem)


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file, in about 0.15 s for a vocabulary of 262,144 tokens.

    FormatError: not GGUF, truncated (also in the tensor data), or a header that llama.cpp would refuse. KvchatError:
    the file cannot be read at all.
    """
    with BoundedReader(path) as reader:
        return HeaderParser(path, reader).header()


def fingerprint(path: Path, header: GgufHeader) -> str:
    """32 hex digits that name these weights: metadata and tensor table as they lie in the file, the first 4 KiB of
    every tensor, the size of the file. Of a split model: of its first part. Errors as in `read_header`."""
    digest = hashlib.blake2b(digest_size=16)
    with BoundedReader(path) as reader:
        for start in range(0, header.table_end, 1 << 20):
            digest.update(reader.read_at(start, min(1 << 20, header.table_end - start)))
        for tensor in header.tensors:
            digest.update(reader.read_at(header.data_offset + tensor.offset, min(_SAMPLE, tensor.bytes)))
        digest.update(reader.size.to_bytes(8, "little"))
    return digest.hexdigest()


class HeaderParser:
    """One pass over a header. Holds what the checks of a whole file need: the budget for what is kept."""

    def __init__(self, path: Path, reader: BoundedReader) -> None:
        self._path = path
        self._reader = reader
        self._kept = 0
        self._strings = 0

    def header(self) -> GgufHeader:
        version = self._version()
        tensors, keys = self._counts()
        metadata = self._metadata(keys)
        table = self._tensors(tensors)
        end = self._reader.position
        alignment = self._alignment(metadata)
        data = end + -end % alignment if table else end
        self._check_data(table, data, alignment)
        return GgufHeader(
            version, self._architecture(metadata), MappingProxyType(metadata), table, end, data, self._reader.size
        )

    def _fail(self, reason: str, hint: str = _AGAIN) -> FormatError:
        return FormatError(f"{self._path}: {reason}", hint)

    def _version(self) -> int:
        if self._reader.size == 0:
            raise self._fail("the file is empty")
        if self._reader.size < 4 or self._reader.take(4) != MAGIC:
            raise self._fail("not a GGUF file", "kvchat runs models in GGUF format only")
        version = self._reader.u32()
        if version & 0xFFFF == 0:
            raise self._fail("a big-endian GGUF file", "get the little-endian version of this model")
        if version < 2:
            raise self._fail(f"GGUF version {version} is no longer supported", "get a newer version of this model")
        if version > 3:
            raise self._fail(f"GGUF version {version} is newer than this program", "update kvchat")
        return version

    def _counts(self) -> tuple[int, int]:
        tensors, keys = self._reader.u64(), self._reader.u64()
        self._check_count(keys, "metadata keys", _MOST_KEYS, 13)
        self._check_count(tensors, "tensors", _MOST_TENSORS, 24)
        return tensors, keys

    def _check_count(self, count: int, what: str, most: int, smallest: int) -> None:
        if count > most or count * smallest > self._reader.remaining:
            raise self._fail(f"damaged header: {count} {what} in {self._reader.size} bytes")

    def _name(self, what: str, longest: int) -> str:
        length = self._reader.u64()
        if length > longest:
            raise self._fail(f"damaged header: {what} of {length} bytes")
        return _decode(self._reader.take(length))

    def _metadata(self, count: int) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for _ in range(count):
            key = self._name("a key", LONGEST_NAME)
            if key in metadata:
                raise self._fail(f"damaged header: the key {_short(key)} occurs twice")
            metadata[key] = self._value(key)
        return metadata

    def _value(self, key: str) -> Value:
        kind = self._reader.u32()
        if kind == _ARRAY:
            return self._array(key)
        if kind == _STRING:
            return self._string()
        number = self._number_type(key, kind)[1]
        value: Number = number.unpack(self._reader.take(number.size))[0]
        return value

    def _number_type(self, key: str, kind: int) -> tuple[str, struct.Struct]:
        try:
            return _NUMBERS[kind]
        except KeyError:
            raise self._fail(f"damaged header: the key {_short(key)} has the unknown type {kind}") from None

    def _string(self) -> str | Skipped:
        length = self._reader.u64()
        if length > LONGEST_STRING or self._kept + length > _KEPT_BYTES:
            self._reader.skip(length)
            return Skipped("string", length)
        self._kept += length
        return _decode(self._reader.take(length))

    def _array(self, key: str) -> Array:
        kind, length = self._reader.u32(), self._reader.u64()
        if kind == _STRING:
            self._strings += length
            self._check_count(self._strings, f"strings up to {_short(key)}", _MOST_STRINGS, 0)
            self._check_count(length, f"strings in {_short(key)}", _MOST_STRINGS, 8)
            self._reader.skip_strings(length, _MOST_STRING_BYTES)
            return Array("string", length, None)
        if kind == _ARRAY:
            raise self._fail(f"damaged header: {_short(key)} is an array of arrays")
        name, number = self._number_type(key, kind)
        self._check_count(length, f"numbers in {_short(key)}", _LARGEST, number.size)
        if length > LONGEST_ARRAY or self._kept + _NUMBER_BYTES * length > _KEPT_BYTES:
            self._reader.skip(length * number.size)
            return Array(name, length, None)
        self._kept += _NUMBER_BYTES * length
        data = self._reader.take(length * number.size)
        return Array(name, length, tuple(value for (value,) in number.iter_unpack(data)))

    def _architecture(self, metadata: Mapping[str, Value]) -> str:
        architecture = metadata.get("general.architecture", "")
        part = metadata.get("split.no", 0)
        if not isinstance(architecture, str) or not (architecture or part):
            raise self._fail("the header does not name an architecture")
        return architecture

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._fail(f"damaged header: an alignment of {_short(alignment)}")
        return alignment

    def _tensors(self, count: int) -> tuple[TensorInfo, ...]:
        names: set[str] = set()
        tensors = []
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in names:
                raise self._fail(f"damaged header: the tensor {_short(tensor.name)} occurs twice")
            names.add(tensor.name)
            tensors.append(tensor)
        return tuple(tensors)

    def _tensor(self) -> TensorInfo:
        name = self._name("a tensor name", _LONGEST_TENSOR_NAME)
        dimensions = self._reader.u32()
        if dimensions > _MOST_DIMENSIONS:
            raise self._fail(f"damaged header: the tensor {_short(name)} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self._reader.take(8 * dimensions))
        number, offset = self._reader.u32(), self._reader.u64()
        kind = GGML_TYPES.get(number)
        if kind is None:
            raise self._fail(f"the tensor {_short(name)} has the unknown type {number}", "update kvchat, or " + _AGAIN)
        row = shape[0] if shape else 1
        if math.prod(max(size, 1) for size in shape) > _LARGEST or row % kind.block:
            raise self._fail(f"damaged header: the tensor {_short(name)} has the shape {shape} as {kind.name}")
        return TensorInfo(name, shape, number, offset)

    def _check_data(self, tensors: tuple[TensorInfo, ...], data: int, alignment: int) -> None:
        expected = end = 0
        for tensor in tensors:
            if tensor.offset != expected:
                reason = f"the tensor {_short(tensor.name)} is at {tensor.offset}, not at {expected}"
                raise self._fail(f"damaged header: {reason}")
            end = tensor.offset + tensor.bytes
            expected = end + -end % alignment
        missing = data + end - self._reader.size
        if tensors and missing > 0:
            raise self._fail(f"truncated: {missing} bytes missing")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _short(value: object) -> str:
    """For a message: no control characters, no long texts."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

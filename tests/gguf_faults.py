"""The zoo of faults: files that call themselves models and are none, one function each.

A function writes its file (and, of a split model, the others) into an empty folder and returns the one to open.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import tiny
from gguf_bytes import ARCHITECTURE, ARRAY, STRING, U32, U64, file, pair, tensor, text

I32, U16 = 5, 2
MINUS_ONE = 2**64 - 1  # what -1 looks like where a size is unsigned
TEN_GIGABYTES = 10 << 30


def cut(keep: Callable[[int], int]) -> Callable[[Path], Path]:
    """A good model of which only the beginning is there."""

    def make(folder: Path) -> Path:
        path = tiny.build("llama", folder)
        os.truncate(path, keep(path.stat().st_size))
        return path

    return make


def written(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "hand.gguf"
        path.write_bytes(content)
        return path

    return make


def strings(length: int, count: int, entries: int) -> Callable[[Path], Path]:
    """A file of 10 GB, most of it holes, that claims `count` strings; the first `entries` are of this length."""

    def make(folder: Path) -> Path:
        path = file(
            folder,
            [ARCHITECTURE, pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, count))],
            counts=(1, 2),
        )
        at = path.stat().st_size
        with path.open("r+b") as stream:
            for number in range(entries):
                stream.seek(at + number * (8 + length))
                stream.write(struct.pack("<Q", length))
            stream.truncate(TEN_GIGABYTES)
        return path

    return make


def llama_with(**values: int) -> Callable[[Path], Path]:
    """A whole file whose hyper-parameters are these 32-bit numbers, negative ones as such."""
    right = {"block_count": 2, "context_length": 64, "embedding_length": 32, "attention.head_count": 2} | {
        key.replace("__", "."): value for key, value in values.items()
    }
    pairs = [
        pair(f"llama.{key}", U32 if value >= 0 else I32, struct.pack("<I" if value >= 0 else "<i", value))
        for key, value in right.items()
    ]
    return lambda folder: file(folder, [ARCHITECTURE, *pairs], [tensor("token_embd.weight", (8, 4), 0, 0)], bytes(128))


def part(folder: Path, number: int, parts: int, name: str, kind: int = U16, form: str = "<H") -> Path:
    """One file of a split model, called `name`."""
    path = file(
        folder,
        [
            ARCHITECTURE,
            pair("split.no", kind, struct.pack(form, number)),
            pair("split.count", kind, struct.pack(form, parts)),
        ],
        [tensor("a", (8,), 0, 0)],
        bytes(32),
    )
    return path.rename(folder / name)


def cyclic_links(folder: Path) -> Path:
    """The second part is a link to the first, which wants a second part."""
    first = part(folder, 0, 2, "m-00001-of-00002.gguf")
    (folder / "m-00002-of-00002.gguf").symlink_to(first)
    return first


def cyclic_parts(folder: Path) -> Path:
    """Each of the two says that it is the first part, and that the other is the second."""
    part(folder, 0, 2, "m-00002-of-00002.gguf")
    return part(folder, 0, 2, "m-00001-of-00002.gguf")


def looping_link(folder: Path) -> Path:
    """The second part is a link to itself."""
    (folder / "m-00002-of-00002.gguf").symlink_to(folder / "m-00002-of-00002.gguf")
    return part(folder, 0, 2, "m-00001-of-00002.gguf")


def alone(number: int, parts: int, name: str = "m-00001-of-00002.gguf", **how: object) -> Callable[[Path], Path]:
    return lambda folder: part(folder, number, parts, name, **how)  # type: ignore[arg-type]


Fault = tuple[Callable[[Path], Path], str]
_WIDE = {"kind": U64, "form": "<Q"}

# What is made, and what the message must say.
FAULTS: dict[str, Fault] = {
    "empty": (written(b""), "is empty"),
    "a web page": (written(b"<!doctype html><title>404</title>" * 40), "not a GGUF file"),
    "wrong magic": (lambda folder: file(folder, magic=b"GGML"), "not a GGUF file"),
    "zeros": (written(bytes(4096)), "not a GGUF file"),
    "cut in the magic": (cut(lambda size: 3), "not a GGUF file"),
    "cut in the counts": (cut(lambda size: 20), "truncated"),
    "cut in the header": (cut(lambda size: 5000), "truncated"),
    "cut in the weights": (cut(lambda size: size - 4096), "bytes missing"),
    "absurd number of keys": (lambda folder: file(folder, counts=(0, 2**62)), "damaged header"),
    "absurd number of tensors": (lambda folder: file(folder, counts=(2**62, 1)), "damaged header"),
    "absurd number of strings": (
        lambda folder: file(folder, [pair("a", ARRAY, struct.pack("<IQ", STRING, 2**61)), ARCHITECTURE]),
        "damaged header",
    ),
    "absurd number of blocks": (llama_with(block_count=2**32 - 1), "damaged header"),
    "absurd heads": (llama_with(attention__head_count=2**31), "damaged header"),
    "absurd context": (llama_with(context_length=2**32 - 1), "damaged header"),
    "negative number of keys": (lambda folder: file(folder, counts=(0, MINUS_ONE)), "damaged header"),
    "negative length of a key": (
        lambda folder: file(folder, [struct.pack("<Q", MINUS_ONE) + bytes(64)]),
        "damaged header",
    ),
    "negative length of a text": (
        lambda folder: file(folder, [ARCHITECTURE, pair("general.name", STRING, struct.pack("<Q", MINUS_ONE))]),
        "truncated",
    ),
    "negative length of an array": (
        lambda folder: file(folder, [ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQ", U32, MINUS_ONE))]),
        "damaged header",
    ),
    "negative text in an array": (
        lambda folder: file(folder, [ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQQ", STRING, 1, MINUS_ONE))]),
        "truncated",
    ),
    "negative shape": (
        lambda folder: file(folder, tensors=[tensor("a", (MINUS_ONE,), 0, 0)], data=bytes(64)),
        "damaged header",
    ),
    "negative offset": (
        lambda folder: file(folder, tensors=[tensor("a", (8,), 0, MINUS_ONE - 31)], data=bytes(64)),
        "damaged header",
    ),
    "negative number of blocks": (llama_with(block_count=-1), "damaged header"),
    "negative context": (llama_with(context_length=-4096), "damaged header"),
    "negative width": (llama_with(embedding_length=-32), "damaged header"),
    "10 GB of long strings": (strings(1 << 33, 160_000, 1), "more than 256 MiB of strings"),
    "10 GB of strings": (strings(1 << 16, 160_000, 6000), "more than 256 MiB of strings"),
    "10 GB of empty strings": (strings(0, (TEN_GIGABYTES >> 3) - 64, 0), "damaged header"),
    "cyclic split: a link back": (cyclic_links, "is not part 2 of this model"),
    "cyclic split: two first parts": (cyclic_parts, "is not part 2 of this model"),
    "cyclic split: a link to itself": (looping_link, "is missing"),
    "split: absurd number of parts": (alone(0, 2**40, **_WIDE), "1099511627776 parts"),
    "split: more parts than names can count": (alone(0, 65535), "65535 parts"),
    "split: a part beyond the last": (alone(7, 2), "is part 8 of 2"),
    "split: a negative part": (alone(-1, 2, kind=I32, form="<i"), "part 0 of 2"),
    "split: another number than the name says": (alone(0, 3), "is missing"),
    "only a vocabulary": (
        lambda folder: file(folder, [ARCHITECTURE, pair("tokenizer.ggml.model", STRING, text("gpt2"))]),
        "only a vocabulary",
    ),
}

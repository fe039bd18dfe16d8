"""The header reader: what it reads agrees with the gguf package, what is damaged is refused, quickly."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from gguf.constants import GGML_QUANT_SIZES
from gguf_bytes import ARCHITECTURE, ARRAY, BOOL, F32, I32, STRING, U8, U32, U64, file, pair, tensor, text

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.ggml import FILE_TYPES, GGML_TYPES, row_bytes
from kvchat.formats.gguf import Array, GgufHeader, Skipped, Split, fingerprint, model_name, read_header


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build("llama", tmp_path_factory.mktemp("models"))


# ------------------------------------------------------------------ tables


def test_types_agree_with_the_gguf_package() -> None:
    ours = {number: (kind.name.upper(), kind.block, kind.bytes) for number, kind in GGML_TYPES.items()}
    theirs = {kind.value: (kind.name, *size) for kind, size in GGML_QUANT_SIZES.items()}
    # The package has 40 bytes for Q8_1; ggml's block_q8_1 is two halves and 32 bytes. It never lies in files.
    theirs[9] = ("Q8_1", 32, 36)
    assert theirs.items() <= ours.items()
    assert ours[42] == ("Q2_0", 64, 2 + 64 // 4)
    files = {kind.value: kind.name.split("_", 1)[1] for kind in gguf.LlamaFileType if kind.name != "GUESSED"}
    assert files.items() <= FILE_TYPES.items()


def test_row_bytes() -> None:
    assert row_bytes(192, "f16") == 384
    assert row_bytes(192, "q8_0") == 6 * 34
    assert row_bytes(192, "q4_0") == 6 * 18
    with pytest.raises(KvchatError, match="80 elements"):
        row_bytes(80, "q8_0")
    with pytest.raises(KvchatError, match="'q9_9'"):
        row_bytes(32, "q9_9")


# ------------------------------------------------------------------ right files


@pytest.mark.parametrize("kind", ["llama", "mamba", "jamba"])
def test_agrees_with_the_gguf_package(kind: str, tmp_path: Path) -> None:
    path = tiny.build(kind, tmp_path)
    agrees(path, read_header(path))


def agrees(path: Path, header: GgufHeader) -> None:
    reader = gguf.GGUFReader(path)
    theirs = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert set(header.metadata) == set(theirs)
    for name, value in header.metadata.items():
        field = theirs[name]
        if isinstance(value, Array):
            assert value.length == len(field.data)
            assert value.values is None or list(value.values) == field.contents()
        else:
            assert value == field.contents()
    assert [(t.name, list(t.shape), t.ggml_type, header.data_offset + t.offset, t.bytes) for t in header.tensors] == [
        (t.name, [int(n) for n in t.shape], int(t.tensor_type), t.data_offset, t.n_bytes) for t in reader.tensors
    ]
    assert header.parameters == sum(int(t.n_elements) for t in reader.tensors)


def test_helpers(llama: Path) -> None:
    header = read_header(llama)
    assert (header.version, header.architecture, header.split) == (3, "llama", None)
    assert header.chat_template == tiny.CHATML
    assert header.get("llama.block_count") == 2
    assert header.get("nothing", 7) == 7
    assert header.text("llama.block_count") is None
    assert header.quantization == "F16"
    assert header.metadata["tokenizer.ggml.tokens"] == Array("string", 512, None)
    assert header.file_size == llama.stat().st_size


def test_every_scalar_type(tmp_path: Path) -> None:
    values = {
        0: ("<B", 200),
        1: ("<b", -5),
        2: ("<H", 60000),
        3: ("<h", -6000),
        4: ("<I", 2**32 - 1),
        5: ("<i", -(2**31)),
        6: ("<f", 0.5),
        7: ("<?", True),
        10: ("<Q", 2**64 - 1),
        11: ("<q", -(2**63)),
        12: ("<d", 1e300),
    }
    pairs = [pair(f"key{kind}", kind, struct.pack(form, value)) for kind, (form, value) in values.items()]
    header = read_header(file(tmp_path, [ARCHITECTURE, *pairs]))
    assert {key: value for key, value in header.metadata.items() if key != "general.architecture"} == {
        f"key{kind}": value for kind, (_, value) in values.items()
    }


def test_version_2_reads_the_same(tmp_path: Path) -> None:
    assert read_header(file(tmp_path, version=2)).version == 2


def test_arrays(tmp_path: Path) -> None:
    numbers = struct.pack("<IQ4i", I32, 4, 1, -2, 3, 0)
    flags = struct.pack("<IQ2?", BOOL, 2, True, False)
    many = struct.pack("<IQ", F32, 1025) + bytes(4 * 1025)
    words = struct.pack("<IQ", STRING, 2) + text("a") + text("")
    pairs = [pair(key, ARRAY, data) for key, data in zip("abcd", (numbers, flags, many, words), strict=True)]
    header = read_header(file(tmp_path, [*pairs, ARCHITECTURE]))
    assert header.metadata["a"] == Array("int32", 4, (1, -2, 3, 0))
    assert header.metadata["b"] == Array("bool", 2, (True, False))
    assert header.metadata["c"] == Array("float32", 1025, None)
    assert header.metadata["d"] == Array("string", 2, None)
    assert header.architecture == "llama"


def test_long_strings_are_passed_over(tmp_path: Path) -> None:
    pairs = [pair("kept", STRING, text("x" * 2**20)), pair("long", STRING, text("x" * (2**20 + 1))), ARCHITECTURE]
    header = read_header(file(tmp_path, pairs))
    assert header.text("kept") == "x" * 2**20
    assert header.metadata["long"] == Skipped("string", 2**20 + 1)


def test_text_that_is_not_utf8_is_still_text(tmp_path: Path) -> None:
    header = read_header(file(tmp_path, [ARCHITECTURE, pair("general.name", STRING, text(b"\xff\xfename"))]))
    assert header.text("general.name") == "\\xff\\xfename"
    assert header.text("general.name").isprintable()  # type: ignore[union-attr]


def test_split(tmp_path: Path) -> None:
    parts = [pair("split.no", 2, struct.pack("<H", 1)), pair("split.count", 2, struct.pack("<H", 3))]
    header = read_header(file(tmp_path, parts))
    assert header.split == Split(1, 3)
    assert header.architecture == ""


@pytest.mark.parametrize(("file_type", "expected"), [(15, "Q4_K_M"), (999, "Q8_0"), (None, "Q8_0")])
def test_quantization(file_type: int | None, expected: str, tmp_path: Path) -> None:
    pairs = [ARCHITECTURE]
    if file_type is not None:
        pairs.append(pair("general.file_type", U32, struct.pack("<I", file_type)))
    tensors = [tensor("small", (8,), 0, 0), tensor("big", (64, 2), 8, 32)]
    assert read_header(file(tmp_path, pairs, tensors, bytes(32 + 4 * 34))).quantization == expected


def test_large_vocabulary_in_little_memory(tmp_path: Path) -> None:
    words = struct.pack("<IQ", STRING, 262_144) + b"".join(text(f"token number {i}") for i in range(262_144))
    scores = struct.pack("<IQ", F32, 262_144) + bytes(4 * 262_144)
    pairs = [pair("tokens", ARRAY, words), pair("scores", ARRAY, scores), ARCHITECTURE]
    path = file(tmp_path, pairs)
    tracemalloc.start()
    try:
        header = read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert header.metadata["tokens"] == Array("string", 262_144, None)
    assert peak < 4 << 20  # the file has 7 MB


@pytest.mark.parametrize(
    ("length", "message"),
    [(1 << 16, "more than 256 MiB of strings"), (0, "2621440 strings"), (1 << 33, "more than 256 MiB of strings")],
)
def test_ten_gigabytes_of_claimed_strings(length: int, message: str, tmp_path: Path) -> None:
    """A file with holes is as long as it claims, and nobody reads all of it."""
    count = 2_621_440 if length == 0 else 160_000
    path = file(tmp_path, [ARCHITECTURE, pair("tokens", ARRAY, struct.pack("<IQ", STRING, count))], counts=(1, 2))
    at = path.stat().st_size
    with path.open("r+b") as stream:
        for number in range(min(6000, (10 << 30) // (8 + length)) if length else 0):
            stream.seek(at + number * (8 + length))
            stream.write(struct.pack("<Q", length))
        stream.truncate(10 << 30)
    read = []
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        read.append(size)
        return pread(fd, size, offset)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(FormatError, match=message):
        patch.setattr(os, "pread", counted)
        read_header(path)
    assert sum(read) < 300 << 20


def test_many_arrays_in_little_memory(tmp_path: Path) -> None:
    numbers = struct.pack("<IQ", 2, 1024) + b"\xff" * 2048
    path = file(tmp_path, [ARCHITECTURE, *(pair(f"array {i}", ARRAY, numbers) for i in range(4000))])
    tracemalloc.start()
    try:
        header = read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    arrays = [value for value in header.metadata.values() if isinstance(value, Array)]
    assert [value.length for value in arrays] == [1024] * 4000
    kept = [value.values is not None for value in arrays]
    assert kept == [True] * (2**24 // (40 * 1024)) + [False] * (4000 - 2**24 // (40 * 1024))
    assert peak < 24 << 20  # the file has 8 MB


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("big-00001-of-00002.gguf", "big"),
        ("big-00002-of-00002.gguf", "big"),
        ("Big-7B.Q4_K_M.gguf", "Big-7B.Q4_K_M"),
        ("big-1-of-2.gguf", "big-1-of-2"),
        ("big-00001-of-00002-v2.gguf", "big-00001-of-00002-v2"),
        ("-00001-of-00002.gguf", "-00001-of-00002"),
    ],
)
def test_model_name(name: str, expected: str) -> None:
    assert model_name(Path("/models/of-00001") / name) == expected


def test_real_model(smollm2: Path) -> None:
    header = read_header(smollm2)
    assert header.architecture == "llama"
    assert header.quantization == "Q4_1"
    width, kv, inner = 576, 192, 1536
    layer = 2 * width * width + 2 * kv * width + 3 * inner * width + 2 * width
    assert header.parameters == 49_152 * width + 30 * layer + width
    assert header.chat_template is not None
    assert "<|im_start|>" in header.chat_template


# ------------------------------------------------------------------ fingerprint


def test_fingerprint_names_the_weights(llama: Path, tmp_path: Path) -> None:
    header = read_header(llama)
    first = fingerprint(llama, header)
    assert len(first) == 32
    copy = tmp_path / "other name.gguf"
    copy.write_bytes(llama.read_bytes())
    assert fingerprint(copy, read_header(copy)) == first


@pytest.mark.parametrize("where", ["metadata", "first tensor", "last tensor", "size"])
def test_fingerprint_sees_a_change(where: str, llama: Path, tmp_path: Path) -> None:
    header = read_header(llama)
    data = bytearray(llama.read_bytes())
    if where == "size":
        data += b"\0"
    else:
        last = header.data_offset + header.tensors[-1].offset
        offset = {"metadata": data.index(b"tiny llama"), "first tensor": header.data_offset, "last tensor": last + 1}
        data[offset[where]] ^= 1
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(data)
    assert fingerprint(changed, read_header(changed)) != fingerprint(llama, header)


# ------------------------------------------------------------------ wrong files


def huge(count: int) -> Callable[[Path], Path]:
    return lambda folder: file(folder, counts=(0, count))


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "magic": (lambda f: file(f, magic=b"GGML"), "not a GGUF file"),
    "version 1": (lambda f: file(f, version=1), "version 1"),
    "version 0 reads as big-endian": (lambda f: file(f, version=0), "big-endian"),
    "version 4": (lambda f: file(f, version=4), "newer"),
    "big-endian": (lambda f: file(f, version=0x03000000), "big-endian"),
    "2**64 - 1 keys": (huge(2**64 - 1), "damaged"),
    "a million keys": (huge(10**6), "damaged"),
    "2**60 tensors": (lambda f: file(f, counts=(2**60, 1)), "damaged"),
    "no architecture": (lambda f: file(f, []), "architecture"),
    "architecture is a number": (lambda f: file(f, [pair("general.architecture", U8, b"\1")]), "architecture"),
    "key twice": (lambda f: file(f, [ARCHITECTURE, ARCHITECTURE]), "twice"),
    "endless key": (lambda f: file(f, [struct.pack("<Q", 2**63) + bytes(64)]), "damaged"),
    "endless string": (lambda f: file(f, [pair("a", STRING, struct.pack("<Q", 2**63))]), "truncated"),
    "unknown type": (lambda f: file(f, [ARCHITECTURE, pair("a", 77, bytes(8))]), "unknown type 77"),
    "array of arrays": (
        lambda f: file(f, [ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(64))]),
        "array of arrays",
    ),
    "array of 2**62": (lambda f: file(f, [pair("a", ARRAY, struct.pack("<IQ", U64, 2**62))]), "damaged"),
    "2**40 strings": (lambda f: file(f, [pair("a", ARRAY, struct.pack("<IQ", STRING, 2**40))]), "damaged"),
    "string in array beyond the end": (
        lambda f: file(f, [pair("a", ARRAY, struct.pack("<IQQ", STRING, 1, 10**9))]),
        "truncated",
    ),
    "alignment 3": (
        lambda f: file(f, [ARCHITECTURE, pair("general.alignment", U32, struct.pack("<I", 3))]),
        "alignment",
    ),
    "alignment 0": (
        lambda f: file(f, [ARCHITECTURE, pair("general.alignment", U32, struct.pack("<I", 0))]),
        "alignment",
    ),
    "tensor twice": (
        lambda f: file(f, tensors=[tensor("a", (8,), 0, 0), tensor("a", (8,), 0, 32)], data=bytes(64)),
        "twice",
    ),
    "5 dimensions": (lambda f: file(f, tensors=[tensor("a", (1,) * 5, 0, 0)], data=bytes(64)), "5 dimensions"),
    "long tensor name": (lambda f: file(f, tensors=[tensor("a" * 64, (1,), 0, 0)], data=bytes(64)), "64 bytes"),
    "unknown tensor type": (lambda f: file(f, tensors=[tensor("a", (32,), 4, 0)], data=bytes(64)), "type 4"),
    "half a block": (lambda f: file(f, tensors=[tensor("a", (16,), 8, 0)], data=bytes(64)), "shape"),
    "overflowing shape": (
        lambda f: file(f, tensors=[tensor("a", (2**32, 2**32), 0, 0)], data=bytes(64)),
        "shape",
    ),
    "offset with a gap": (lambda f: file(f, tensors=[tensor("a", (8,), 0, 64)], data=bytes(128)), "is at 64"),
    "overlapping offsets": (
        lambda f: file(f, tensors=[tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], data=bytes(128)),
        "is at 32, not at 64",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message) as caught:
            read_header(make(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.hint


def test_says_how_much_data_is_missing(llama: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(llama.read_bytes()[:-1000])
    padding = -read_header(llama).tensors[-1].bytes % 32
    with pytest.raises(FormatError, match=f"truncated: {1000 - padding} bytes missing"):
        read_header(cut)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 23, 24, 31, 100, 5000])
def test_cut_in_the_header(size: int, llama: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(llama.read_bytes()[:size])
    with pytest.raises(FormatError):
        read_header(cut)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a folder"):
        read_header(tmp_path)
    with pytest.raises(KvchatError, match="No such file"):
        read_header(tmp_path / "missing.gguf")
    with pytest.raises(KvchatError, match="null"):
        read_header(Path("nul\0byte.gguf"))
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FormatError, match="not a regular file"):
        read_header(tmp_path / "pipe.gguf")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = file(tmp_path)
    path.chmod(0)
    with pytest.raises(KvchatError, match="Permission denied"):
        read_header(path)


def test_messages_show_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        read_header(file(tmp_path, [ARCHITECTURE, pair("\x1b[2J" + "k" * 500, 77, b"")]))
    assert "\x1b" not in str(caught.value)
    assert len(caught.value.message) < 300 + len(str(tmp_path))


def test_random_damage_is_a_format_error_or_harmless(tmp_path: Path) -> None:
    """Truncations and flipped bytes: a header or a FormatError, nothing else."""
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_name("small")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["one", "two", "three"])
    writer.add_tensor("a", np.zeros((4, 8), np.float32))
    writer.add_tensor("b", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    good = (tmp_path / "small.gguf").read_bytes()
    header = read_header(tmp_path / "small.gguf")
    rng = random.Random(1)
    path = tmp_path / "damaged.gguf"
    refused = 0
    for _ in range(1500):
        data = bytearray(good)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(min(len(data), header.data_offset))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            damaged = read_header(path)
        except FormatError:
            refused += 1
        else:
            fingerprint(path, damaged)
    assert refused > 300

"""A model with random weights in the shape of Llama 3.1 8B, or a tiny one of the same kind, as a GGUF file.

    python benchmarks/random_model.py FILE [--tiny]

What it says is noise, but its KV, its matrices and its memory are those of the real one. The weights are Q4_0, which is
written as fast as the disk takes it: random nibbles with one scale. The rows of the control tokens in the output matrix
are zero, so that an answer never ends by itself.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_TYPE_F32, _TYPE_Q4_0 = 0, 2
_BLOCK, _BLOCK_BYTES = 32, 18
_ALIGNMENT = 32
# A nibble n is n - 8. Without -8, which becomes 0, the mean is 0: else all matrices had one direction in common.
_CENTRED = np.array([(b >> 4 or 8) << 4 | (b & 15 or 8) for b in range(256)], np.uint8)
_DEVIATION = (2 * sum(n * n for n in range(8)) / 16) ** 0.5
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


@dataclass(frozen=True)
class Shape:
    """A model of the architecture llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    context: int


LLAMA_8B = Shape(32, 4096, 32, 8, 14336, 128256, 8192)
TINY = Shape(4, 256, 4, 2, 512, 1024, 8192)


def write(path: Path, shape: Shape, seed: int = 0) -> Path:
    """Write the file, tensor by tensor: it needs little memory."""
    tensors = list(_tensors(shape))
    keys = list(_keys(shape))
    source = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)))
        for key in keys:
            file.write(key)
        offset = 0
        for name, sizes, kind in tensors:
            file.write(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
            offset += _padded(_bytes(sizes, kind))
        file.write(bytes(-file.tell() % _ALIGNMENT))
        for name, sizes, kind in tensors:
            _fill(file, name, sizes, kind, source)
            file.write(bytes(-file.tell() % _ALIGNMENT))
    return path


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], int]]:
    width, head = shape.width, shape.width // shape.heads
    yield "token_embd.weight", (width, shape.vocabulary), _TYPE_Q4_0
    for layer in range(shape.layers):
        matrices = (
            ("attn_q", width, width),
            ("attn_k", width, head * shape.kv_heads),
            ("attn_v", width, head * shape.kv_heads),
            ("attn_output", width, width),
            ("ffn_gate", width, shape.feed_forward),
            ("ffn_up", width, shape.feed_forward),
            ("ffn_down", shape.feed_forward, width),
        )
        for name, inputs, outputs in matrices:
            yield f"blk.{layer}.{name}.weight", (inputs, outputs), _TYPE_Q4_0
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (width,), _TYPE_F32
    yield "output_norm.weight", (width,), _TYPE_F32
    yield "output.weight", (width, shape.vocabulary), _TYPE_Q4_0


def _fill(file: BinaryIO, name: str, sizes: tuple[int, ...], kind: int, source: np.random.Generator) -> None:
    if kind == _TYPE_F32:
        file.write(np.ones(sizes, np.float32).tobytes())
        return
    inputs, outputs = sizes
    row = inputs // _BLOCK
    scale = np.float16(1 / (_DEVIATION * inputs**0.5))
    for start in range(0, outputs, 4096):
        count = min(4096, outputs - start) * row
        blocks = np.empty((count, _BLOCK_BYTES), np.uint8)
        blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
        blocks[:, 2:] = _CENTRED[np.frombuffer(source.bytes(count * 16), np.uint8)].reshape(count, 16)
        if name == "output.weight" and start == 0:
            blocks[: len(_CONTROL) * row, :2] = 0
        file.write(blocks.tobytes())


def _keys(shape: Shape) -> Iterator[bytes]:
    numbers = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "vocab_size": shape.vocabulary,
    }
    yield _key("general.architecture", _STRING, _text("llama"))
    yield _key("general.name", _STRING, _text("random"))
    for name, number in numbers.items():
        yield _key(f"llama.{name}", _U32, struct.pack("<I", number))
    yield _key("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5))
    yield _key("llama.rope.freq_base", _F32, struct.pack("<f", 500000.0))
    tokens = [*_CONTROL, *_alphabet()]
    tokens += [f"<{number}>" for number in range(len(tokens), shape.vocabulary)]
    kinds = [3] * len(_CONTROL) + [1] * (shape.vocabulary - len(_CONTROL))  # control, normal (llama.h)
    yield _key("tokenizer.ggml.model", _STRING, _text("gpt2"))
    yield _key("tokenizer.ggml.pre", _STRING, _text("gpt-2"))
    yield _key("tokenizer.ggml.tokens", _ARRAY, _array(_STRING, [_text(token) for token in tokens]))
    yield _key("tokenizer.ggml.token_type", _ARRAY, _array(_I32, [struct.pack("<i", kind) for kind in kinds]))
    yield _key("tokenizer.ggml.merges", _ARRAY, _array(_STRING, [_text(f"{tokens[3]} {tokens[4]}")]))
    yield _key("tokenizer.ggml.bos_token_id", _U32, struct.pack("<I", 0))
    yield _key("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", 2))
    yield _key("tokenizer.ggml.add_bos_token", _BOOL, b"\x00")
    yield _key("tokenizer.chat_template", _STRING, _text(_TEMPLATE))


def _alphabet() -> list[str]:
    """The printable stand-ins of the 256 bytes, as in GPT-2's `bytes_to_unicode`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    signs = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [signs[byte] for byte in range(256)]


def _key(name: str, kind: int, content: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + content


def _array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _bytes(sizes: tuple[int, ...], kind: int) -> int:
    count = int(np.prod(sizes))
    return 4 * count if kind == _TYPE_F32 else count // _BLOCK * _BLOCK_BYTES


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tiny", action="store_true", help="four layers of 256")
    given = parser.parse_args()
    write(given.file, TINY if given.tiny else LLAMA_8B)
    print(f"{given.file}: {given.file.stat().st_size / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()

"""A copy of a GGUF model with F16 weights, for measurements that want a larger and slower model of the same words.

python benchmarks/dequantize.py MODEL.gguf OUT.gguf
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import gguf
import numpy as np

_OF_THE_WRITER = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def dequantize(source: Path, target: Path, *, layers: int | None = None, noise: bool = False) -> None:
    """Write `source` again with matrices in F16 and vectors in F32. `layers`: only the first ones. `noise`: matrices of
    random numbers."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if not field.name.startswith(_OF_THE_WRITER):
            subtype = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            fewer = layers is not None and field.name == f"{architecture}.block_count"
            writer.add_key_value(field.name, layers if fewer else field.contents(), field.types[0], subtype)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    numbers = np.random.default_rng(0)
    for tensor in reader.tensors:
        if layers is not None and int((re.match(r"blk\.(\d+)\.", tensor.name) or [0, -1])[1]) >= layers:
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if noise and values.ndim > 1:
            values = numbers.normal(0.0, 0.02, values.shape)
        writer.add_tensor(tensor.name, values.astype(np.float16 if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    dequantize(given.source, given.target)


if __name__ == "__main__":
    main()

"""The tensor types of ggml: numbers, names, block sizes. Owns the tables; must not read files.

Source: `enum ggml_type` and `type_traits` of ggml, `enum llama_ftype` of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class GgmlType:
    """`block` elements are stored together in `bytes` bytes. `name` is ggml's own ("f16", "q8_0", "q4_K")."""

    name: str
    block: int
    bytes: int

    def bits(self) -> float:
        """Of one element."""
        return 8 * self.bytes / self.block


GGML_TYPES: dict[int, GgmlType] = {
    0: GgmlType("f32", 1, 4),
    1: GgmlType("f16", 1, 2),
    2: GgmlType("q4_0", 32, 18),
    3: GgmlType("q4_1", 32, 20),
    6: GgmlType("q5_0", 32, 22),
    7: GgmlType("q5_1", 32, 24),
    8: GgmlType("q8_0", 32, 34),
    9: GgmlType("q8_1", 32, 36),
    10: GgmlType("q2_K", 256, 84),
    11: GgmlType("q3_K", 256, 110),
    12: GgmlType("q4_K", 256, 144),
    13: GgmlType("q5_K", 256, 176),
    14: GgmlType("q6_K", 256, 210),
    15: GgmlType("q8_K", 256, 292),
    16: GgmlType("iq2_xxs", 256, 66),
    17: GgmlType("iq2_xs", 256, 74),
    18: GgmlType("iq3_xxs", 256, 98),
    19: GgmlType("iq1_s", 256, 50),
    20: GgmlType("iq4_nl", 32, 18),
    21: GgmlType("iq3_s", 256, 110),
    22: GgmlType("iq2_s", 256, 82),
    23: GgmlType("iq4_xs", 256, 136),
    24: GgmlType("i8", 1, 1),
    25: GgmlType("i16", 1, 2),
    26: GgmlType("i32", 1, 4),
    27: GgmlType("i64", 1, 8),
    28: GgmlType("f64", 1, 8),
    29: GgmlType("iq1_m", 256, 56),
    30: GgmlType("bf16", 1, 2),
    34: GgmlType("tq1_0", 256, 54),
    35: GgmlType("tq2_0", 256, 66),
    39: GgmlType("mxfp4", 32, 17),
    40: GgmlType("nvfp4", 64, 36),
    41: GgmlType("q1_0", 128, 18),
    42: GgmlType("q2_0", 64, 18),
}

GGML_NUMBERS: dict[str, int] = {kind.name: number for number, kind in GGML_TYPES.items()}

# `general.file_type`: what the quantizer was asked for; single tensors may differ.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}

_BY_NAME = {kind.name: kind for kind in GGML_TYPES.values()}


def type_named(name: str) -> GgmlType:
    """The type with ggml's name. KvchatError for a name that ggml does not have."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KvchatError(f"{name!r} is not a tensor type", f"types: {', '.join(sorted(_BY_NAME))}") from None


def row_bytes(elements: int, type_name: str) -> int:
    """Bytes of one row of `elements` elements in the named type, as `ggml_row_size` has it.

    KvchatError when the row is not a whole number of blocks.
    """
    kind = type_named(type_name)
    if elements % kind.block:
        raise KvchatError(f"a row of {elements} elements cannot be stored as {type_name} (blocks of {kind.block})")
    return elements // kind.block * kind.bytes

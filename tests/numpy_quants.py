"""The reference for conversions: those of the gguf package, in numpy."""

from __future__ import annotations

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize


class NumpyQuants:
    """See `kv.transcode.Quants`. It has no way to iq4_nl, only one from it."""

    def decode(self, type_name: str, raw: np.ndarray, out: np.ndarray) -> None:
        out[:] = dequantize(raw, _kind(type_name)).reshape(-1)

    def encode(self, type_name: str, values: np.ndarray, out: np.ndarray) -> None:
        out[:] = quantize(values, _kind(type_name)).view(np.uint8).reshape(-1)


def _kind(type_name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[type_name.upper()]

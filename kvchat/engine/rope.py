"""Positions otherwise than the model file says: whether that has an effect, and what names it for the pages. Pure.

llama.cpp takes what is given and the file's own for the rest; its choice of long or short factors by the context is
named in `namespace`. Layers with a window keep the frequencies of the file (llama-model.cpp, get_rope_freq_base).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import fields

from kvchat.backend.values import Rope
from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader
from kvchat.kv.namespace import Scalar

_OF_EXTRAPOLATION = ("yarn_orig_ctx", "yarn_beta_slow", "yarn_beta_fast")


class RopeChoice:
    """What somebody asked for, for one model."""

    def __init__(self, rope: Rope, model: GgufHeader) -> None:
        """Raises KvchatError where it would have no effect."""
        given = {field.name: getattr(rope, field.name) for field in fields(rope)}
        given = {name: value for name, value in given.items() if value is not None}
        arch = model.architecture
        if given and not any(key.startswith(f"{arch}.rope.") for key in model.metadata):
            raise KvchatError(
                f"positions cannot be scaled: models of the architecture {arch!r} do not say that they use RoPE",
                "leave the flags that begin with --rope and --yarn out",
            )
        _refuse_idle_yarn(given, _extrapolation(rope, model))
        self._identity = tuple((name, _as_stored(value)) for name, value in given.items())

    @property
    def identity(self) -> tuple[tuple[str, Scalar], ...]:
        """What a state that was computed so depends on beside the file; empty: on nothing else."""
        return self._identity


def _extrapolation(rope: Rope, model: GgufHeader) -> float:
    """The factor that llama.cpp takes (llama-context.cpp); 0: no YaRN."""
    stated = model.get(f"{model.architecture}.rope.scaling.yarn_ext_factor")
    if rope.yarn_ext_factor is not None:
        return rope.yarn_ext_factor
    if isinstance(stated, float) and stated >= 0:
        return stated
    scaling = rope.scaling or model.text(f"{model.architecture}.rope.scaling.type")
    return 1.0 if scaling == "yarn" else 0.0


def _refuse_idle_yarn(given: Mapping[str, Scalar], extrapolation: float) -> None:
    """llama.cpp computes the factor of the attention itself where YaRN extrapolates, and asks for the others only
    there."""
    if not extrapolation and any(name in given for name in _OF_EXTRAPOLATION):
        raise KvchatError(
            "parameters of YaRN have no effect on this model, whose positions are not scaled so",
            "add --rope-scaling yarn",
        )
    if extrapolation and "yarn_attn_factor" in given:
        raise KvchatError(
            "--yarn-attn-factor has no effect with YaRN, for which llama.cpp computes it itself",
            "leave it out, or add --yarn-ext-factor 0",
        )


def _as_stored(value: Scalar) -> Scalar:
    """Numbers as llama.cpp has them, float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0]) if isinstance(value, float) else value

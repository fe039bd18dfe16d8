"""LoRA adapters of a model: read and checked before the weights are loaded, named for the pages, handed to llama.cpp.

Owns what names a set of adapters. An adapter with the scale 0 does nothing: it is checked, and then as if it were not
there. Must not touch contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvchat.backend.values import Adapter
from kvchat.engine.llama import NativeModel
from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader
from kvchat.formats.gguf_adapter import AdapterFile, adapter_digest, check_adapter, read_adapter


class _Checked(NamedTuple):
    file: AdapterFile
    digest: str
    scale: float


class Adapters:
    """Those of one model, in the order in which they are applied."""

    def __init__(self, wanted: Sequence[Adapter], model: GgufHeader) -> None:
        """Raises KvchatError for one that cannot be read or belongs to another model."""
        found = [_checked(adapter, model) for adapter in wanted]
        digests = [each.digest for each in found]
        for each in found:
            if digests.count(each.digest) > 1:
                raise KvchatError(f"the adapter {each.file.path} is given twice", "once, with the sum of the scales")
        # In one order, whatever they were asked for in.
        self._acting = sorted((each for each in found if each.scale != 0), key=lambda each: each.digest)

    @property
    def identity(self) -> str:
        """What a state that was computed with them depends on: contents and scales; "" without any."""
        return " ".join(f"{each.digest}@{each.scale:.9g}" for each in self._acting)

    @property
    def labels(self) -> tuple[str, ...]:
        """For a person: names, with their scales."""
        return tuple(f"{each.file.path.stem} @ {each.scale:g}" for each in self._acting)

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return sum(each.file.bytes for each in self._acting)

    def load(self, native: NativeModel) -> None:
        """Before any context is built. Raises KvchatError when llama.cpp refuses one."""
        for each in self._acting:
            try:
                native.adapters.load(native.handle, str(each.file.path), each.scale)
            except ValueError:
                raise KvchatError(
                    f"llama.cpp cannot apply the adapter {each.file.path}",
                    "--lora none goes on without; the log (see kvchat paths) has llama.cpp's own words",
                ) from None


def _checked(adapter: Adapter, model: GgufHeader) -> _Checked:
    try:
        file = read_adapter(Path(adapter.path))
        check_adapter(file, model)
        return _Checked(file, adapter_digest(file.path), adapter.scale)
    except KvchatError as error:
        raise KvchatError(error.message, f"{error.hint}; --lora none goes on without") from error

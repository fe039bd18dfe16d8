"""What a GGUF file says before its vocabulary. Owns how far is read; must not judge what it says.

The vocabulary is nearly all of a header. What stands before it, read in a millisecond, tells what kind of file it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kvchat.formats.bounded import BoundedReader
from kvchat.formats.gguf import LONGEST_NAME, HeaderParser, Value

_VOCABULARY = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class Peek:
    """`metadata` up to the vocabulary, `tensors` as counted in the header: those of this file."""

    metadata: Mapping[str, Value]
    tensors: int

    @property
    def architecture(self) -> str:
        """Empty where the beginning does not name it."""
        found = self.metadata.get("general.architecture")
        return found if isinstance(found, str) else ""


def peek(path: Path) -> Peek:
    """The beginning of a header. FormatError and KvchatError as `read_header` has them, for what is read here."""
    with BoundedReader(path) as reader:
        return _PeekParser(path, reader).peek()


class _PeekParser(HeaderParser):
    def peek(self) -> Peek:
        self._version()
        tensors, keys = self._counts()
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            key = self._name("a key", LONGEST_NAME)
            if key == _VOCABULARY:
                break
            metadata[key] = self._value(key)
        return Peek(MappingProxyType(metadata), tensors)

"""A page or a checkpoint that is to be written, as its maker hands it over. Owns the values; must not write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.formats.page import Kind
from kvchat.formats.rows import LayerShape, Part


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of one part for a page: those of its last `cells` tokens. `layers`: shapes of all layers of the part;
    `parts`: the payload (K rows of every layer, then V rows of every layer that has any)."""

    part: Part
    layers: tuple[LayerShape, ...]
    cells: int
    parts: tuple[memoryview, ...]


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page or a checkpoint to be written.

    `parent` is the key of the history before it, `position` that of the first token, `seconds` what computing it took,
    `labels` facts that are worth knowing. Where something left right before it, `after` is the key of what came before
    that; it is empty else.
    """

    parent: bytes
    tag: str
    ids: tuple[int, ...]
    position: int
    groups: tuple[NewRows, ...]
    labels: Mapping[str, str]
    seconds: float
    kind: Kind = "page"
    after: bytes = b""

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for group in self.groups for part in group.parts)

"""A page or a checkpoint that is to be written, as its maker hands it over, and the header of its file. Owns both as
values; must not write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.formats.page import Kind, LayerGroup, PageHeader, payload_checksum
from kvchat.formats.rows import LayerShape, Part
from kvchat.kv.rows import AFTER, DRAFT, ROLE


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
    that; it is empty else. `apart`: it is wanted as it is, also where a longer page begins with it.
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
    apart: bool = False

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for group in self.groups for part in group.parts)


def header_of(page: NewPage, namespace: str, *, draft: bool) -> PageHeader:
    """The header of its file. Raises ValueError when the parts do not have the sizes that the layers say."""
    end = page.position + len(page.ids)
    groups = tuple(
        LayerGroup(rows.part, rows.layers, end - rows.cells, rows.cells, payload_checksum(rows.parts))
        for rows in page.groups
    )
    for rows, group in zip(page.groups, groups, strict=True):
        size = sum(part.nbytes for part in rows.parts)
        if size != group.payload_bytes or rows.cells > len(page.ids):
            raise ValueError(f"{rows.cells} cells of {size} bytes, the layers have {group.payload_bytes}")
    if not page.ids:
        raise ValueError("page without tokens")
    labels = dict(page.labels) | ({ROLE: DRAFT} if draft else {})
    labels |= {AFTER: page.after.hex()} if page.after else {}
    return PageHeader(
        kind=page.kind,
        namespace=namespace,
        parent=page.parent,
        tag=page.tag,
        ids=page.ids,
        position=page.position,
        groups=groups,
        labels=labels,
        seconds=page.seconds,
    )

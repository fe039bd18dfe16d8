"""The list of presets. Owns how one looks; must not use it.

Names and texts are those of files: they are shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content, Span

from kvchat.ui.display import display_line
from kvchat.ui.fuzzy import rank
from kvchat.ui.listing import MOST_ROWS, Listing
from kvchat.ui.meters import shortened
from kvchat.ui.presets_file import Preset
from kvchat.ui.sampling_fields import sampling_words

NAME_CELLS = 18


class PresetPicker(Listing[Preset]):
    """Ends with the preset that is to be taken."""

    NAME = "Presets"
    PLACEHOLDER = "type to find a preset"
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("⏎ take", "choose"),
        ("{list.cancel} back", "cancel"),
        ("/preset save NAME keeps this chat's", ""),
    )

    def __init__(self, presets: Sequence[Preset]) -> None:
        super().__init__()
        self._presets = presets

    def found(self, query: str) -> Sequence[Preset]:
        """The best matches in names and texts."""
        if not query:
            return self._presets
        texts = [f"{preset.name} {preset.system[:200]}" for preset in self._presets]
        return [self._presets[match.index] for match in rank(query, texts, MOST_ROWS)]

    def row(self, item: Preset, width: int) -> Content:
        """Name, sampling, the beginning of the text; or what is wrong."""
        name = shortened(display_line(item.name), NAME_CELLS)
        gap = " " * (NAME_CELLS - cell_len(name) + 1)
        said = (
            f"! {item.problem.removeprefix(f'{item.path.parent}/')}"
            if item.problem
            else " · ".join(filter(None, (sampling_words(item.sampling), item.system)))
        )
        text = shortened(f"{name}{gap}{display_line(said[:1000])}", width)
        return Content(text, [Span(len(name), len(text), "$error" if item.problem else "$meta")])

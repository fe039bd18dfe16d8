"""The list to choose a draft model from: proposals first, those that cannot draft dimmed, with the reason. Owns the
screen; what can draft is in draft_choices, which reads headers on a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from textual.content import Content
from textual.message import Message

from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.ui.display import display_line
from kvchat.ui.draft_choices import DraftChoice, draft_choices
from kvchat.ui.fuzzy import rank
from kvchat.ui.listing import MOST_ROWS, Listing
from kvchat.ui.meters import shortened, size_text

LONGEST_NAME = 34  # cells
VOCABULARY = "the vocabularies differ: "  # begins most reasons
READING = DraftChoice(problem="reading the model files")


class ChoicesCame(Message):
    """What can draft, or why that is not known."""

    def __init__(self, choices: Sequence[DraftChoice], problem: str = "") -> None:
        self.choices = choices
        self.problem = problem
        super().__init__()


class DraftPicker(Listing[DraftChoice]):
    """Ends with a choice, or None: it stays as it is. `current` is the path of the present draft model."""

    DEFAULT_CSS = """
    DraftPicker { & > #box { max-width: 100; } & Rows > .option-list--option-disabled { color: $meta; } }
    """
    NAME = "Draft models"

    def __init__(self, path: Path, models: Sequence[ModelFile], current: str | None) -> None:
        """`path` is that of the model that is drafted for."""
        super().__init__()
        self._path, self._models, self._current = path, tuple(models), current
        self._choices: Sequence[DraftChoice] = (READING,)
        self._early = False  # Enter came before the files were read

    def on_mount(self) -> None:
        """Read the headers; nobody waits for it at the end of the program."""
        threading.Thread(target=self._read, name="draft models", daemon=True).start()

    def on_choices_came(self, event: ChoicesCame) -> None:
        """What there is, the present one highlighted."""
        event.stop()
        self._choices = event.choices
        if event.problem:
            self.notify(display_line(event.problem), markup=False)
        self.fill(keep=False)
        present = [index for index, choice in enumerate(self._shown) if self._current and self._is_current(choice)]
        if present:
            self._rows.highlighted = present[0]
        if self._early:
            self.action_choose()

    def action_choose(self) -> None:
        """End with the highlighted choice, once it is known what there is."""
        self._early = self._choices == (READING,)
        if not self._early:
            super().action_choose()

    def _read(self) -> None:
        try:
            found = ChoicesCame(draft_choices(self._path, self._models))
        except KvchatError as error:
            found = ChoicesCame((DraftChoice(),), error.message)
        self.post_message(found)

    def found(self, query: str) -> Sequence[DraftChoice]:
        """The best matches in names."""
        if not query:
            return self._choices
        return [
            self._choices[match.index] for match in rank(query, [choice.name for choice in self._choices], MOST_ROWS)
        ]

    def is_head(self, item: DraftChoice) -> bool:
        """What cannot draft cannot be chosen."""
        return bool(item.problem)

    def row(self, item: DraftChoice, width: int) -> Content:
        """Mark, name, size, why or why not."""
        if item is READING:
            return Content.styled(item.problem, "$meta")
        mark = "● " if self._is_current(item) else "  "
        cells = min(LONGEST_NAME, max(cell_len(display_line(choice.name)) for choice in self._choices))
        name = shortened(display_line(item.name), cells)
        size = f"{size_text(item.model.size):>9}" if item.model is not None else " " * 9
        gap = " " * (cells - cell_len(name) + 1)
        said = display_line(item.problem.replace(VOCABULARY, "vocabulary: ", 1) or item.note)
        text = shortened(f"{gap}{size}  {said}", max(0, width - cell_len(name) - 2))
        return Content.assemble(
            Content.styled(mark, "$accent"),
            Content.styled(name, "$meta" if item.problem else ""),
            Content.styled(text, "$success" if item.proposed else "$meta"),
        )

    def _is_current(self, choice: DraftChoice) -> bool:
        path = str(choice.model.path) if choice.model is not None else None
        return path == self._current

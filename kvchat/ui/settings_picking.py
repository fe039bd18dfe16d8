"""The lists that the settings open: models, draft models. Owns which list is for which field, and the reading of
headers; what is chosen goes to those who hold the choice. Must not load a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from textual.message import Message
from textual.screen import Screen

from kvchat.backend.choices import Remote
from kvchat.library.find import ModelFile
from kvchat.ui import settings_words as words
from kvchat.ui.draft_choices import DraftChoice
from kvchat.ui.draft_picker import DraftPicker
from kvchat.ui.model_facts import FactsReader, ModelFacts, model_at
from kvchat.ui.model_picker import ModelPicker
from kvchat.ui.remote_rows import facts_of
from kvchat.ui.settings_draft import DRAFT_MODEL, DraftFields
from kvchat.ui.settings_engine import EngineDraft


class FactsCame(Message):
    """The header of a model was read."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts
        super().__init__()


class Picking:
    """`read` hears of headers, on another thread; `chosen` is told the field for which something was chosen."""

    def __init__(
        self,
        screen: Screen[Any],
        models: Sequence[ModelFile],
        engine: EngineDraft,
        drafting: DraftFields,
        read: Callable[[ModelFacts], object],
        chosen: Callable[[str], object],
        remotes: Sequence[Remote] = (),
    ) -> None:
        self._screen = screen
        self._models = tuple(models)
        self._engine = engine
        self._drafting = drafting
        self._read = read
        self._chosen = chosen
        self._remotes = tuple(remotes)
        self._readers: list[FactsReader] = []

    def begin(self) -> None:
        """Read the headers of the models that are set."""
        config = self._engine.config
        if config.remote is not None:
            self._read(facts_of(config.remote))
            return
        paths = [path for path in (config.model_path, config.draft_path) if path]
        self._look([model_at(Path(path), self._models) for path in paths])
        if not config.model_path:
            self._read(ModelFacts(model_at(Path(), self._models), None, "no model is chosen yet"))

    def renew(self, models: Sequence[ModelFile]) -> None:
        """There are other models now."""
        self._models = tuple(models)

    def stop(self) -> None:
        """Nobody to tell any more."""
        for reader in self._readers:
            reader.stop()

    def of(self, field: str) -> Callable[[], object] | None:
        """What opens the list for a field; None for one whose values are walked or typed."""
        config = self._engine.config
        if field == DRAFT_MODEL and config.model_path and config.remote is None:
            return self._pick_draft
        return self._pick if field == "model" else None

    def _look(self, models: Sequence[ModelFile]) -> None:
        reader = FactsReader(models, self._read)
        self._readers.append(reader)
        reader.start()

    def _pick(self) -> None:
        machine = self._engine.machine
        configured = partial(words.for_model, self._engine.config, machine.cores, machine.memory)
        picker = ModelPicker(self._models, self._engine.config.model_path, configured, machine.free, self._remotes)
        self._screen.app.push_screen(picker, self._take)

    def _take(self, facts: ModelFacts | None) -> None:
        if facts is not None:
            self._engine.choose_model(facts)
            self._chosen("model")

    def _pick_draft(self) -> None:
        config = self._engine.config
        picker = DraftPicker(Path(config.model_path), self._models, config.draft_path)
        self._screen.app.push_screen(picker, self._take_draft)

    def _take_draft(self, choice: DraftChoice | None) -> None:
        if choice is None:
            return
        if choice.model is not None:
            self._look([choice.model])
        self._drafting.take(str(choice.model.path) if choice.model is not None else None)
        self._chosen(DRAFT_MODEL)

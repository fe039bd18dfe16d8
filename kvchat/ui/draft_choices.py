"""Which models can draft for one, as a list to choose from. Owns its order and the words. Reads headers, so it is
called away from the event loop; must not know widgets or load a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile, resolve
from kvchat.library.pairing import misfit, proposals

NO_DRAFT = "no draft model"


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """A model, or none (None). `note` says why it is proposed, or `problem` why it cannot draft. `proposed`: it is
    worth a try; one that is neither has the vocabulary, and may be too slow."""

    model: ModelFile | None = None
    note: str = ""
    problem: str = ""
    proposed: bool = False

    @property
    def name(self) -> str:
        return self.model.name if self.model is not None else NO_DRAFT


def draft_choices(path: Path, models: Sequence[ModelFile]) -> tuple[DraftChoice, ...]:
    """Proposals, none at all, others with the same vocabulary, then those that cannot draft, with the reason.
    KvchatError when the model at `path` cannot be read."""
    model = resolve(str(path), models)
    proposed = [DraftChoice(each.model, each.why, proposed=True) for each in proposals(model, models)]
    known = {choice.model.path for choice in proposed if choice.model is not None}
    others = [_other(model, each) for each in models if each.path not in known and each.path != model.path]
    possible = [choice for choice in others if not choice.problem]
    return (*proposed, DraftChoice(), *possible, *(choice for choice in others if choice.problem))


def chosen_draft(path: Path, name: str, models: Sequence[ModelFile]) -> ModelFile:
    """The model that is meant to draft. KvchatError: there is none of this name, or it cannot draft for the one at
    `path`."""
    model = resolve(str(path), models)
    found = resolve(name, models)
    if found.path == model.path:
        raise KvchatError(f"{found.name} cannot draft for itself", "take a smaller model")
    if problem := misfit(model.path, found.path):
        raise KvchatError(f"{found.name} cannot draft for {model.name}: {problem}", "take one of the same family")
    return found


def _other(model: ModelFile, candidate: ModelFile) -> DraftChoice:
    try:
        problem = misfit(model.path, candidate.path)
    except KvchatError as error:
        problem = error.message.removeprefix(str(candidate.path)).lstrip(" :")
    share = candidate.size / model.size if model.size else 1.0
    return DraftChoice(candidate, "" if problem else f"same vocabulary, {share:.0%} of the size", problem)

"""Asks before something is loaded that does not fit into the free memory. Owns which configuration is being looked at,
and what was read of the last models.

Only the newest configuration counts. Must not load anything, or wait for files: whoever asks goes on with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kvchat.backend.values import EngineConfig
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.ui.model_facts import ModelFacts, model_at, read_facts
from kvchat.ui.offers import FitProblem, fit_problem
from kvchat.ui.planning import draft_facts, fits
from kvchat.ui.progress import last_usage
from kvchat.ui.room import Room


class Fitting:
    """What fits, and what cannot be planned, goes on at once when its model is known, else as soon as that is read."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._facts: ModelFacts | None = None
        self._draft: ModelFacts | None = None
        self._wanted: EngineConfig | None = None

    @property
    def wanted(self) -> EngineConfig | None:
        """What was asked for last and is not decided yet."""
        return self._wanted

    def know(self, facts: ModelFacts, draft: ModelFacts | None = None) -> None:
        """This model, and the draft model beside it, were read elsewhere."""
        self._facts, self._draft = facts, draft

    def consider(
        self,
        config: EngineConfig,
        models: Sequence[ModelFile],
        then: Callable[[EngineConfig], object],
        otherwise: Callable[[], object] = lambda: None,
    ) -> None:
        """Go on with `then` and `config`, or what the person takes in its place; with `otherwise` when it is nothing.
        `models` are those that were found."""
        self._wanted = config
        memory = self._room.desk.engine.memory
        known, draft = _one_of(self._facts, config.model_path), _one_of(self._draft, config.draft_path)
        if self._room.desk.settings.fit == "off":
            self._go_on(config, then)
            return
        if known is not None and (draft or not config.draft_path) and fits(known, config, memory, draft):
            self._go_on(config, then)
            return
        past_tokens = last_usage(self._room.conversation.messages).cells

        def look() -> tuple[ModelFacts, ModelFacts | None, FitProblem | None]:
            facts = known or read_facts(model_at(Path(config.model_path), models))
            beside = draft or draft_facts(config, models)
            return facts, beside, fit_problem(facts, config, memory, past_tokens, beside)

        def looked(found: tuple[ModelFacts, ModelFacts | None, FitProblem | None]) -> None:
            self._facts, self._draft, problem = found
            if self._wanted is config:
                self._ask(problem, config, then, otherwise)

        def not_looked(_: KvchatError) -> None:
            if self._wanted is config:
                self._go_on(config, then)

        self._room.aside(look, looked, not_looked)

    def _ask(
        self,
        problem: FitProblem | None,
        config: EngineConfig,
        then: Callable[[EngineConfig], object],
        otherwise: Callable[[], object],
    ) -> None:
        if problem is None:
            self._go_on(config, then)
            return

        def answered(taken: EngineConfig | None) -> None:
            if taken is not None:
                self._go_on(taken, then)
            else:
                self._wanted = None
                otherwise()

        from kvchat.ui.fit_question import FitQuestion

        self._room.screen.app.push_screen(FitQuestion(problem), answered)

    def _go_on(self, config: EngineConfig, then: Callable[[EngineConfig], object]) -> None:
        self._wanted = None
        then(config)


def _one_of(known: ModelFacts | None, path: str | None) -> ModelFacts | None:
    return known if known is not None and str(known.model.path) == path else None

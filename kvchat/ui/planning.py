"""From a model, a configuration and the free memory to a plan, and the thread that makes plans for lists of models.

Owns the way between, no sum of its own. Must not know widgets: what is made goes to a function that the screen gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory, with_adapters
from kvchat.kv.plan import Plan, Wanted, make_plan
from kvchat.library.find import ModelFile
from kvchat.ui.model_facts import ModelFacts, model_at, read_facts

Configure = Callable[[ModelFacts], EngineConfig]
"""The configuration in which a model that can be run would be used."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What is known of a model. `plan` is None exactly when it cannot be run."""

    facts: ModelFacts
    plan: Plan | None


def plan_for(
    facts: ModelFacts,
    config: EngineConfig,
    memory: Memory,
    draft: ModelFacts | None = None,
    *,
    choose_types: bool = False,
) -> Plan | None:
    """What this model takes with this configuration, with a draft model beside it; None for one that cannot be run. A
    draft model that cannot be run takes nothing: the engine goes on without it. `choose_types`: with cache types that
    are the plan's choice."""
    if facts.subject is None:
        return None
    wanted = Wanted.of(config, choose_types=choose_types)
    model = facts.subject
    with suppress(KvchatError):  # the engine will say what is wrong with an adapter
        model = with_adapters(model, [adapter.path for adapter in config.lora if adapter.scale])
    return make_plan(model, memory, wanted, draft.subject if draft is not None else None)


def draft_facts(config: EngineConfig, models: Sequence[ModelFile] = ()) -> ModelFacts | None:
    """Read the header of the draft model of a configuration; None without one."""
    return read_facts(model_at(Path(config.draft_path), models)) if config.draft_path else None


def fits(facts: ModelFacts, config: EngineConfig, memory: Memory, draft: ModelFacts | None = None) -> bool:
    """Whether it can be loaded without asking; what is not known, or cannot be run, does not matter."""
    plan = plan_for(facts, config, memory, draft)
    return plan is None or plan.chosen.fits is not False


def with_types(facts: ModelFacts, config: EngineConfig, memory: Memory, draft: ModelFacts | None) -> EngineConfig:
    """The configuration with the cache types that the plan takes when nobody chose any; as it is where that does not
    fit either."""
    plan = plan_for(facts, config, memory, draft, choose_types=True)
    if plan is None or plan.chosen.refusal is not None or not plan.chosen.fits:
        return config
    return replace(config, type_k=cast(CacheType, plan.chosen.type_k), type_v=cast(CacheType, plan.chosen.type_v))


class PlanReader:
    """Reads headers and makes plans on a thread of its own, which the end of the program does not wait for: for the
    model that is preferred first, then for the rest in order.

    `post` is called on that thread and must only hand over.
    """

    def __init__(
        self,
        models: Sequence[ModelFile],
        configure: Configure,
        memory: Memory,
        post: Callable[[Planned], object],
    ) -> None:
        self._models = tuple(models)
        self._memory = memory
        self._post = post
        self._changed = threading.Condition()
        self._configure = configure
        self._waiting = list(models)
        self._stopped = False
        self._facts: dict[ModelFile, ModelFacts] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="model plans", daemon=True).start()

    def stop(self) -> None:
        """Nothing is handed over any more, but for what is on its way."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def prefer(self, model: ModelFile) -> None:
        """This one next, if it is not made yet."""
        with self._changed:
            if model in self._waiting:
                self._waiting.remove(model)
                self._waiting.insert(0, model)

    def again(self, configure: Configure, first: ModelFile | None) -> None:
        """Other configurations: all plans are made anew, from the headers that were read, beginning with `first`."""
        with self._changed:
            self._configure = configure
            self._waiting = sorted(self._models, key=lambda model: model != first)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._waiting)
                if self._stopped:
                    return
                model, configure = self._waiting.pop(0), self._configure
            planned = self._planned(model, configure)
            with self._changed:
                newest = not self._stopped and configure is self._configure
            if newest:
                self._post(planned)

    def _planned(self, model: ModelFile, configure: Configure) -> Planned:
        facts = self._facts.get(model) or read_facts(model)
        self._facts[model] = facts
        plan = plan_for(facts, configure(facts), self._memory) if facts.subject is not None else None
        return Planned(facts, plan)

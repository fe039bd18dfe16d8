"""The page of model and cache, and the configuration that is being chosen on it and on the page of the store.

Owns that choice until it is applied or thrown away; nothing is loaded here. What values are possible is in
settings_fields, what is said about them in settings_words. Must not know keys or widgets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from textual.content import Content

from kvchat.backend.protocol import Previewed, Ready
from kvchat.backend.values import CacheType, EngineConfig
from kvchat.config_options import BadValue
from kvchat.conversation.remote_words import place_of
from kvchat.kv.needs import Memory
from kvchat.kv.plan import Plan
from kvchat.ui import settings_words as words
from kvchat.ui.meters import cache_meter, total_meter
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.remote_rows import CHOSEN_THERE, ON_SERVER, effect_of
from kvchat.ui.sampling_fields import DRAFT
from kvchat.ui.settings_draft import HOLDS, DraftFields, still_drafts
from kvchat.ui.settings_draft import LABELS as DRAFT_LABELS
from kvchat.ui.settings_fields import (
    ENGINE_FIELDS,
    FIELDS,
    LABELS,
    SHORT_LABELS,
    FieldName,
    choices,
    differing,
    is_typed,
    problem,
    stepped,
    value_text,
    with_typed,
)
from kvchat.ui.settings_pages import ChatDraft, Page
from kvchat.ui.settings_row import RowState

CacheTypes = tuple[CacheType, CacheType]  # of K and of V


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware threads, RAM in bytes (None: not known), and what could be had of memory for another engine."""

    cores: int
    memory: int | None
    free: Memory


class EngineDraft:
    """`started` is what the engine was asked for last, `ready` what it made of it, None while there is no engine.
    `config` is changed until it is applied. `past_tokens` are those that the open chat has computed. `chosen` is called
    after each change."""

    def __init__(
        self,
        ready: Ready | None,
        started: EngineConfig,
        past_tokens: int,
        machine: Machine,
        chosen: Callable[[], object],
    ) -> None:
        self.ready, self.started, self.past_tokens, self.machine = ready, started, past_tokens, machine
        self.config = started
        self.facts: ModelFacts | None = None
        self.draft_facts: ModelFacts | None = None
        self.adapted = ""  # what had to be changed for the model or the types that were picked
        self.opening: CacheTypes | None = None  # to be chosen as soon as the model is known
        self._chosen = chosen
        self._previewed: Previewed | None = None
        self._asked: EngineConfig | None = None
        self._plans: dict[EngineConfig, Plan | None] = {}  # of the model of `facts`

    @property
    def changed(self) -> bool:
        """Whether it is another configuration than that of the engine."""
        return self.config != self.started

    @property
    def possible(self) -> bool:
        """Whether there is a model that can be run, or a server that does."""
        if self.config.remote is not None:
            return True
        return self.facts is not None and self.facts.geometry is not None

    def know(self, facts: ModelFacts) -> None:
        """The header of the model that is chosen was read."""
        self.facts = facts
        self._plans.clear()
        wanted, self.opening = self.opening, None
        if wanted is not None and facts.geometry is not None:
            self._choose_types(*wanted)

    def know_draft(self, facts: ModelFacts) -> None:
        """The header of the draft model was read."""
        self.draft_facts = facts
        self._plans.clear()

    def _choose_types(self, type_k: CacheType, type_v: CacheType) -> None:
        """Other cache types, flash attention left to llama.cpp where they need it; or why they cannot be had."""
        limits = words.limits(self.situation())
        assert limits is not None
        config = replace(self.config, type_k=type_k, type_v=type_v)
        freed = replace(config, flash_attention="auto")
        refused = problem(config, limits)
        if not refused:
            self.choose(config)
        elif not problem(freed, limits):
            self.choose(freed)
            self.adapted = "changed for these types: Flash attention auto"
        else:
            self.adapted = f"not {type_k if type_k == type_v else f'{type_k}/{type_v}'}: {refused}"

    def choose(self, config: EngineConfig) -> None:
        """Another configuration."""
        if config != self.config:
            self.config = config
            self.adapted = ""
            self._previewed = self._asked = None
            self._chosen()

    def choose_model(self, facts: ModelFacts) -> None:
        """Another model, and what of the rest it cannot have otherwise."""
        self.know(facts)
        if facts.remote is not None:
            self.choose(self.config.on(facts.remote))
            return
        wanted = self.config.of_model(str(facts.model.path))
        config = words.for_model(wanted, self.machine.cores, self.machine.memory, facts)
        changed = [f"{LABELS[field]} {value_text(field, config)}" for field in differing(wanted, config)]
        if config.draft_path and not still_drafts(facts, self._draft_of(config)):
            config = replace(config, draft_path=None)
            changed.append("no draft model")
        self.choose(config)
        self.adapted = f"changed for this model: {', '.join(changed)}" if changed else ""

    def choose_draft(self, path: str | None) -> None:
        """Another draft model; None: none."""
        self.choose(replace(self.config, draft_path=path))

    def _draft_of(self, config: EngineConfig) -> ModelFacts | None:
        known = self.draft_facts
        return known if known is not None and str(known.model.path) == config.draft_path else None

    def wanted(self, *, here: bool, save: bool) -> EngineConfig | None:
        """What the engine is to become, or what of it is to be saved; None: neither. `here`: the person is at the
        engine's page, and wants an engine that does not run to be tried once more."""
        again = here and self.ready is None
        saved = save and (here or self.ready is not None)
        return self.config if self.possible and (self.changed or again or saved) else None

    # ------------------------------------------------------------------ what applying would find on disk

    @property
    def wants_preview(self) -> bool:
        """Whether the engine that runs can tell what the chat finds with the choice."""
        same_model = self.config.model_path == self.started.model_path
        return self.ready is not None and self.past_tokens > 0 and self.changed and same_model

    def ask(self) -> EngineConfig:
        """The question for a preview."""
        self._asked = self.config
        return self.config

    def answer(self, previewed: Previewed) -> None:
        """The answer to the last question. One that comes after another change is of no use."""
        if self._asked is not None and self._asked == self.config:
            self._previewed = previewed

    # ------------------------------------------------------------------ what is to be said

    def situation(self) -> words.Situation:
        """All that the words depend on; only once the header is read."""
        assert self.facts is not None
        running = self.ready is not None and self.config.model_path == self.started.model_path
        plan, now = self._plan(self.config), self._plan(self.started) if running else None
        machine = self.machine
        return words.Situation(
            self.ready,
            self.started,
            self.config,
            self.facts,
            machine.cores,
            machine.memory,
            self.past_tokens,
            plan,
            now,
        )

    def effect(self) -> tuple[str, words.EffectKind]:
        """What applying does to engine and chat."""
        if (remote := self.config.remote) is not None and (self.changed or self.ready is None):
            return effect_of(remote), "warning" if remote.leaves else "change"
        if remote is not None:
            return words.NOTHING, "none"
        return words.effect(self.situation(), self._previewed) if self.facts is not None else ("", "none")

    def _plan(self, config: EngineConfig) -> Plan | None:
        """Each is made once."""
        assert self.facts is not None
        if config not in self._plans:
            ready = self.ready if config.model_path == self.started.model_path else None
            self._plans[config] = words.planned(
                self.facts, config, self.started, ready, self.machine.free, self._draft_of(config)
            )
        return self._plans[config]


class EnginePage(Page):
    """Model, cache types and the rest of an engine."""

    NAME = "Engine"
    FIELDS = ENGINE_FIELDS
    DRAFTS = True  # what drafts is chosen here, too

    def __init__(self, draft: EngineDraft, chat: ChatDraft) -> None:
        labels: dict[str, tuple[str, str]] = {field: (LABELS[field], SHORT_LABELS[field]) for field in self.FIELDS}
        super().__init__({**labels, **(DRAFT_LABELS if self.DRAFTS else {})})
        self.draft = draft
        self.chat = chat
        self.drafting = DraftFields(draft, chat)

    @property
    def changed(self) -> bool:
        """Whether a field of it is another."""
        changed = set(differing(self.draft.started, self.draft.config)) & set(self.FIELDS)
        return bool(changed) or (self.DRAFTS and self.drafting.changed)

    def row(self, field: str) -> RowState:
        """Without arrows where there is nothing else to choose."""
        remote = self.draft.config.remote
        if remote is not None:
            server = f"{remote.name}" + (f" · {remote.model}" if remote.model else "")
            return RowState(server, place_of(remote)) if field == "model" else RowState(ON_SERVER, "", walkable=False)
        if field in DRAFT_LABELS:
            return self.drafting.row(field)
        draft, name = self.draft, _field(field)
        if draft.facts is None:
            return RowState(value_text(name, draft.config) if name != "model" else "", walkable=False)
        situation = draft.situation()
        value = draft.facts.model.name if name == "model" else value_text(name, draft.config)
        limits = words.limits(situation)
        others = [] if limits is None else [each for each in choices(name, draft.config, limits) if not each.problem]
        return RowState(value, words.brief(name, situation), walkable=name == "model" or len(others) > 1)

    def step(self, field: str, step: int) -> None:
        """Another value that this model can have."""
        if self.draft.config.remote is not None:
            return
        if field in DRAFT_LABELS:
            self.drafting.step(step)
            return
        limits = words.limits(self.draft.situation())
        if limits is not None:
            self.draft.choose(stepped(_field(field), self.draft.config, limits, 1 if step > 0 else -1))

    def line(self, field: str) -> str | None:
        """Numbers can be typed."""
        if field in DRAFT_LABELS or self.draft.config.remote is not None:
            return None
        return value_text(_field(field), self.draft.config).replace(",", "") if is_typed(_field(field)) else None

    def take(self, field: str, text: str) -> None:
        """A number that this model can have."""
        config = with_typed(_field(field), self.draft.config, text)
        limits = words.limits(self.draft.situation()) if self.draft.facts is not None else None
        refused = problem(config, limits) if limits is not None else "there is no model yet"
        if refused:
            raise BadValue(refused)
        self.draft.choose(config)

    def give_back(self, field: str) -> bool:
        """What drafts can be left to the default."""
        if field != DRAFT.name:
            return False
        own = self.chat.is_own(field)
        self.chat.give_back(field)
        return own

    def detail(self, field: str) -> str:
        """What its values mean here, which are left out and why."""
        if self.draft.config.remote is not None:
            return CHOSEN_THERE
        if self.draft.facts is None:
            return "reading the model file"
        if field in DRAFT_LABELS:
            return "\n".join(filter(None, (self.draft.adapted, self.drafting.detail(field))))
        return "\n".join(filter(None, (self.draft.adapted, words.detail(_field(field), self.draft.situation()))))

    def meters(self, width: int) -> Content:
        """The memory that the choice takes."""
        need = words.memory_need(self.draft.situation()) if self.draft.facts is not None else None
        return Content("\n").join([cache_meter(need, width), total_meter(need, width)]) if need else Content("")

    def effect(self) -> tuple[str, words.EffectKind]:
        """As the draft has it; and what it means that something else drafts."""
        if self.drafting.mode_changed and not self.draft.changed and self.draft.possible:
            return HOLDS, "change"
        return self.draft.effect()


def _field(field: str) -> FieldName:
    return next(name for name in FIELDS if name == field)

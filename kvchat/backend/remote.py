"""A server that others run, as an engine of the app: the same protocol as `local`, without a process and without KV of
its own. Owns the thread with the event loop, the connection to the server and the one TurnFinished of every turn.

Nothing is asked of a server that is not part of a turn, but once which models it has: neither drafts nor titles leave
this machine. What is asked of a KV cache has no answer here. `post` is called on that thread, and from `submit` when
there is no server to take a turn. All methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kvchat.backend.child import GOODBYE
from kvchat.backend.choices import Remote
from kvchat.backend.endings import unanswered, unfinished
from kvchat.backend.fidelity import Measure
from kvchat.backend.pins import Pin
from kvchat.backend.protocol import (
    Event,
    Forecast,
    Forget,
    Generate,
    LoadFailed,
    Preview,
    ReadAhead,
    Ready,
    Summarize,
    Title,
    TurnFinished,
    Warm,
)
from kvchat.backend.remote_key import key_of
from kvchat.backend.remote_request import Sent
from kvchat.backend.remote_served import Served, served
from kvchat.backend.remote_turn import RemoteTurn
from kvchat.backend.remote_wire import USUAL, Patience, Wire
from kvchat.backend.values import CacheInfo, EngineConfig, Failure, ModelInfo, Usage
from kvchat.errors import KvchatError

_ELSEWHERE = "is on a server, where this cannot be done"


class RemoteEngine:
    """Turns are answered at once, as many as are asked for: the server decides which one goes first."""

    def __init__(self, config: EngineConfig, post: Callable[[Event], None], patience: Patience = USUAL) -> None:
        """`config` names the server."""
        self._config = config
        self._post = post
        self._patience = patience
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._lock = threading.Lock()
        self._closing = False
        self._ready: Ready | None = None
        # Only on the thread of the loop:
        self._wire: Wire | None = None
        self._reached = config  # what it leads to, which need not be what was asked for last
        self._served = Served("", "", 0)
        self._sent = Sent()
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._connecting: asyncio.Task[None] | None = None

    @property
    def ready(self) -> Ready | None:
        """What is known of the server, None until it has answered."""
        return self._ready

    @property
    def config(self) -> EngineConfig:
        """What was asked for last."""
        return self._config

    def start(self) -> None:
        """Ask the server what it serves; Ready or LoadFailed tell."""
        self._thread.start()
        self._call(self._connect)

    def configure(self, config: EngineConfig) -> None:
        """Another server, or another model of it; or the same once more. Turns that run are ended."""
        with self._lock:
            self._config, self._ready = config, None
        self._call(self._connect)

    def submit(self, request: Generate) -> None:
        """Have a turn answered. Its TurnFinished comes in any case."""
        if not self._call(self._begin, request):
            self._post(unfinished(request.turn, "is not connected"))

    def cancel(self, turn: str) -> None:
        """Close the connection of a turn: the server stops. Its TurnFinished comes with what there is."""
        self._call(self._cancel, turn)

    def warm(self, command: Warm) -> None:
        """Not answered: what a server keeps is its own affair."""

    def forecast(self, command: Forecast) -> None:
        """Not answered, and not sent: a draft is not for others to read."""

    def forget(self, command: Forget) -> None:
        """Not answered: what the server keeps in its cells is its own."""

    def read_ahead(self, command: ReadAhead) -> None:
        """Not answered, and not sent."""

    def preview(self, command: Preview) -> None:
        """Not answered: there is no cache to configure."""

    def title(self, command: Title) -> None:
        """Not answered: it would be read beside the chat, and might take the place of the chat's KV."""

    def pin(self, command: Pin) -> None:
        """Answered by a failure."""
        self._post(unanswered(command, _ELSEWHERE))

    def summarize(self, command: Summarize) -> None:
        """Answered by a failure."""
        self._post(unanswered(command, _ELSEWHERE))

    def measure(self, command: Measure) -> None:
        """Answered by a failure."""
        self._post(unanswered(command, _ELSEWHERE))

    def close(self, patience: float = GOODBYE) -> None:
        """End the connections. Turns that run end as cancelled."""
        with self._lock:
            first, self._closing = not self._closing, True
        if first and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
        elif first and self._thread.ident is None:  # it was never started
            self._loop.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(patience)

    # ------------------------------------------------------------------ the thread of the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _call(self, job: Callable[..., object], *arguments: object) -> bool:
        """Have something done on that thread; False: it has ended, or never began."""
        with self._lock:
            if self._closing or not self._thread.is_alive():
                return False
            self._loop.call_soon_threadsafe(job, *arguments)
            return True

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work)

    def _connect(self) -> None:
        for task in (*self._turns.values(), *filter(None, [self._connecting])):
            task.cancel()
        self._connecting = self._task(self._reach(self._config, time.monotonic()))

    async def _reach(self, config: EngineConfig, began: float) -> None:
        remote = config.remote
        assert remote is not None
        if self._wire is not None:
            await self._wire.close()
        self._wire, self._sent = None, Sent()
        try:
            key = await asyncio.to_thread(key_of, remote, os.environ)
            wire = Wire(remote, key, self._patience)
            try:
                self._served = await served(wire, remote)
            except BaseException:
                await wire.close()
                raise
        except KvchatError as error:
            self._post(LoadFailed(Failure(error.message, error.hint)))
            return
        self._wire, self._reached = wire, config
        ready = _ready(config, remote, self._served, time.monotonic() - began)
        with self._lock:
            current = self._config is config
            self._ready = ready if current else None
        if current:
            self._post(ready)

    def _begin(self, request: Generate) -> None:
        if self._wire is None:
            self._post(unfinished(request.turn, "is not connected"))
            return
        remote = self._reached.remote
        assert remote is not None
        if request.incognito and remote.leaves and not self._reached.incognito_leaves:
            self._post(TurnFinished(request.turn, "error", Usage(), _not_incognito(remote)))
            return
        turn = RemoteTurn(request, self._wire, self._served.model, self._served.program, self._sent, remote.host)
        task = self._turns[request.turn] = self._task(turn.run(self._post))
        task.add_done_callback(lambda done: self._finish(turn, done))

    def _finish(self, turn: RemoteTurn, task: asyncio.Task[None]) -> None:
        """Also of a task that was cancelled before its first step."""
        del self._turns[turn.request.turn]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._post(turn.finished(error))
        if error is not None and not isinstance(error, KvchatError | asyncio.CancelledError):
            raise error  # a mistake of ours, for the log

    def _cancel(self, turn: str) -> None:
        if turn in self._turns:
            self._turns[turn].cancel()

    def _end(self) -> None:
        self._task(self._goodbye())

    async def _goodbye(self) -> None:
        tasks = [*self._turns.values(), *filter(None, [self._connecting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close()
        self._loop.stop()


def _not_incognito(remote: Remote) -> Failure:
    return Failure(
        f"this chat is incognito, and {remote.host} is another machine, which may keep it",
        f"/model NAME goes on with a model of this machine; in the app, /model {remote.reference} asks whether it may",
    )


def _ready(config: EngineConfig, remote: Remote, found: Served, seconds: float) -> Ready:
    """Of the model only its name is known, of the cache at most its size."""
    model = ModelInfo(
        name=found.name,
        path=config.model_path,
        architecture="",
        attention="",
        fingerprint="",
        text_key="",
        template="",
        context_trained=0,
        kv_bytes_per_token=0,
    )
    cache = CacheInfo(config.type_k, config.type_v, found.context, False, 0, 0, False, False)
    return Ready(model, cache, seconds, found.notes(remote), remote=remote)

"""The engine process: `python -m kvchat.engine.process FD`.

Owns the pipe, the inbox thread and the lifetime of model, context and page store. Everything of llama.cpp happens on
the main thread. Must not know chats. Its stdout and stderr are the log file from the first instruction on.
"""

from __future__ import annotations

import os
import queue
import resource
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from kvchat.backend.protocol import (
    CacheInfo,
    Cancel,
    Command,
    EngineConfig,
    Event,
    Failure,
    Generate,
    Load,
    LoadFailed,
    Loading,
    Ready,
)
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace
from kvchat.engine.reuse import Cells
from kvchat.engine.saving import PageWriter, Saver
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.turn import Turn
from kvchat.errors import KvchatError
from kvchat.kv.store import PageStore

NICENESS = 10
OOM_SCORE = 500  # when memory runs out, the engine goes before anything of the person's
GRACE = 5.0  # seconds that a native call may still take after the app is gone


@dataclass(slots=True)
class Loaded:
    """What exists after a successful load."""

    model: Model
    context: Context
    writer: PageWriter | None
    scheduler: Scheduler

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.context.close()
        self.model.native.close()


class EngineProcess:
    """Commands in, events out, until the pipe closes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._interrupt = Interrupt()
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._first_error = ""

    def run(self) -> None:
        """Serve until the app closes the pipe."""
        threading.Thread(target=self._receive, name="inbox", daemon=True).start()
        command = self._inbox.get()
        if not isinstance(command, Load):
            return
        loaded = self._load(command.config)
        if loaded is None:
            return
        try:
            self._serve(loaded.scheduler)
        finally:
            loaded.close()

    def _serve(self, scheduler: Scheduler) -> None:
        while not self._interrupt.closing:
            command = self._inbox.get() if scheduler.idle else self._next_waiting()
            if isinstance(command, Generate):
                scheduler.add(command)
            elif not scheduler.idle:
                scheduler.run_next()

    def _next_waiting(self) -> Command | None:
        with suppress(queue.Empty):
            return self._inbox.get_nowait()
        return None

    def _receive(self) -> None:
        """Inbox thread: a cancel acts at once, the rest waits its turn. The end of the pipe ends the process."""
        try:
            while True:
                command: Command = self._connection.recv()
                if isinstance(command, Cancel):
                    self._interrupt.cancel(command.turn)
                else:
                    self._inbox.put(command)
        except (EOFError, OSError):
            self._interrupt.close()
            self._inbox.put(None)
            time.sleep(GRACE)
            os._exit(0)

    def _send(self, event: Event) -> None:
        with suppress(OSError):
            self._connection.send(event)

    def _load(self, config: EngineConfig) -> Loaded | None:
        try:
            return self._build(config)
        except KvchatError as error:
            said = f" (llama.cpp: {self._first_error})" if self._first_error else ""
            self._send(LoadFailed(Failure(error.message + said, error.hint)))
            return None

    def _build(self, config: EngineConfig) -> Loaded:
        began = time.perf_counter()
        llama.start(self._log)
        model = Model(config, self._progress)
        context = Context(model, config, self._interrupt)
        store = self._open_store(model, context, config)
        writer = PageWriter(store) if store is not None else None
        cells = Cells(context, store)
        saver = None
        if store is not None and writer is not None:
            saver = Saver(cells, writer, store, page_labels(context))

        def start_turn(request: Generate) -> Turn:
            return Turn(request, model, context, cells, saver, self._send)

        self._send(
            Ready(model.info(config), _cache_info(config, context), time.perf_counter() - began, _notes(model, config))
        )
        return Loaded(model, context, writer, Scheduler(context, self._interrupt, start_turn, self._send))

    def _open_store(self, model: Model, context: Context, config: EngineConfig) -> PageStore | None:
        if config.kv_folder is None or not model.geometry.paged:
            return None
        return PageStore(Path(config.kv_folder), page_namespace(model, context, config), config.kv_budget)

    def _progress(self, fraction: float) -> bool:
        self._send(Loading(fraction))
        return not self._interrupt.closing

    def _log(self, text: str, *, error: bool) -> None:
        if error and not self._first_error:
            self._first_error = text.strip()
        sys.stderr.write(text)
        sys.stderr.flush()


def _cache_info(config: EngineConfig, context: Context) -> CacheInfo:
    return CacheInfo(
        type_k=config.type_k,
        type_v=config.type_v,
        context=context.cells,
        flash_attention=context.flash,
        threads=context.threads,
        gpu_layers=config.gpu_layers if context.on_gpu else 0,
        extra_buffers=config.extra_buffers,
        pages=bool(context.layers),
    )


def _notes(model: Model, config: EngineConfig) -> tuple[str, ...]:
    notes = [model.template_note] if model.template_note else []
    trained = model.geometry.context_trained
    if trained and config.context > trained:
        notes.append(f"the context ({config.context}) is longer than what the model was trained for ({trained})")
    return tuple(notes)


def _settle_in() -> None:
    """Lower priority than the screen, first to go when memory runs out, no core dump: a core would hold the chat."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


def main() -> int:
    """Entry of the child. The argument is the inherited file descriptor of the pipe."""
    _settle_in()
    connection = Connection(int(sys.argv[1]))
    try:
        EngineProcess(connection).run()
    except Exception:  # noqa: BLE001 (the edge of the engine: the log gets the traceback, the app sees the exit code)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The engine process: `python -m kvchat.engine.process FD`.

Owns the pipe, the inbox thread and the order of what is done. Everything of llama.cpp happens on the main thread. Must
not know chats. Its stdout and stderr are the log file from the first instruction on.
"""

from __future__ import annotations

import os
import queue
import resource
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from kvchat.backend.fidelity import Guarded, Measure
from kvchat.backend.protocol import (
    Cancel,
    Command,
    Configure,
    ConfigureFailed,
    Event,
    Forecast,
    Forget,
    Forgotten,
    Generate,
    Load,
    LoadFailed,
    Loading,
    Pin,
    Preview,
    ReadAhead,
    Summarize,
    Title,
    Tuned,
    Warm,
)
from kvchat.backend.values import EngineConfig, Failure
from kvchat.engine import llama
from kvchat.engine.cost_measuring import measure_costs
from kvchat.engine.guard import Guard
from kvchat.engine.interrupt import Flag, Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.engine.tuning import Interrupted, Setting, best, measure
from kvchat.errors import KvchatError

NICENESS = 10
OOM_SCORE = 500  # when memory runs out, the engine goes before anything of the person's
IDLE = 2.0  # seconds without a command after which the engine may measure itself
URGENT = (Generate, Warm, Configure)  # what is made beside the chat gives way at once
MOST_TITLES = 8  # that wait until nothing else is wanted
GRACE = 8.0  # seconds that a native call may still take after the app is gone


class EngineProcess:
    """Commands in, events out, until the pipe closes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._interrupt = Interrupt()
        self._wanted = Flag()  # something came, or the end
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._first_error = ""
        self._aside: str | None = None  # what is being made beside the chat
        self._titles: deque[Title] = deque(maxlen=MOST_TITLES)

    def run(self) -> None:
        """Serve until the app closes the pipe."""
        threading.Thread(target=self._receive, name="inbox", daemon=True).start()
        command = self._inbox.get()
        if not isinstance(command, Load):
            return
        session = self._load(command.config)
        if session is None:
            return
        try:
            self._serve(session)
        finally:
            session.close()

    def _serve(self, session: Session) -> None:
        scheduler = Scheduler(session, self._interrupt, self._send)
        untuned, unguarded, answered = session.config.tune, session.config.guard, False
        while not self._interrupt.closing:
            try:
                wait = scheduler.idle and session.aside is None and not self._titles
                command = self._next(wait=wait, at_most=IDLE if untuned or (unguarded and answered) else None)
            except queue.Empty:
                if untuned:
                    untuned = not self._tune(session)
                else:
                    unguarded = not self._check_types(session)
                continue
            if isinstance(command, Generate):
                scheduler.add(command)
            elif isinstance(command, Configure):
                scheduler.run_out()  # what was asked first is answered as it was asked
                self._configure(session, command.config)
                untuned, unguarded = session.config.tune, session.config.guard
            elif isinstance(command, Measure | Summarize | Pin):
                session.begin_aside(command)
            elif isinstance(command, Cancel):
                session.end_aside(command.turn)
            elif isinstance(command, Title):
                self._titles.append(command)
            elif command is not None:
                self._answer(session, command)
            elif not scheduler.idle:
                scheduler.advance()
                answered = True
            else:
                self._advance_aside(session)
        scheduler.advance()  # all turns end, and write what they have

    def _advance_aside(self, session: Session) -> None:
        """A step of what is made beside the chat, unless something was asked meanwhile that must not wait for it."""
        if session.aside is None and self._titles:
            session.begin_title(self._titles.popleft())
        name = self._aside = session.aside
        if name is None:
            return
        self._interrupt.begin(name)
        if self._inbox.empty():
            session.advance_aside()
        self._interrupt.end(name)
        self._aside = session.aside

    def _next(self, *, wait: bool, at_most: float | None) -> Command | None:
        """The next command. None: there is none and work is waiting, or the pipe is closed. queue.Empty after
        `at_most` seconds of waiting."""
        if wait and at_most is None:
            with suppress(queue.Empty):
                return self._inbox.get(timeout=IDLE)
            llama.give_memory_back()  # not between two turns: the next restore would ask for it again, and pay for it
        if wait:
            return self._inbox.get(timeout=at_most)
        with suppress(queue.Empty):
            return self._inbox.get_nowait()
        return None

    def _answer(self, session: Session, command: Command) -> None:
        """What is asked between turns, or between two steps of some."""
        match command:
            case Warm() if (warmed := session.warm(command)) is not None:
                self._send(warmed)
            case Preview():
                self._send(session.preview(command))
            case Forget():
                session.forget()
                self._send(Forgotten(command.turn))
            case ReadAhead():
                session.read_ahead(command)
            case Forecast():
                with suppress(KvchatError):  # the turn itself will say what is wrong with the prompt
                    self._send(session.forecast(command))

    def _configure(self, session: Session, config: EngineConfig) -> None:
        began = time.perf_counter()
        self._first_error = ""
        try:
            session.configure(config)
        except KvchatError as error:
            self._send(ConfigureFailed(self._failure(error)))
        self._send(session.ready(time.perf_counter() - began))

    def _tune(self, session: Session) -> bool:
        """Measure while nobody wants anything, and use what is best. False: somebody did, try again later."""
        present = Setting(session.context.flash, session.context.threads)
        try:
            wanted = self._from_now_on()
            results = measure(session.model, session.config, present, wanted)
            chosen = best(results)
            costs = measure_costs(session.model, session.config, chosen, wanted)
        except Interrupted:
            return False
        except KvchatError:
            return True  # this architecture is not measured, and the rules stand
        session.learn_costs(costs)
        self._send(Tuned(chosen.flash, chosen.threads, tuple(str(result) for result in results), costs))
        if chosen != present:
            with suppress(KvchatError):  # the context from before stands
                session.adopt(flash=chosen.flash, threads=chosen.threads)
            self._send(session.ready(0.0))
        return True

    def _check_types(self, session: Session) -> bool:
        """Find out what the cache types cost while nobody wants anything. False: somebody did, try again later."""
        context = session.context
        guard = Guard(
            session.model, session.config, threads=context.threads, flash=context.flash, wanted=self._from_now_on()
        )
        try:
            verdict = guard.measure()
        except Interrupted:
            return False
        except KvchatError:
            return True  # there is no memory for it, or nothing to check
        if verdict.speed is not None or verdict.positions or verdict.noise is not None:
            session.learn_noise(verdict.noise or 0.0)
            self._send(Guarded(verdict))
        return True

    def _from_now_on(self) -> Flag:
        """Set as soon as somebody wants something, or at once where somebody does."""
        self._wanted.set(False)
        if not self._inbox.empty() or self._interrupt.closing:
            self._wanted.set(True)
        return self._wanted

    def _receive(self) -> None:
        """Inbox thread: a cancel acts at once, the rest waits its turn. The end of the pipe ends the process."""
        try:
            while True:
                command: Command = self._connection.recv()
                if isinstance(command, Cancel):
                    self._interrupt.cancel(command.turn)
                self._inbox.put(command)
                self._wanted.set(True)
                if isinstance(command, URGENT) and (aside := self._aside) is not None:
                    self._interrupt.cancel(aside)
        except (EOFError, OSError):
            self._interrupt.close()
            self._inbox.put(None)
            self._wanted.set(True)
            time.sleep(GRACE)
            os._exit(0)

    def _send(self, event: Event) -> None:
        with suppress(OSError):
            self._connection.send(event)

    def _load(self, config: EngineConfig) -> Session | None:
        began = time.perf_counter()
        llama.start(self._log)
        try:
            session = Session(config, self._interrupt, self._progress, self._send)
        except KvchatError as error:
            self._send(LoadFailed(self._failure(error)))
            return None
        self._send(session.ready(time.perf_counter() - began))
        return session

    def _failure(self, error: KvchatError) -> Failure:
        said = f" (llama.cpp: {self._first_error})" if self._first_error else ""
        return Failure(error.message + said, error.hint)

    def _progress(self, fraction: float) -> bool:
        self._send(Loading(fraction))
        return not self._interrupt.closing

    def _log(self, text: str, *, error: bool) -> None:
        if error and not self._first_error:
            self._first_error = text.strip()
        sys.stderr.write(text)
        sys.stderr.flush()


def _settle_in() -> None:
    """Lower priority than the screen, first to go when memory runs out, no core dump: a core would hold the chat."""
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # 0 does not count where cores are piped to a program
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

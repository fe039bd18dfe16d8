"""The engine process as the app sees it. Owns the child, the pipe and the one TurnFinished that every turn is owed.

Must not import kvchat.engine: the child is started by name. `post` is called from the reader thread, and
from `submit` when there is no engine to take a turn. All methods may be called from any thread.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kvchat.backend.child import GOODBYE, Change, Child, is_fault_of_draft, same_process
from kvchat.backend.endings import CRASHES, HOPELESS, UNHEARD, cause_of, given_up, not_started, unanswered, unfinished
from kvchat.backend.fidelity import Guarded, Measure, Measured
from kvchat.backend.guarding import GuardBook
from kvchat.backend.head_start import PROGRAM, HeadStart, start_engine
from kvchat.backend.journal import Journal
from kvchat.backend.log import tail
from kvchat.backend.outbox import Outbox
from kvchat.backend.protocol import (
    Cancel,
    Command,
    Configure,
    ConfigureFailed,
    EngineDied,
    Event,
    Forecast,
    Forget,
    Generate,
    Load,
    LoadFailed,
    Loading,
    Pin,
    Pinned,
    Preview,
    ReadAhead,
    Ready,
    Restored,
    Summarize,
    Summarized,
    Title,
    Tuned,
    TurnFinished,
    Warm,
)
from kvchat.backend.tuning import TuningBook
from kvchat.backend.values import EngineConfig, Failure
from kvchat.errors import KvchatError

MOST_DEATHS = 3  # engines in a row that die without finishing a turn before we stop starting new ones


class Engine:
    """A local engine that is started again when it dies."""

    def __init__(
        self,
        config: EngineConfig,
        post: Callable[[Event], None],
        state_folder: Path,
        log_file: Path,
        program: tuple[str, ...] = PROGRAM,
        ahead: HeadStart | None = None,
    ) -> None:
        """`program` is the command of the child; the descriptor of its end of the pipe is added as last argument.
        `ahead`: where the first one may have been started already."""
        self._config = config
        self._post = post
        self._journal = Journal(state_folder)
        self._tuning = TuningBook(state_folder)
        self._guard = GuardBook(state_folder)
        self._log_file = log_file
        self._program = program
        self._ahead = ahead
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._ready: Ready | None = None
        self._closing = False
        self._serving = False  # the reader thread runs, and starts the next engine when one is wanted
        self._wanted = False  # one was asked for between two engines, while it runs
        self._deaths = 0
        self._distrust_store = False
        self._reader: threading.Thread | None = None

    @property
    def ready(self) -> Ready | None:
        """What the running engine reported, None while there is none."""
        return self._ready

    @property
    def config(self) -> EngineConfig:
        """What was asked for last."""
        return self._config

    @property
    def pid(self) -> int | None:
        """Process id of the engine that runs now."""
        child = self._child
        return child.process.pid if child else None

    def start(self) -> None:
        """Start the engine; returns at once, the events tell how it goes."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        self._serving = True
        self._reader = threading.Thread(target=self._run, name="engine events", daemon=True)
        self._reader.start()

    def configure(self, config: EngineConfig) -> None:
        """Go over to another configuration: in place where only the context changes, else in a new process. Ready,
        ConfigureFailed or LoadFailed tell how it went. A turn that runs is finished first, or ended by a new process.
        """
        if config == self._config or config.draft_path != self._config.draft_path:
            self._journal.try_draft_again()
        choice = self._journal.choose(config)
        if choice is None:
            self._post(ConfigureFailed(Failure("this configuration is known to crash here", HOPELESS)))
            return
        with self._lock:
            before, self._config, self._ready = self._config, config, None
            child = self._child
            if child is not None and not child.refused and same_process(child.choice.config, choice.config):
                child.asked.append(Change(child.choice, before))
                child.choice, child.ready = choice, False
                self._command(child, Configure(self._guard.apply(self._tuning.apply(choice.config))))
            elif child is not None:
                child.replace()
            elif self._serving:
                self._wanted = True
            elif not self._closing:
                self._start()

    def warm(self, command: Warm) -> None:
        """Bring a chat's KV into the cells; Warmed comes when nothing more important was asked."""
        self._ask(command)

    def forecast(self, command: Forecast) -> None:
        """Ask what a send would cost; Forecasted comes unless the prompt cannot be built."""
        self._ask(command)

    def forget(self, command: Forget) -> None:
        """Empty the cells of chats that are not being answered; Forgotten comes."""
        self._ask(command)

    def read_ahead(self, command: ReadAhead) -> None:
        """Prefill what is written so far; ReadingAhead tells how it goes, unless something more important was asked."""
        self._ask(command)

    def preview(self, command: Preview) -> None:
        """Ask what another configuration would find on disk; Previewed comes."""
        self._ask(command)

    def title(self, command: Title) -> None:
        """Have a title written; Titled comes when nothing more important was asked."""
        self._ask(command)

    def measure(self, command: Measure) -> None:
        """Have cache types compared; exactly one Measured comes in the end, also when the engine is gone."""
        self._begin_aside(command)

    def summarize(self, command: Summarize) -> None:
        """Have the beginning of a chat summarized; exactly one Summarized comes, also when the engine is gone."""
        self._begin_aside(command)

    def pin(self, command: Pin) -> None:
        """Have a prefix computed and kept; exactly one Pinned comes, also when the engine is gone."""
        self._begin_aside(command)

    def _begin_aside(self, command: Measure | Summarize | Pin) -> None:
        why = "is not running"
        with self._lock:
            if (child := self._child) is not None:
                if child.begin(command):
                    return
                why = UNHEARD
        self._post(unanswered(command, why))

    def _ask(self, command: Command) -> None:
        with self._lock:
            if self._child is not None:
                self._child.send(command)

    def submit(self, request: Generate) -> None:
        """Queue a turn. Its TurnFinished comes in any case, also when the engine is gone."""
        why = "is not running"
        with self._lock:
            if (child := self._child) is not None:
                if child.begin(replace(request, keep_kv=False) if self._distrust_store else request):
                    self._distrust_store = False
                    return
                why = UNHEARD
        self._post(unfinished(request.turn, why))

    def cancel(self, turn: str) -> None:
        """Stop a turn; its TurnFinished comes with what there is."""
        with self._lock:
            if self._child is not None:
                self._child.send(Cancel(turn))

    def close(self, patience: float = GOODBYE) -> None:
        """End the engine: it writes its last pages, then it is gone. `patience`: see `is_gone`."""
        with self._lock:
            self._closing = True
            if (child := self._child) is not None:
                child.hang_up()
        if (child is None or child.is_gone(patience)) and self._reader is not None:
            self._reader.join(patience)

    # ---------------------------------------------------------------- reader thread

    def _run(self) -> None:
        again = True
        while again:
            try:
                child = self._spawn()
            except (OSError, KvchatError) as error:
                again = not self._retire()
                if not again:
                    self._post(LoadFailed(not_started(error)))
            else:
                if child is None:
                    return
                self._pump(child)
                again = self._bury(child, cause_of(child.wait(), child.fault))

    def _retire(self) -> bool:
        """Start no engine any more; False: another one was asked for meanwhile."""
        with self._lock:
            self._serving = self._wanted and not self._closing
            return not self._serving

    def _spawn(self) -> Child | None:
        """Start a process in the safest configuration that is needed; None when the app is closing."""
        with self._lock:
            if self._closing:
                return None
            self._wanted = False
            choice = self._journal.choose(self._config)
            if choice is None:
                raise KvchatError("every configuration of this model is known to crash here", HOPELESS)
            started = self._ahead.take() if self._ahead is not None else None
            if started is None:
                started = start_engine(self._log_file, self._program)
            outbox = Outbox(started.connection)
            child = self._child = Child(started.process, started.connection, outbox, choice, started.log_start)
            self._command(child, Load(self._guard.apply(self._tuning.apply(choice.config))))
            return child

    def _command(self, child: Child, command: Load | Configure) -> None:
        child.measuring, child.guarding = command.config.tune, command.config.guard
        child.send(command)

    def _pump(self, child: Child) -> None:
        """Hand on the events of one engine until its end of the pipe is closed."""
        with suppress(EOFError, OSError):
            while True:
                self._receive(child, child.next_event(self._post))

    def _receive(self, child: Child, event: Event) -> None:
        match event:
            case Loading(draft=True):
                child.drafting = True
            case Ready():
                event = self._settle(child, event)
            case LoadFailed():
                with self._lock:
                    child.refused = True
            case ConfigureFailed() if child.asked:
                child.asked[0].failed = True
            case Tuned():
                child.measuring = False
                self._tuning.remember(child.choice.config, event)
            case Restored(turn=turn):
                child.turns[turn] = True
            case Guarded(verdict=verdict):
                child.guarding = False
                self._guard.remember(child.choice.config, verdict)
            case Measured(turn=turn) | Summarized(turn=turn) | Pinned(turn=turn):
                with self._lock:
                    child.aside.pop(turn, None)
            case TurnFinished(turn=turn):
                self._deaths = 0
                with self._lock:
                    child.turns.pop(turn, None)
        self._post(event)

    def _settle(self, child: Child, ready: Ready) -> Ready:
        """A configuration stands: the one that was loaded, the one that was asked for, or the one from before."""
        with self._lock:
            change = child.asked.popleft() if child.asked else None
            if change is not None and change.failed and not child.asked:
                child.choice, self._config = change.choice, change.config
            self._journal.survived(child.choice.config)
            ready = replace(ready, notes=child.choice.notes + ready.notes)
            child.ready, child.drafting, child.loaded = not child.asked, False, True
            self._ready = ready if child.ready else None
        return ready

    def _bury(self, child: Child, cause: str) -> bool:
        """Pay what a dead engine owes; whether another one shall be started."""
        with self._lock:
            self._child = None
            self._ready = None
            owed, aside = dict(child.turns), tuple(child.aside.values())
        child.outbox.end()
        child.connection.close()
        crashed = -child.process.returncode in CRASHES
        again = child.replaced
        if not (self._closing or child.refused or child.replaced):
            again = self._mourn(child, cause, crashed=crashed, owed=owed)
        why = "was replaced by another one" if child.replaced else cause
        for command in aside:
            self._post(unanswered(command, why))
        for turn in owed:
            self._post(unfinished(turn, why))
        if not again:
            again = not self._retire()
            if not (again or self._closing or child.refused):
                self._post(LoadFailed(given_up(cause, crashed=crashed, was_ready=child.ready)))
        return again and not self._closing

    def _mourn(self, child: Child, cause: str, *, crashed: bool, owed: Mapping[str, bool]) -> bool:
        """A death that nobody asked for: remember it, say it, and decide whether to start again."""
        illegal = child.process.returncode == -signal.SIGILL
        draft = is_fault_of_draft(child)
        if draft:
            self._journal.draft_died(child.choice.config, cause, lasting=crashed and child.drafting)
        elif crashed and (illegal or not child.ready):
            self._journal.died(child.choice.config, cause)
        if crashed and child.ready and child.measuring and not owed:
            self._tuning.fatal(child.choice.config)
        if crashed and child.ready and child.guarding and not (child.measuring or child.aside or owed):
            self._guard.fatal(child.choice.config)
        self._deaths += child.ready
        self._distrust_store = child.ready and False in owed.values()
        again = self._deaths < MOST_DEATHS if child.ready else crashed or draft
        choice = self._journal.choose(self._config) if again else None
        note = "; ".join(choice.notes) if choice else ""
        self._post(EngineDied(f"the engine {cause}", tail(self._log_file, child.log_start), choice is not None, note))
        return choice is not None

"""One turn without a screen: events and signals in, text and notes out. Owns the wait for the end of the turn.

Ctrl+C (or SIGTERM) once cancels the turn, and what there is of the answer is kept; twice ends the program.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from kvchat.backend.fidelity import Guarded
from kvchat.backend.guarding import warning
from kvchat.backend.journal import DRAFT, EXTRA_BUFFERS, FLASH, TYPES
from kvchat.backend.protocol import EngineDied, Event, LoadFailed, Loading, Ready, TextDelta, TurnFinished, Waits
from kvchat.backend.values import UNMET, CacheInfo, EngineConfig, Failure
from kvchat.commands.printing import Printer
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError

_POLL = 0.5  # seconds; where a wait cannot be interrupted, a signal is seen between two waits
SLOW_LOAD = 3.0  # seconds without an answer after which somebody who watches is told that the model is being loaded
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Somebody wants this to end."""


class Inbox(queue.SimpleQueue[Event | Interrupt | KvchatError]):
    """What other threads and signal handlers have to say. An error is one that nobody waits for, from the store.

    SimpleQueue.put is reentrant, so that a signal handler may call it while the same thread is in it.
    """

    def next(self) -> Event | Interrupt | KvchatError:
        """The next one, waiting for it."""
        while True:
            try:
                return self.get(timeout=_POLL)
            except queue.Empty:
                continue

    def errors(self) -> list[KvchatError]:
        """The errors among all that has come so far, which is taken out."""
        found: list[KvchatError] = []
        with suppress(queue.Empty):
            while True:
                item = self.get_nowait()
                if isinstance(item, KvchatError):
                    found.append(item)
        return found


@contextmanager
def catch_signals(inbox: Inbox) -> Iterator[None]:
    """SIGINT and SIGTERM become an Interrupt in the inbox. For the main thread."""

    def handle(_signal: int, _frame: FrameType | None) -> None:
        inbox.put(Interrupt())

    before = {each: signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the turn ended. `finished` is None when it never began: it was interrupted before."""

    finished: TurnFinished | None
    ready: Ready | None


def as_asked(asked: EngineConfig, cache: CacheInfo) -> bool:
    """Whether everything that the person chose is as chosen. A larger context is: llama.cpp rounds up."""
    flash = asked.flash_attention == "auto" or cache.flash_attention == (asked.flash_attention == "on")
    types = (asked.type_k, asked.type_v) == (cache.type_k, cache.type_v)
    return flash and types and cache.context >= asked.context and asked.threads in {0, cache.threads}


class TurnWatch:
    """Follows the turn that a conversation is in, to its end."""

    def __init__(
        self,
        conversation: Conversation,
        asked: EngineConfig,
        inbox: Inbox,
        printer: Printer,
        *,
        goes_on: Callable[[TurnFinished], bool] = lambda _: False,
    ) -> None:
        """`asked`: with what the engine was started. `goes_on`: the answer is to go on after such an end, in the same
        line."""
        self._goes_on = goes_on
        self._conversation = conversation
        self._asked = asked
        self._inbox = inbox
        self._printer = printer
        self._finished: TurnFinished | None = None
        self._ready: Ready | None = None
        self._failure: Failure | None = None
        self._interrupted = False
        self._died = False
        self._began: float | None = time.monotonic()  # None: it was told why nothing comes
        self._broken: OSError | None = None

    def run(self) -> Outcome:
        """Wait for the end. KeyboardInterrupt when interrupted twice, OSError when the answer could not be written,
        KvchatError when the turn could not begin."""
        while self._conversation.is_working:
            self._take(self._inbox.next())
        if self._broken is None and (self._finished is None or not self._goes_on(self._finished)):
            self._write("", end=True)
        if self._broken is not None:
            raise self._broken
        if self._finished is None and not self._interrupted:
            again = "ask again" if self._conversation.incognito else "ask again with: --resume -c"
            failure = self._failure or Failure("the question did not reach the engine", again)
            raise KvchatError(failure.message, failure.hint)
        return Outcome(self._finished, self._ready)

    def _take(self, item: Event | Interrupt | KvchatError) -> None:
        match item:
            case Interrupt():
                if self._interrupted:
                    raise KeyboardInterrupt
                self._interrupted = True
                self._stop()
            case KvchatError():
                self._failure = Failure(item.message, item.hint)
                self._printer.problem(item)
            case _:
                self._conversation.apply(item)
                self._show(item)

    def _show(self, event: Event) -> None:
        match event:
            case Loading(fraction=fraction) if self._began and time.monotonic() - self._began >= SLOW_LOAD:
                self._began = None
                self._printer.aside(f"note: the model is being loaded ({fraction:.0%})")
            case Ready():
                self._ready = event
                self._say_notes(event)
            case LoadFailed(failure=failure):
                self._failure = failure
            case Guarded(verdict=verdict) if said := warning(verdict):
                self._printer.note(said)
            case EngineDied(cause=cause, restarting=restarting):
                self._died = True
                self._printer.note(cause + (", and is started again" if restarting else ""))
            case Waits(reason=reason) if reason:
                self._printer.note(reason)
            case TextDelta() | TurnFinished():
                self._follow(event)

    def _follow(self, event: TextDelta | TurnFinished) -> None:
        """What comes of an answer."""
        if isinstance(event, TextDelta):
            self._write(event.text)
        else:
            self._finished = event

    def _say_notes(self, ready: Ready) -> None:
        """What the engine chose otherwise than asked. What does not work on this machine is said once, when it is found
        out, and by `kvchat doctor`; what a model has that not everybody wants to know, to somebody who watches."""
        for note in ready.notes:
            if self._died or note.startswith((DRAFT, UNMET)) or not as_asked(self._asked, ready.cache):
                self._printer.note(note)
            elif not note.startswith((EXTRA_BUFFERS, FLASH, TYPES)):
                self._printer.aside(f"note: {note}")

    def _write(self, text: str, end: bool = False) -> None:
        if self._broken is not None:
            return
        try:
            self._printer.end_text() if end else self._printer.text(text)
        except OSError as error:  # the reader has gone, or the disk is full: no reason to go on
            self._broken = error
            self._stop()

    def _stop(self) -> None:
        if self._conversation.is_working:
            self._conversation.stop()

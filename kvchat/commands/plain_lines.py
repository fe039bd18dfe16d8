"""Where the lines of `kvchat --plain` come from: a person at a terminal, or a pipe. Owns prompt and history of the
terminal; must not know what a line means.

At a terminal lines are edited with readline, whose history is what was sent in the open chat. A backslash at the end of
a line goes on with the next one, on a terminal and in a pipe.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import TextIO

PROMPT = "> "
MORE = ". "  # a line that goes on
LARGEST_LINE = 16 << 20  # characters; more than any context holds
_LOOK = 0.2  # seconds


class Left(Exception):
    """Nobody will write any more: the terminal is gone, or somebody wants the program to end."""


class Lines:
    """Reads messages. `Left` at the end, KeyboardInterrupt on Ctrl+C at a terminal."""

    def __init__(self, stdin: TextIO, out: TextIO, err: TextIO) -> None:
        self._stdin = stdin
        self._err = err
        self.typed = stdin.isatty()
        # input() writes its prompt to stdout, which a pipe must not get.
        self._readline = (
            _readline() if self.typed and stdin is sys.stdin and out is sys.stdout and out.isatty() else None
        )

    def next(self, offer: str = "") -> str:
        """The next message, without its line end. `offer` stands in the line at first, where it can be edited."""
        parts = [self._line(PROMPT, offer)]
        while parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            try:
                parts.append(self._line(MORE, ""))
            except Left:
                break
        return "\n".join(parts)

    @property
    def editable(self) -> bool:
        """Whether a line can be offered to be edited."""
        return self._readline is not None

    @property
    def begun(self) -> bool:
        """Whether something stands in the line that was interrupted."""
        return self._readline is not None and bool(self._readline.get_line_buffer())

    def remember(self, texts: Sequence[str]) -> None:
        """What Up brings back, the oldest first."""
        if self._readline is not None:
            self._readline.clear_history()
            for text in texts:
                self._readline.add_history(text)

    def _line(self, prompt: str, offer: str) -> str:
        with _signals():
            if self._readline is not None:
                return self._edited(self._readline, prompt, offer)
            if self.typed:
                print(prompt, end="", file=self._err, flush=True)
            line = self._stdin.readline(LARGEST_LINE)
        if not line:
            raise Left
        return line.rstrip("\n").rstrip("\r")

    def _edited(self, readline: ModuleType, prompt: str, offer: str) -> str:
        readline.set_startup_hook((lambda: readline.insert_text(offer)) if offer else None)
        try:
            return input(prompt)
        except EOFError:
            print(file=self._err)
            raise Left from None
        finally:
            readline.set_startup_hook(None)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # not on every system; lines can be typed without
        return None
    return readline


@contextmanager
def _signals() -> Iterator[None]:
    """A request to end, or the end of the terminal, ends the waiting for a line, and Ctrl+C is seen whenever it comes.

    Python asks for signals where a system call was interrupted: one that comes between the prompt and the call that
    waits for a key would lie there until the next key. So a timer interrupts that call now and then.
    """

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise Left

    def look(_signal: int, _frame: FrameType | None) -> None:
        """Nothing: that a signal came is all that it is for."""

    handlers = {signal.SIGTERM: leave, signal.SIGHUP: leave, signal.SIGALRM: look}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in before.items():
            signal.signal(each, handler)

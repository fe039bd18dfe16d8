"""What a command prints while it runs. Owns which stream gets what; must not decide anything.

The answer, and nothing else, goes to stdout. Notes go to stderr, each once, and so do questions.
"""

from __future__ import annotations

from typing import TextIO

from kvchat.clean import clean, clean_line
from kvchat.errors import KvchatError, UsageError


class Printer:
    """Prints to `out` and `err`. `quiet`: no answer text, the caller prints something else in the end."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool) -> None:
        self._out = out
        self._err = err
        self._quiet = quiet
        self._said: set[str] = set()
        self._last = "\n"

    def text(self, text: str) -> None:
        """A piece of the answer. A terminal gets nothing that it would obey; a pipe gets what the model wrote.
        Raises what the stream raises."""
        if text and not self._quiet:
            self._last = text[-1]
            self._out.write(clean(text) if self._out.isatty() else text)
            self._out.flush()

    def end_text(self) -> None:
        """End the last line of the answer, if it is not."""
        if self._last != "\n":
            self.text("\n")

    def line(self, line: str) -> None:
        """A line on stdout that is not a piece of the answer."""
        print(line, file=self._out, flush=True)

    def note(self, sentence: str) -> None:
        """Something that is not as it was asked for."""
        if sentence not in self._said:
            self._said.add(sentence)
            print(f"note: {clean(sentence)}", file=self._err, flush=True)

    def problem(self, error: KvchatError) -> None:
        """Something that went wrong without being the end."""
        self.note(f"{error.message} ({error.hint})" if error.hint else error.message)

    def aside(self, line: str) -> None:
        """What only somebody who watches wants to know."""
        if self._err.isatty() and not self._quiet:
            print(clean(line), file=self._err, flush=True)


def confirm(question: str, command: str, stdin: TextIO, err: TextIO) -> None:
    """Ask before `command` removes something. UsageError: nobody is there. KvchatError: the answer was no."""
    if not (stdin.isatty() and err.isatty()):
        raise UsageError(
            f"{command} asks before it removes anything, and there is nobody to answer", "--yes does not ask"
        )
    print(f"{clean_line(question)} [y/N]", end=" ", file=err, flush=True)
    if stdin.readline().strip().lower() not in ("y", "yes"):
        raise KvchatError("nothing was removed")

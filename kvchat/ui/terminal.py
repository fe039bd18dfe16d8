"""The terminal for the app alone. Owns descriptors 1 and 2 while the app runs; must not know widgets.

Anything that a library prints would be drawn over the screen, so both descriptors go to the log. Textual draws on
`sys.__stderr__` and asks `sys.__stdout__` for the size, so these two keep the terminal, on a descriptor of its own.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvchat.backend.log import open_log
from kvchat.errors import UsageError

STDOUT, STDERR = 1, 2


@contextmanager
def owned_terminal(log_file: Path) -> Iterator[None]:
    """Send descriptors 1 and 2 to the log and give the terminal to Textual; undone at the end on every path."""
    terminal = next((fd for fd in (STDERR, STDOUT) if os.isatty(fd)), None)
    if terminal is None or not os.isatty(0):
        raise UsageError("the app needs a terminal", 'without one: kvchat --plain, or kvchat ask "..."')
    log = open_log(log_file)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(STDOUT), os.dup(STDERR)]
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    screen = _screen(os.dup(terminal))
    try:
        os.dup2(log, STDOUT)
        os.dup2(log, STDERR)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = screen  # type: ignore[misc]
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
        for descriptor, before in zip((STDOUT, STDERR), saved, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
        os.close(log)
        with suppress(OSError):  # the terminal may be gone, with what was not yet written
            screen.close()


def _screen(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(descriptor, "w")), encoding="utf-8", errors="replace", line_buffering=True
    )

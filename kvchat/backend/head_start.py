"""How an engine process is started, and one that is started before anybody knows what it shall load. Owns that one
until an engine takes it or it turns out that nobody wants it; must not say anything to it.

Until it can load a model, a process loads Python and the modules that compute. That takes as long as everything that
the program does until it knows which model is wanted, and can happen at the same time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from kvchat.backend.environment import start_process
from kvchat.backend.log import open_log, size
from kvchat.errors import KvchatError

PROGRAM = (sys.executable, "-P", "-X", "faulthandler", "-m", "kvchat.engine.process")


@dataclass(frozen=True, slots=True)
class Started:
    """An engine process, our end of its pipe, and the byte of the log file where what it says begins."""

    process: subprocess.Popen[bytes]
    connection: Connection
    log_start: int


def start_engine(log_file: Path, program: Sequence[str] = PROGRAM) -> Started:
    """Start one. OSError or KvchatError where that cannot be done."""
    ours, theirs = Pipe(duplex=True)
    try:
        log = open_log(log_file)
        try:
            return Started(start_process(program, theirs.fileno(), log), ours, size(log_file))
        finally:
            os.close(log)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


class HeadStart:
    """One engine process ahead of time. A context at whose end it is gone, unless it was taken. Where it cannot be
    started there is none: whoever needs an engine starts one, and tells what is wrong."""

    def __init__(self, log_file: Path, program: Sequence[str] = PROGRAM) -> None:
        self._started: Started | None = None
        with suppress(OSError, KvchatError):
            self._started = start_engine(log_file, program)

    def take(self) -> Started | None:
        """The process, for the first one that asks."""
        started, self._started = self._started, None
        return started

    def close(self) -> None:
        """Nobody wants it. It has nothing to write."""
        if (started := self.take()) is not None:
            started.connection.close()
            started.process.kill()
            started.process.wait()

    def __enter__(self) -> HeadStart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

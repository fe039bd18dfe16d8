"""A chain of pages in another cache type, made by a process of its own. Owns that process; must not import
kvchat.engine: it is started by name."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.connection import Pipe
from pathlib import Path

from kvchat.backend.endings import cause_of
from kvchat.backend.log import open_log
from kvchat.backend.protocol import Transcode, Transcoded
from kvchat.backend.values import Failure
from kvchat.errors import KvchatError

MODULE = "kvchat.engine.transcode_process"


def transcode(command: Transcode, log_file: Path) -> Transcoded:
    """Transcode a chain, and wait for it; an interrupt ends it. Raises KvchatError."""
    ours, theirs = Pipe(duplex=True)
    log = open_log(log_file)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    finally:
        theirs.close()
        os.close(log)
    try:
        ours.send(command)
        answer = ours.recv()
    except (EOFError, OSError):
        cause = cause_of(process.wait())
        raise KvchatError(f"the process that transcodes {cause}", f"its log: {log_file}") from None
    finally:
        process.kill()
        process.wait()
        ours.close()
    if isinstance(answer, Failure):
        raise KvchatError(answer.message, answer.hint)
    if not isinstance(answer, Transcoded):
        raise TypeError(answer)
    return answer

"""Questions to a process of its own, which ends with the answer: neither a file nor a driver can take the program
along. Owns that process; must not import kvchat.engine: what is asked is started by name."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TypeVar

from kvchat.backend.endings import cause_of
from kvchat.backend.environment import start_process
from kvchat.backend.inspection import Look, Looked
from kvchat.backend.log import open_log
from kvchat.backend.protocol import Transcode, Transcoded
from kvchat.backend.values import Failure
from kvchat.errors import KvchatError

LOOKS = "kvchat.engine.look_process"
TRANSCODES = "kvchat.engine.transcode_process"
LOOKING = 60.0  # seconds: the largest vocabularies take one, a driver that wakes up several

Answer = TypeVar("Answer")


def look(command: Look, log_file: Path) -> Looked:
    """What llama.cpp says of a model file and of itself. An interrupt ends it. Raises KvchatError."""
    return _ask(LOOKS, command, Looked, log_file, LOOKING)


def transcode(command: Transcode, log_file: Path) -> Transcoded:
    """A chain of pages in another cache type, however long that takes; an interrupt ends it. Raises KvchatError."""
    return _ask(TRANSCODES, command, Transcoded, log_file, None)


def _ask(module: str, command: object, kind: type[Answer], log_file: Path, seconds: float | None) -> Answer:
    ours, theirs = Pipe(duplex=True)
    log = open_log(log_file)
    try:
        process = start_process((sys.executable, "-P", "-m", module), theirs.fileno(), log)
    finally:
        theirs.close()
        os.close(log)
    hint = f"its log: {log_file}"
    try:
        ours.send(command)
        if not ours.poll(seconds):
            raise KvchatError(f"llama.cpp did not answer in {seconds:.0f} seconds", hint)
        answer = ours.recv()
    except (EOFError, OSError):
        raise KvchatError(f"the helper process {cause_of(process.wait())}", hint) from None
    finally:
        process.kill()
        process.wait()
        ours.close()
    if isinstance(answer, Failure):
        raise KvchatError(answer.message, answer.hint)
    if not isinstance(answer, kind):
        raise TypeError(answer)
    return answer

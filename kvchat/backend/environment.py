"""How the processes that compute are started, and in which environment. Owns that; must not know what they do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def environment() -> dict[str, str]:
    """numpy's products of matrices in one thread: with more, of which each waits for the others in a loop, turning the
    rows of a cache takes a hundred times as long while other programs are busy. What a person has set stays."""
    return _ONE_THREAD | os.environ


def start_process(program: Sequence[str], pipe: int, log: int) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own: its last argument is the descriptor of its pipe, what it says goes to the
    log. Raises OSError."""
    return subprocess.Popen(
        [*program, str(pipe)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(pipe,),
        start_new_session=True,
    )

"""Engine processes by fork. Each would import the same modules, which takes longer than most tests do: a process that
has imported them, and done nothing else, forks itself for each. Started as a program, this is that process.

Flags of Python, environment, session, descriptors and the way to end are those of `kvchat.backend.environment`; what is
not told by a test that uses this is that an engine starts as a program. Limits of a process (rlimit) are those of the
time when the first engine was started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from kvchat.backend.environment import environment

PROGRAM = (sys.executable, "-P", "-X", "faulthandler")  # as kvchat.backend.local has it
REQUEST = 1 << 16  # bytes; an environment has some thousand


class Forked:
    """What the client of an engine uses of a Popen. May be waited for on several threads."""

    def __init__(self, told: socket.socket) -> None:
        """`told` has the process id, and later, as the last of all, how the process ended."""
        self.pid = int(told.recv(REQUEST))
        self.returncode: int | None = None
        self._told = told
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not wait([self._told], timeout):
            raise subprocess.TimeoutExpired("engine", timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._told.recv(REQUEST))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Starts engines as `kvchat.backend.environment.start_process` does. Close it at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: Sequence[str], pipe: int, log: int) -> Forked:
        with self._lock:
            if self._process is None:
                self._begin()
        told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._requests, [json.dumps(environment()).encode()], [pipe, log, theirs.fileno()])
        return Forked(told)

    def _begin(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*PROGRAM, __file__, str(theirs.fileno())],
                env=environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def close(self) -> None:
        if self._process is not None:
            self._requests.close()
            self._process.wait()


# ------------------------------------------------------------------ the process that forks


def serve(requests: socket.socket) -> int | None:
    """Fork for each request until there are no more: None. In a new process: the descriptor of its pipe."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written to the descriptor
    children: dict[int, int] = {}
    while True:
        for ready in wait([requests, woken]):
            if ready == woken:
                os.read(woken, REQUEST)
                bury(children)
                continue
            request, descriptors, *_ = socket.recv_fds(requests, REQUEST, 3)
            if not request:
                return None
            pipe, log, told = descriptors
            child = os.fork()
            if not child:
                settle(json.loads(request), pipe, log)
                return pipe
            os.write(told, str(child).encode())
            children[child] = told
            os.close(pipe)
            os.close(log)


def bury(children: dict[int, int]) -> None:
    """Tell how those ended that have ended."""
    for child, told in list(children.items()):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with suppress(OSError):  # nobody wants to know
                os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(told)
            del children[child]


def settle(variables: dict[str, str], pipe: int, log: int) -> None:
    """What a new program finds: its environment, standard streams, a session of its own, no other descriptor."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))


def main() -> int:
    from kvchat.engine import process

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        pipe = serve(requests)
        if pipe is None:
            return 0
        requests.detach()
    sys.argv = [str(Path(process.__file__)), str(pipe)]
    return process.main()


if __name__ == "__main__":
    sys.exit(main())

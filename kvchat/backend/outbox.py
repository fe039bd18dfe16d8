"""What is on its way to an engine process. Owns the thread that writes to the pipe and what waits for it, so that an
engine that does not listen keeps nobody waiting; must not know what is owed for a command, or whether the engine lives.

A pipe holds some hundred KB, a long chat is more than that: whoever wrote to it himself would stand still with the
engine. All methods but `end` return at once and may be called from any thread.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection

from kvchat.backend.outlooks import Forecast, Forget, Preview, Warm
from kvchat.backend.protocol import Cancel, Command, Configure, Load
from kvchat.backend.typing_ahead import ReadAhead

MOST = 256  # commands that wait; an engine that takes none of so many does not listen
_NEWEST = (Warm, Forecast, ReadAhead, Preview)  # of each only the last one is of interest
_SMALL = (Load, Configure, Cancel, Forget)  # taken in any case: what follows rests on them


class Outbox:
    """The commands to one engine, in their order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[Command | None] = deque()  # None: the end
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="engine commands", daemon=True)
        self._thread.start()

    def put(self, command: Command) -> bool:
        """Have a command sent after those that wait. False: too many do, and it is not taken. One to an engine that is
        gone is dropped; whoever reads from that engine finds out."""
        with self._changed:
            if self._over or (isinstance(command, Cancel) and command in self._waiting):
                return True
            if isinstance(command, _NEWEST):
                self._waiting = deque(each for each in self._waiting if type(each) is not type(command))
            if len(self._waiting) >= MOST and not isinstance(command, _SMALL):
                return False
            self._waiting.append(command)
            self._changed.notify()
            return True

    def hang_up(self) -> None:
        """Close our half of the pipe behind what waits: the engine reads the end, and its last words can be read."""
        with self._changed:
            self._waiting.append(None)
            self._changed.notify()

    def end(self) -> None:
        """Drop what waits. Only once the process is gone: then nothing holds the thread up, and its end is waited for,
        so that it writes to no other file after the pipe is closed."""
        with self._changed:
            self._waiting.clear()
        self.hang_up()
        self._thread.join()

    def _run(self) -> None:
        try:
            with suppress(OSError):
                while (command := self._next()) is not None:
                    self._connection.send(command)
                with socket.socket(fileno=os.dup(self._connection.fileno())) as half:
                    half.shutdown(socket.SHUT_WR)
        finally:
            with self._changed:
                self._over = True
                self._waiting.clear()

    def _next(self) -> Command | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            return self._waiting.popleft()

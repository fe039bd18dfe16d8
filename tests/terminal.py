"""A program on a pseudo terminal, with the screen that it draws. For tests that type raw bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pyte

_PRIVATE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p")  # pyte would print these


class Terminal:
    """Runs `command` on a terminal of `columns` x `rows` and answers what a modern terminal is asked at the start.

    `raw` collects every byte that the program wrote. Close it at the end.
    """

    def __init__(
        self, command: Sequence[str], columns: int = 100, rows: int = 30, environment: Mapping[str, str] | None = None
    ) -> None:
        self.raw = bytearray()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._hung_up = False
        self._master, slave = pty.openpty()
        self.before = termios.tcgetattr(self._master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (one system call, no lock)
        )
        os.close(slave)
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        while not self._hung_up:
            if not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                self._stream.feed(_PRIVATE.sub(b"", data))
            if b"\x1b[?2026$p" in data:
                os.write(self._master, b"\x1b[?2026;2$y")

    def send(self, data: bytes) -> None:
        """Type these bytes in one write."""
        os.write(self._master, data)

    def cells(self) -> list[list[str]]:
        """The screen as it is now, cell by cell; the second cell of a wide character is empty."""
        with self._lock:
            buffer, columns = self._screen.buffer, range(self._screen.columns)
            return [[buffer[y][x].data for x in columns] for y in range(self._screen.lines)]

    def lines(self) -> list[str]:
        """The screen as it is now."""
        with self._lock:
            buffer, columns = self._screen.buffer, range(self._screen.columns)
            return ["".join(buffer[y][x].data for x in columns).rstrip() for y in range(self._screen.lines)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def resize(self, columns: int, rows: int) -> None:
        """Another window size."""
        with self._lock:
            self._screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def wait_for(self, text: str, seconds: float = 30.0) -> None:
        """Wait until the text stands on the screen."""
        self.wait_until(lambda: text in self.text(), text, seconds)

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError(f"{what!r} never came; the screen:\n{self.text()}")

    def ended(self, seconds: float = 30.0) -> int:
        """Wait for the end of the program and of its output; the exit code."""
        code = self.process.wait(seconds)
        self._thread.join(seconds)
        return code

    def settings(self) -> list[object]:
        """The modes of the terminal now."""
        return termios.tcgetattr(self._master)

    def hang_up(self) -> None:
        """The window is closed."""
        self._hung_up = True
        self._thread.join()
        os.close(self._master)

    def close(self) -> None:
        """End the program, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._hung_up:
            self.hang_up()

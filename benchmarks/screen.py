"""The app in a pseudo-terminal, from outside: first frame, key echo while the model answers, CPU while idle.

    python benchmarks/screen.py [--rounds N]

First frame: from the start of the process until the prompt is drawn, against a bare Textual app with one text input,
taken in turn. Key echo: from the write of a key until its character is drawn, while the built-in model decodes. Idle:
CPU time of the app and of its engine over ten seconds, once the engine has measured itself.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from kvchat.machine import physical_cores, processor

BARE = """
from textual.app import App
from textual.widgets import TextArea
class Bare(App):
    def compose(self):
        yield TextArea(placeholder="Write a message")
Bare().run()
"""
PLACEHOLDER = b"rite a message"  # the cursor stands on the first letter, and cuts it off
RARE = "жψλ§¤þß"  # characters that the model does not write by itself


class Terminal:
    """A program on a pseudo-terminal of 120x36 that answers like a modern one."""

    def __init__(self, command: list[str], home: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        env = os.environ | {"KVCHAT_HOME": home, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # people's Python keeps its bytecode
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self._seen = b""

    @property
    def seen(self) -> bytes:
        """The last of what was drawn since `until`."""
        return self._seen

    def resize(self, columns: int, rows: int) -> None:
        """Another window size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def send(self, text: str) -> float:
        """Write keys; the time of the write."""
        now = time.perf_counter()
        os.write(self._master, text.encode())
        return now

    def until(self, wanted: bytes, timeout: float = 60) -> float:
        """The time when `wanted` was drawn; what was drawn before is forgotten."""
        deadline = time.perf_counter() + timeout
        while wanted not in self._seen:
            if time.perf_counter() > deadline:
                raise SystemExit(f"error: {wanted!r} was not drawn; last came {self._seen[-300:]!r}")
            self.read(0.05)
        now = time.perf_counter()
        self._seen = b""
        return now

    def read(self, seconds: float) -> None:
        """Take what is drawn within so many seconds."""
        if select.select([self._master], [], [], seconds)[0]:
            data = os.read(self._master, 65536)
            if b"\x1b[?2026$p" in data:
                os.write(self._master, b"\x1b[?2026;2$y")
            if b"\x1b[c" in data:
                os.write(self._master, b"\x1b[?62;4c")
            self._seen = (self._seen + data)[-200_000:]
            self.drawn(data)

    def drawn(self, data: bytes) -> None:
        """For those who want to know what the screen looks like."""

    def rest(self, seconds: float) -> None:
        """Let so much time pass, reading what is drawn."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(left)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        end = time.perf_counter() + 10
        while self.process.poll() is None and time.perf_counter() < end:
            try:
                self.read(0.05)
            except OSError:  # the terminal is gone with its last program
                break
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def first_frame(command: list[str], home: str) -> float:
    terminal = Terminal(command, home)
    try:
        return terminal.until(PLACEHOLDER) - terminal.began
    finally:
        terminal.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engine_of(pid: int) -> int:
    children = [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return next(child for child in children if b"kvchat.engine" in Path(f"/proc/{child}/cmdline").read_bytes())


def rest_until_measured(terminal: Terminal, quiet: float = 5, at_most: float = 120) -> None:
    """Wait until the engine, which measures itself after two seconds without a command, has used no CPU for a while."""
    end = time.perf_counter() + at_most
    terminal.rest(quiet)
    before, now = -1.0, cpu_seconds(engine_of(terminal.process.pid))
    while now != before:
        if time.perf_counter() > end:
            raise SystemExit(f"error: the engine was never quiet within {at_most:.0f} s")
        terminal.rest(quiet)
        before, now = now, cpu_seconds(engine_of(terminal.process.pid))


def idle(terminal: Terminal, seconds: float = 10) -> tuple[float, float]:
    """Part of a core that app and engine use while nothing happens."""
    pids = (terminal.process.pid, engine_of(terminal.process.pid))
    before = [cpu_seconds(pid) for pid in pids]
    terminal.rest(seconds)
    app, engine = ((cpu_seconds(pid) - start) / seconds for pid, start in zip(pids, before, strict=True))
    return app, engine


def echoes(terminal: Terminal, count: int = 40) -> list[float]:
    """Seconds from key to its character on the screen, while an answer is written."""
    times = []
    for number in range(count):
        character = RARE[number % len(RARE)]
        times.append(-terminal.send(character) + terminal.until(character.encode()))
        terminal.send("\x7f")
        terminal.rest(0.1 + 0.013 * (number % 7))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        kvchat = [str(Path(sys.executable).with_name("kvchat")), "-m", "SmolLM2"]
        bare = [sys.executable, "-c", BARE]
        for command in (kvchat, bare):  # once for the caches of the disk and of bytecode
            first_frame(command, home)
        rounds = [(first_frame(kvchat, home), first_frame(bare, home)) for _ in range(given.rounds)]
        print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores")
        ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(a / b for a, b in rounds)
        print(f"first frame   {ours:.3f} s, bare Textual {theirs:.3f} s, ratio {ratio:.2f}")
        terminal = Terminal(kvchat, home)
        terminal.until(PLACEHOLDER)
        rest_until_measured(terminal)
        app, engine = idle(terminal)
        print(f"idle          app {app:.1%} of a core, engine {engine:.1%}")
        terminal.send("Write a very long story about a ship, with many chapters.\r")
        terminal.until(b"generating")
        times = sorted(1000 * seconds for seconds in echoes(terminal))
        terminal.close()
    print(f"key echo      median {statistics.median(times):.0f} ms, p95 {times[len(times) * 95 // 100]:.0f} ms")


if __name__ == "__main__":
    main()

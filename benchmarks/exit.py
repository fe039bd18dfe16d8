"""How long after Ctrl+Q the app is gone, with its engine: at the start, idle, while it reads a prompt or answers.

    python benchmarks/exit.py [-m MODEL] [--rounds N]

From the write of the key until both processes have ended. At the start the key comes at another moment each round, so
that it meets the start of the engine, the loading of the model and the building of its context.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from screen import PLACEHOLDER, Terminal, engine_of

from kvchat.machine import physical_cores, processor

QUIT = "\x11"
PASTE = "\x1b[200~{}\x1b[201~"
LONG = " ".join(f"Item {i} is a thing of its own." for i in range(300))
LIMIT = 2.0
PATIENCE = 30.0
READY = "○".encode()


def starting(terminal: Terminal, number: int) -> None:
    terminal.until(PLACEHOLDER)
    terminal.rest(0.1 * number)


def idle(terminal: Terminal, number: int) -> None:
    terminal.until(READY)
    terminal.rest(0.5 * number)  # later the engine measures itself


def reading(terminal: Terminal, number: int) -> None:
    terminal.until(READY)
    terminal.send(PASTE.format(f"{number}. {LONG}"))
    terminal.until(b"Pasted")
    terminal.send("\r")
    terminal.until(b"reading")
    terminal.rest(0.3 + 0.17 * number)


def answering(terminal: Terminal, number: int) -> None:
    terminal.until(READY)
    terminal.send("Write a very long story about a ship, with many chapters.\r")
    terminal.until(b"generating")
    terminal.rest(0.3 + 0.17 * number)


STATES: dict[str, Callable[[Terminal, int], None]] = {
    "at the start": starting,
    "idle": idle,
    "reading a prompt": reading,
    "answering": answering,
}


def measure(command: list[str], reach: Callable[[Terminal, int], None], number: int) -> float:
    """Seconds from the key to the end of the app and of its engine, in one run."""
    with tempfile.TemporaryDirectory() as home:
        terminal = Terminal(command, home)
        reach(terminal, number)
        engine = None
        with suppress(StopIteration):  # there is none yet
            engine = engine_of(terminal.process.pid)
        began = terminal.send(QUIT)
        while terminal.process.poll() is None or runs(engine):
            if time.perf_counter() - began > PATIENCE:
                raise SystemExit(f"error: it runs after {PATIENCE:.0f} s")
            with suppress(OSError):  # the terminal is gone with its last program
                terminal.read(0.005)
        return time.perf_counter() - began


def runs(pid: int | None) -> bool:
    """Whether the process is there, and not only its exit code."""
    try:
        return pid is not None and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="SmolLM2")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    command = [str(Path(sys.executable).with_name("kvchat")), "-m", given.model]
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {given.model}")
    slow = False
    for name, reach in STATES.items():
        times = [measure(command, reach, number) for number in range(given.rounds)]
        slow |= max(times) > LIMIT
        print(f"{name:17} median {statistics.median(times):.2f} s, most {max(times):.2f} s")
    raise SystemExit(f"error: slower than {LIMIT:.0f} s" if slow else 0)


if __name__ == "__main__":
    main()

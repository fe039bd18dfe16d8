"""A long chat in a pseudo-terminal: its first frame, page by page through it, memory.

    python benchmarks/scroll.py [--messages N] [--pages N]

First frame: from the start of the process until the end of the chat is drawn, against a chat of ten messages, taken in
turn. Page: from the key until the last line of the page above is drawn. Every line of the chat has a number, so that
each page can be told to follow on the one before: none is left out, none comes twice. RSS: of the app's process.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyte
from screen import Terminal
from stream import Engine, Probe

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.config import Settings
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths, ensure_private
from kvchat.ui import app
from kvchat.ui.launch import Survey

COLUMNS, ROWS = 120, 36
ROUNDS = 5
PAGE_UP = "\x1b[5~"
_LINE = re.compile(r"\bL(\d{7})\b")
_PRIVATE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p")  # pyte would print these


class Watched(Terminal):
    """With the screen that is drawn."""

    def __init__(self, command: list[str], home: str) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        super().__init__(command, home)

    def drawn(self, data: bytes) -> None:
        self._stream.feed(_PRIVATE.sub(b"", data))

    def numbers(self) -> list[int]:
        """The numbers of the lines that are seen."""
        return [int(number) for line in self._screen.display for number in _LINE.findall(line)]


def fill(paths: Paths, messages: int) -> int:
    """A chat whose lines are numbered; how many there are."""
    ensure_private(paths.chats_db.parent)
    store = ChatStore(paths.chats_db)
    now = time.time()
    chat = Chat("01" + "0" * 24, "a long chat", now, now, "", now, "scroll", None)
    parent, line = None, 0
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        count = 3 + number * 7 % 17 if number % 2 else 1 + number % 3
        text = "\n\n".join(f"L{line + n:07} {'of words ' * ((line + n) % 9)}" for n in range(count))
        line += count
        message = Message(f"01{number:024}", chat.id, parent, role, text, now, "stop" if number % 2 else "", "scroll")
        store.add_turn(chat, (message,))
        parent = message.id
    store.close()
    return line


def rss(pid: int) -> float:
    """MiB of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def inside() -> int:
    """The app with an engine that only waits."""
    return app.run_app(
        Settings(),
        Paths.find(os.environ),
        continue_last=True,
        engine_factory=lambda config, post, *_: Engine(config, post, Probe(), 0, 1),
        surveyor=lambda *_: Survey(chosen=Path("/stream.gguf")),
    )


def opened(home: str, last: int) -> tuple[Watched, float]:
    """The app with its last chat, and after how many seconds its last line was drawn."""
    terminal = Watched([sys.executable, __file__, "--inside"], home)
    return terminal, terminal.until(f"L{last:07}".encode()) - terminal.began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--pages", type=int, default=70)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return inside()
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as short:
        last = fill(Paths.find({"KVCHAT_HOME": home}), given.messages) - 1
        few = fill(Paths.find({"KVCHAT_HOME": short}), 10) - 1
        opened(short, few)[0].close()  # for the caches of the disk and of bytecode
        firsts = []
        for _ in range(ROUNDS):
            beside, little = opened(short, few)
            beside.close()
            terminal, long = opened(home, last)
            firsts.append((long, little))
            if len(firsts) < ROUNDS:
                terminal.close()
        terminal.rest(2)
        before, seen, times = rss(terminal.process.pid), terminal.numbers(), []
        for page in range(given.pages):
            wanted = f"L{seen[0] - 1:07}".encode()
            times.append(-terminal.send(PAGE_UP) + terminal.until(wanted))
            terminal.rest(0.1)
            now = terminal.numbers()
            if now != list(range(now[0], seen[0])):
                raise SystemExit(
                    f"error: page {page + 1} has lines {now[0]} to {now[-1]}; {seen[0]} was the first before"
                )
            seen = now
        after = rss(terminal.process.pid)
        terminal.close()
    ordered = sorted(1000 * seconds for seconds in times)
    print(f"{given.messages:,} messages of {last + 1:,} lines, {COLUMNS}x{ROWS}")
    long, little = (statistics.median(column) for column in zip(*firsts, strict=True))
    print(f"first frame   {long:.2f} s from the start of the process, of a chat of ten messages {little:.2f} s")
    print(
        f"page up       {given.pages} pages, each follows on the one before; "
        f"median {statistics.median(ordered):.0f} ms, p95 {ordered[len(ordered) * 95 // 100]:.0f} ms"
    )
    print(f"RSS           {before:.0f} MiB before, {after:.0f} MiB after")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`kill -9` at random moments of random sessions, and what must hold after each.

A session is `kvchat --plain` on a terminal, where lines are typed (questions, other answers, edits, branches, other
cache types, several answers at once), beside it, now and then, `ask` in another chat or in the same one, an import and
`kv gc` with a small budget. Some answers are stopped by SIGINT. Killed are the app, the engine, or all of them; an
engine up to three times. Then: every message that was committed is there, the database is sound, the store verifies,
nothing is left in the process table, the chat goes on, and after that start there is no file that kvchat does not keep.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path

from kvchat.chats.ids import new_ulid
from kvchat.kv.folder import PageFolder
from kvchat.kv.verify import VerifyReport, verify

KVCHAT = [sys.executable, "-m", "kvchat"]
FLAGS = ["-t", "1", "--kv-budget", "24MiB", "--ctx-size", "1024", "--overflow", "sinks"]
PATIENCE = 120.0  # seconds for what may take a while on a busy machine
QUIET = 11.0  # seconds after which an unfinished file is nobody's, see kvchat.kv.folder
KEPT = re.compile(
    r"chats\.db(-wal|-shm)?|state/(models|journal|tuning|guard)\.json|logs/engine(\.old)?\.log"
    r"|kv/index\.(db(-wal|-shm)?|lock)|kv/pages/[0-9a-f]{16}/(namespace\.json|[0-9a-f]{2}/[0-9a-f]{64})"
)  # what may lie below the home
COUNTS = {
    "answers": "SELECT count(*) FROM messages WHERE role = 'assistant'",
    "answers that were stopped": "SELECT count(*) FROM messages WHERE finish = 'cancelled'",
    "answers whose end was never written": "SELECT count(*) FROM messages WHERE role = 'assistant' AND finish IS NULL",
    "places where a chat branches": "SELECT count(*) FROM (SELECT 1 FROM messages GROUP BY chat, parent "
    "HAVING count(*) > 1)",
    "answers with evictions": "SELECT count(DISTINCT message) FROM message_evictions",
    "imported chats": "SELECT count(*) FROM chats WHERE origin IS NOT NULL",
    "pinned messages": "SELECT count(*) FROM messages WHERE pinned",
}

Messages = Mapping[str, tuple[str, str, str | None]]
"""What is committed: role, text and finish by id."""


@dataclass
class Campaign:
    """What came of it so far. `problems` are sentences, none when all is well. New chats are begun with the built-in
    model or one of `models`."""

    home: Path
    rng: random.Random
    models: Sequence[Path] = ()
    killed: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _full: bool = False  # the chat that was used last

    def run(self, kills: int) -> None:
        self._imported = self.home / "to-import.json"
        for number in range(kills):
            self._kill_once(number)
            if not self._imported.exists():
                self._export()
        self._count()

    # ------------------------------------------------------------------ one session

    def _kill_once(self, number: int) -> None:
        target = self.rng.choice(("app", "app", "engine", "all"))
        before = self._committed()
        with (self.home / "stderr.txt").open("wb") as err:
            keyboard, terminal = _terminal()
            app = self._start([*KVCHAT, "--plain", *self._opening(), *self._length(), *FLAGS], err, terminal)
            os.close(terminal)
            others = [self._start(command, err) for command in self._others()]
            os.write(keyboard, "".join(f"{line}\n" for line in self._lines()).encode())
            committed, family = before, []
            for _ in range(self.rng.randint(1, 3) if target == "engine" else 1):
                self._wait(app, len(before))
                committed = self._committed()
                family += [process for each in (app, *others) for process in _family(each.pid)]
                self.killed[target] += self._kill(target, app, others)
            os.write(keyboard, b"\x04")  # the end: an app whose engine died goes on with its lines before
            for each in (app, *others):
                self._reap(each, number)
            os.close(keyboard)
            self._gone(family, number)
        self._check(committed, number)

    def _start(
        self, command: list[str], err: BufferedWriter, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        home = {"KVCHAT_HOME": str(self.home / "kvchat"), "HOME": str(self.home)}
        return os.environ | home | {"PYTHONFAULTHANDLER": "1"}

    def _opening(self) -> list[str]:
        if self._committed() and not self._full and self.rng.random() < 0.7:
            return ["-c"]
        model = self.rng.choice((None, *self.models))
        return ["-m", str(model)] if model else []

    def _length(self) -> list[str]:
        """Of an answer, in tokens: tiny models write hundreds in the time in which the built-in one writes some."""
        return ["-n", self.rng.choice(("24", "24", "150"))]

    def _others(self) -> Iterable[list[str]]:
        """What runs beside it."""
        if self.rng.random() < 0.3:
            yield [*KVCHAT, "ask", *self.rng.choice(([], ["-c"])), self._question(), *self._length(), *FLAGS]
        if self.rng.random() < 0.3:
            yield [*KVCHAT, "kv", "gc", "--kv-budget", "6MiB"]
        if self.rng.random() < 0.3 and self._imported.exists():
            text = self._imported.read_text()
            self._imported.write_text(text.replace(json.loads(text)["id"], new_ulid(), 1))  # a chat that is not there
            yield [*KVCHAT, "chats", "import", str(self._imported)]

    def _lines(self) -> Iterable[str]:
        yield self._question()
        for _ in range(4):
            yield self.rng.choice(
                (
                    *("/retry", "/edit And if not?", "/alt 2\n2", "/pin", "/continue"),
                    *(f"/cache {each}" for each in ("q8_0", "f16", "q4_0 q4_0")),
                    *("/new You are brief.", "/system You are kind.", self._question(), self._question()),
                )
            )

    def _question(self) -> str:
        count = self.rng.choice((3, 10, 40))
        return "Think of " + " ".join(f"item {self.rng.randrange(1000)}," for _ in range(count)) + " and answer."

    def _wait(self, app: subprocess.Popen[bytes], before: int) -> None:
        """To a random moment, later ones being rarer, most often after something was said; perhaps an answer is stopped
        on the way."""
        deadline = time.monotonic() + PATIENCE
        said = self.rng.random() < 0.9
        while said and len(self._committed()) == before and app.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        moment = self.rng.expovariate(1 / 3)
        if said and self.rng.random() < 0.4:
            time.sleep(moment / 2)
            app.send_signal(signal.SIGINT)
            moment /= 2
        time.sleep(min(moment, 12))

    # ------------------------------------------------------------------ the kill

    def _kill(self, target: str, app: subprocess.Popen[bytes], others: list[subprocess.Popen[bytes]]) -> int:
        """How many kills that was: none where the target had ended before."""
        alive = app.poll() is None
        engines = [pid for pid, _ in _family(app.pid) if pid != app.pid]
        if target in ("engine", "all"):
            for pid in engines:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if target in ("app", "all"):
            for each in (app, *others):
                each.kill()
        return int(bool(engines) if target == "engine" else alive)

    def _reap(self, process: subprocess.Popen[bytes], number: int) -> None:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # where it hangs comes to stderr, see PYTHONFAULTHANDLER
            process.wait()
            said = (self.home / "stderr.txt").read_text(errors="replace")[-4000:]
            self.problems.append(f"kill {number}: {process.args!r} does not end: {said}")

    def _gone(self, family: Iterable[tuple[int, str]], number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        for pid, started in family:
            while _is_alive(pid, started) and time.monotonic() < deadline:
                time.sleep(0.05)
            if _is_alive(pid, started):
                self.problems.append(f"kill {number}: process {pid} is left")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------ what must hold

    def _check(self, committed: Messages, number: int) -> None:
        said = (self.home / "stderr.txt").read_text(errors="replace")
        if "Traceback" in said:
            self.problems.append(f"kill {number}: {said[-2000:]}")
        after = self._committed()
        for name, (role, text, _) in committed.items():
            kept = after.get(name)
            whole = kept is not None and (kept[1] == text if role == "user" else kept[1].startswith(text.rstrip()))
            if not whole:
                self.problems.append(f"kill {number}: {role} message {name} is not what was committed")
        self.found["messages"] += len(committed)
        self._check_store(number)
        self._go_on(number)

    def _check_store(self, number: int) -> None:
        folder = self.home / "kvchat" / "kv"
        first = verify(folder)
        self.found["pages"] += first.pages
        self.found["not in the index"] += first.added
        if first.damaged or first.unreadable:
            self.problems.append(f"kill {number}: {first}")
        second = verify(folder)
        if second != VerifyReport(pages=second.pages, bytes=second.bytes):
            self.problems.append(f"kill {number}: not clean after a verification: {second}")

    def _go_on(self, number: int) -> None:
        then = time.time() - QUIET
        for path in self._unfinished():
            self.found["unfinished files"] += 1
            os.utime(path, (then, then))
        if not self._committed():  # killed before anything was said
            return
        done = subprocess.run(
            [*KVCHAT, "ask", "-c", "Go on.", "--json", *FLAGS, "-n", "2"],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        self._full = "tokens too long" in done.stderr and self._lets_nothing_go()
        if self._full:
            self.found["chats that were full, and could let nothing go"] += 1
        elif done.returncode:
            log = (self.home / "kvchat" / "logs" / "engine.log").read_text(errors="replace")
            self.problems.append(f"kill {number}: the chat does not go on: {done.stderr[-1000:]}{log[-3000:]}")
        else:
            self.found["reused tokens"] += json.loads(done.stdout)["prompt"]["reused"]
        if left := self._unfinished():
            self.problems.append(f"kill {number}: left after the next start: {left}")

    def _lets_nothing_go(self) -> bool:
        """Of the chat that was used last: a hybrid model has a state that no token can be taken out of, and what is
        pinned stays."""
        with closing(sqlite3.connect(self.home / "kvchat" / "chats.db", timeout=PATIENCE)) as raw:
            chat, settings = raw.execute("SELECT id, settings FROM chats ORDER BY updated DESC LIMIT 1").fetchone()
            pinned = raw.execute("SELECT 1 FROM messages WHERE chat = ? AND pinned", (chat,)).fetchone()
        return "lfm2" in settings or pinned is not None

    def _committed(self) -> Messages:
        file = self.home / "kvchat" / "chats.db"
        if not file.exists():
            return {}
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=PATIENCE)) as raw:
            if not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'messages'").fetchall():
                return {}
            for check in ("integrity_check", "foreign_key_check"):
                if (found := raw.execute(f"PRAGMA {check}").fetchall()) not in ([], [("ok",)]):
                    self.problems.append(f"{check}: {found[:3]}")
            return {name: tuple(rest) for name, *rest in raw.execute("SELECT id, role, text, finish FROM messages")}

    def _unfinished(self) -> list[Path]:
        return [self.home / "kvchat" / name for name in self._files() if not KEPT.fullmatch(name)]

    def _files(self) -> list[str]:
        top = self.home / "kvchat"
        return [str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir()]

    def _count(self) -> None:
        """What the sessions came to, so that nobody takes them for more."""
        with closing(sqlite3.connect(self.home / "kvchat" / "chats.db", timeout=PATIENCE)) as raw:
            for what, query in COUNTS.items():
                self.found[what] = raw.execute(query).fetchone()[0]
        self.found["namespaces of the store"] = len(PageFolder(self.home / "kvchat" / "kv").namespaces())

    def _export(self) -> None:
        """What a later session imports."""
        done = subprocess.run(
            [*KVCHAT, "chats", "export", "--all", "--format", "json", "-o", str(self.home / "exported")],
            env=self._environment(),
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        files = sorted((self.home / "exported").glob("*.json")) if done.returncode == 0 else []
        if files:
            files[0].rename(self._imported)


def _terminal() -> tuple[int, int]:
    """A terminal that does not echo: where one types, and what a program reads from."""
    keyboard, terminal = os.openpty()
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    return keyboard, terminal


def _family(pid: int) -> list[tuple[int, str]]:
    """A process and all below it, with what tells it from a later one of the same number."""
    started = _started(pid)
    if started is None:
        return []
    found = [(pid, started)]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found += _family(int(child))
    return found


def _started(pid: int) -> str | None:
    """When a process was started, in ticks; None when it is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _is_alive(pid: int, started: str) -> bool:
    return _started(pid) == started

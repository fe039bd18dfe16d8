"""`kill -9` at random moments of random sessions, and what must hold after each.

A session is `kvchat --plain` that is fed lines (questions, other answers, edits, branches, other cache types, several
answers at once), beside it, now and then, `ask` in another chat, an import and `kv gc` with a small budget. Some
answers are stopped by SIGINT. Killed are the app, the engine, or all of them. Then: every message that was committed is
there, the database is sound, the store verifies, nothing is left in the process table, the chat goes on, and after that
start no unfinished file is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kvchat.kv.verify import VerifyReport, verify

KVCHAT = [sys.executable, "-m", "kvchat"]
FLAGS = ["-t", "1", "-n", "24", "--kv-budget", "24MiB", "--ctx-size", "1024", "--overflow", "sinks"]
PATIENCE = 120.0  # seconds for what may take a while on a busy machine
QUIET = 11.0  # seconds after which an unfinished file is nobody's, see kvchat.kv.folder

Messages = Mapping[str, tuple[str, str, str | None]]
"""What is committed: role, text and finish by id."""


@dataclass
class Campaign:
    """What came of it so far. `problems` are sentences, none when all is well."""

    home: Path
    rng: random.Random
    killed: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def run(self, kills: int) -> None:
        self._imported = self.home / "to-import.json"
        for number in range(kills):
            self._kill_once(number)
            if number == 0:
                self._export()

    # ------------------------------------------------------------------ one session

    def _kill_once(self, number: int) -> None:
        target = self.rng.choice(("app", "app", "engine", "all"))
        self.killed[target] += 1
        with (self.home / "stderr.txt").open("wb") as err:
            app = self._start([*KVCHAT, "--plain", *self._opening(), *FLAGS], err, typed=True)
            others = [self._start(command, err) for command in self._others()]
            assert app.stdin is not None
            with suppress(BrokenPipeError):
                app.stdin.write("".join(f"{line}\n" for line in self._lines()).encode())
                app.stdin.flush()
            self._wait(app)
            committed = self._committed()
            family = [process for each in (app, *others) for process in _family(each.pid)]
            self._kill(target, app, others)
            for each in (app, *others):
                self._reap(each, number)
            self._gone(family, number)
        self._check(committed, number)

    def _start(self, command: list[str], err: object, *, typed: bool = False) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,  # type: ignore[arg-type]
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        return os.environ | {"KVCHAT_HOME": str(self.home / "kvchat"), "HOME": str(self.home)}

    def _opening(self) -> list[str]:
        return ["-c"] if self._committed() and self.rng.random() < 0.7 else []

    def _others(self) -> Iterable[list[str]]:
        """What runs beside it."""
        if self.rng.random() < 0.3:
            yield [*KVCHAT, "ask", self._question(), *FLAGS]
        if self.rng.random() < 0.3:
            yield [*KVCHAT, "kv", "gc", "--kv-budget", "6MiB"]
        if self.rng.random() < 0.3 and self._imported.exists():
            yield [*KVCHAT, "chats", "import", str(self._imported)]

    def _lines(self) -> Iterable[str]:
        yield self._question()
        for _ in range(4):
            yield self.rng.choice(
                (
                    *("/retry", "/edit And if not?", "/alt 2", "/pin", "/continue"),
                    *(f"/cache {each}" for each in ("q8_0", "f16", "q4_0 q4_0")),
                    *("/new You are brief.", "/system You are kind.", self._question(), self._question()),
                )
            )

    def _question(self) -> str:
        count = self.rng.choice((3, 10, 40))
        return "Think of " + " ".join(f"item {self.rng.randrange(1000)}," for _ in range(count)) + " and answer."

    def _wait(self, app: subprocess.Popen[bytes]) -> None:
        """To a random moment, later ones being rarer; perhaps an answer is stopped on the way."""
        moment = self.rng.expovariate(1 / 4)
        if self.rng.random() < 0.3 and moment > 2:  # before that the program does not yet hear it
            time.sleep(2)
            app.send_signal(signal.SIGINT)
            moment -= 2
        time.sleep(min(moment, 15))

    # ------------------------------------------------------------------ the kill

    def _kill(self, target: str, app: subprocess.Popen[bytes], others: list[subprocess.Popen[bytes]]) -> None:
        engines = [pid for pid, _ in _family(app.pid) if pid != app.pid]
        if target in ("engine", "all"):
            for pid in engines:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if target in ("app", "all"):
            for each in (app, *others):
                each.kill()

    def _reap(self, process: subprocess.Popen[bytes], number: int) -> None:
        """An app whose engine died goes on with its lines; then they end."""
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.problems.append(f"kill {number}: {process.args} does not end")
            process.kill()
            process.wait()

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
        if done.returncode:
            self.problems.append(f"kill {number}: the chat does not go on: {done.stderr[-1000:]}")
        else:
            self.found["reused tokens"] += json.loads(done.stdout)["prompt"]["reused"]
        if left := self._unfinished():
            self.problems.append(f"kill {number}: left after the next start: {left}")

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
        return [path for path in (self.home / "kvchat").rglob("*") if path.name.endswith((".tmp", ".part"))]

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

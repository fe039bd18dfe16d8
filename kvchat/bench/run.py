"""A whole benchmark: the engine is started and warmed up, the parts are measured one after the other.

Owns their order, and that what is there when it ends early is told. Must not print.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from kvchat.bench.drafts import DraftBench
from kvchat.bench.fidelity import passage
from kvchat.bench.memory import Memory
from kvchat.bench.pool import Pool
from kvchat.bench.quality import Quality
from kvchat.bench.report import Part, Report
from kvchat.bench.restore import Restore
from kvchat.bench.resume import Resume
from kvchat.bench.rig import Rig, Stopped, Told
from kvchat.bench.setup import Facts, load_average, setup_facts
from kvchat.bench.speed import Speed
from kvchat.bench.wanted import Wanted
from kvchat.errors import KvchatError

STARTING = "start"
_TRIAL = 256  # tokens from whose reading the speed of the machine is judged

Progress = Callable[[str, int, int, str], None]  # the part, steps that are done, of so many, what is being done


class Measurement(Protocol):
    """One part."""

    name: str

    def run(self, tell: Told) -> None: ...
    def part(self) -> Part: ...


class Run:
    """One benchmark. `failure`: why it ended early, where somebody did not want that."""

    def __init__(self, rig: Rig, wanted: Wanted, flags: Mapping[str, Any]) -> None:
        """`flags`: settings that are not at their default, for the report."""
        self._rig, self._wanted, self._flags = rig, wanted, flags
        self._measured: list[Measurement] = []
        self._setup: Facts = {}
        self._began = time.monotonic()
        self.interrupted = False
        self.failure: KvchatError | None = None

    def go(self, tell: Progress) -> None:
        """Measure all that is wanted, to the end or as far as it comes; closes the engine."""
        try:
            tell(STARTING, 0, 1, "loading the model")
            self._rig.start()
            self._measure(tell)
        except Stopped:
            self.interrupted = True
        except KvchatError as error:
            self.failure = error
        finally:
            self._rig.close()

    def _measure(self, tell: Progress) -> None:
        rig, wanted = self._rig, self._wanted
        tell(STARTING, 0, 1, "what is best here")
        rig.tune()
        threads = wanted.threads[0] if wanted.threads else rig.config.threads or rig.ready.cache.threads
        rig.configure(replace(rig.config, threads=threads))
        self._setup = setup_facts(rig.ready, wanted, self._flags)
        pool = Pool(rig.tokens(passage()))
        tell(STARTING, 0, 1, "warming up")
        rate = self._rate(pool)
        for name in wanted.parts:
            each = _measurement(name, rig, pool, wanted, rate)
            self._measured.append(each)
            each.run(partial(tell, name))
        self._setup["load_average_after"] = load_average()

    def _rate(self, pool: Pool) -> float:
        """Tokens of a prompt in a second, about."""
        count = min(_TRIAL, self._rig.ready.cache.context // 2)
        self._rig.read(pool.fresh(count), 2, keep=False)
        self._rig.forget()
        return self._rig.read(pool.fresh(count), 2, keep=False).prefill or 1.0

    def report(self) -> Report | None:
        """What was measured so far; None: nothing."""
        parts = tuple(part for each in self._measured if (part := each.part()).rows or part.notes)
        if not parts:
            return None
        return Report(self._setup, parts, time.monotonic() - self._began, self.interrupted or self.failure is not None)


def _measurement(name: str, rig: Rig, pool: Pool, wanted: Wanted, rate: float) -> Measurement:
    match name:
        case "speed":
            return Speed(rig, pool, wanted, rate)
        case "restore":
            return Restore(rig, pool, wanted, rate)
        case "resume":
            return Resume(rig, pool, wanted, rate)
        case "drafts":
            return DraftBench(rig, wanted)
        case "memory":
            return Memory(rig, pool, wanted)
        case _:
            return Quality(rig, wanted)

"""What all scenarios work with: where things lie, the programs in their set-ups, the records, the time that is left.

Owns the scratch folder and the order of programs. Must not ask anything.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from programs import Kvchat, LlmPlugin, Program, PythonLlama, Setup
from server import LlamaServer

Record = dict[str, Any]
REST = 8  # tokens of an answer after which kvchat rests


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. `turns` of a chat, `told` those that the tables show; `rounds` by cache type, of which those
    after the first are left out when the time is over; `chats` with one system prompt; tokens of prompts and answers.
    """

    rounds: tuple[tuple[str, int], ...] = (("f16", 3), ("q8_0", 2))
    speed_rounds: int = 5
    prompt: int = 512
    decode: int = 64
    turns: int = 30
    told: tuple[int, ...] = (2, 10, 30)
    answer: int = 16
    restarts: int = 3
    chats: int = 20
    system: int = 600
    draft_rounds: int = 2
    drafted: int = 128
    minutes: float = 19.0


QUICK = Scale(
    rounds=(("f16", 1),),
    speed_rounds=1,
    prompt=128,
    decode=16,
    turns=3,
    told=(2, 3),
    answer=8,
    restarts=1,
    chats=3,
    system=150,
    draft_rounds=1,
    drafted=32,
    minutes=2.0,
)


@dataclass
class Bench:
    """One run. `built`: the folder that build.sh filled; `scratch`: where programs put what they keep."""

    model: Path
    built: Path
    scratch: Path
    scale: Scale
    threads: int
    records: dict[str, list[Record]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _homes: int = 0

    @property
    def binaries(self) -> Path:
        return self.built / "build" / "bin"

    @property
    def elapsed(self) -> float:
        """Minutes since the beginning."""
        return (time.monotonic() - self._began) / 60

    def goes_on(self, number: int, last: float, share: float) -> bool:
        """Whether a round that takes `last` minutes fits before the end of a scenario, which is at `share` of the
        time. The first one always does."""
        return number == 0 or self.elapsed + last <= share * self.scale.minutes

    def note(self, kind: str, **fields: Any) -> None:
        """One measurement, into the results."""
        self.records.setdefault(kind, []).append(fields)

    def say(self, what: str) -> None:
        """For whoever waits."""
        print(f"{self.elapsed:5.1f} min  {what}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------ programs

    def setup(self, program: str, cache: str, **others: Any) -> Setup:
        """A new home; the model's copy is that of all homes of this program and cache type, so that what was measured
        for it once is found again."""
        model = self.scratch / "models" / f"{program}-{cache}" / self.model.name
        if not model.exists():
            model.parent.mkdir(parents=True)
            shutil.copyfile(self.model, model)
        self._homes += 1
        home = self.scratch / f"{self._homes:03}-{program}"
        return replace(Setup(model, home, cache, threads=self.threads), **others)

    def kvchat(self, cache: str, **others: Any) -> Kvchat:
        """A new kvchat, which knows what it measures of itself, as after the first minutes on a machine."""
        kvchat = Kvchat(self.setup("kvchat", cache, **others))
        setup = kvchat.setup
        known = self.scratch / "known" / f"{cache}-{setup.flash}-{setup.batch}"
        if not known.exists():
            kvchat.start()
            kvchat.ask("rest", "Be brief.", "Hello.", REST)
            kvchat.rest()
            kvchat.stop()
            shutil.copytree(setup.home / "state", known)
            shutil.rmtree(setup.home)
            self.say(f"kvchat has measured its settings: {known.name}")
            return self.kvchat(cache, **others)
        shutil.copytree(known, setup.home / "state")
        return kvchat

    def server(self, cache: str, name: str = "llama-server", flags: tuple[str, ...] = (), **others: Any) -> LlamaServer:
        return LlamaServer(
            self.setup(name, cache, **others), self.binaries / "llama-server", name=name, speculative=flags
        )

    def python(self, cache: str, kind: str, **others: Any) -> PythonLlama:
        return PythonLlama(self.setup(f"llama-{kind}", cache, **others), kind)

    def llm(self) -> LlmPlugin:
        return LlmPlugin(self.setup("llm", "f16"), self.built / "llm" / "bin" / "python")


@contextmanager
def running(programs: Sequence[Program]) -> Iterator[None]:
    """All of them, to the end of the block, also of what did not start well."""
    with ExitStack() as stack:
        for program in programs:
            stack.callback(program.stop)
            program.start()
        yield


def in_turn(programs: Sequence[Program], number: int) -> list[Program]:
    """The order of this time: each program comes first, and last, as often as every other."""
    first = number % len(programs)
    return [*programs[first:], *programs[:first]]

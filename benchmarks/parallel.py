"""What a long prompt does to an answer beside which it is read, and the answer to the prompt.

    python benchmarks/parallel.py [MODEL.gguf] [--prompt N] [--rounds N] [--threads N] [--type TYPE]

One chat answers. Then another one, with a prompt of N tokens, is asked, in each of the settings of `--favour`. Told are
the times from one token of the first answer to the next while the prompt is read, against those of the same tokens
without it, and the speed at which the prompt is read, against reading it alone. One process, no pipe and no screen; the
settings take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from kvchat.backend.choices import CACHE_TYPES, FAVOURS, CacheType, Favour
from kvchat.backend.protocol import Event, Generate
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.context import Task
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

ALONE = 48  # tokens of the answer before the prompt comes
WORDS = "The harbour master wrote down every ship that came in. "


@dataclass
class Found:
    """Seconds between tokens of the answer, seconds that the prompt took, its tokens, and steps of it alone."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0


class Noting(Session):
    """Remembers when each decode was over, and how many sequences were in it."""

    def decode(self, tasks: Sequence[Task]) -> None:
        """See `Session`."""
        super().decode(tasks)
        self.times.append((time.perf_counter(), len(tasks)))

    times: list[tuple[float, int]]


def request(turn: str, text: str, tokens: int | None) -> Generate:
    sampling = Sampling(temperature=0.8, seed=1, max_tokens=tokens)
    return Generate(turn, (PromptMessage("user", text),), sampling, draft="off", keep_kv=False)


def never(_token: int) -> bool:
    """No answer comes to its end by itself."""
    return False


def begin(config: EngineConfig) -> tuple[Noting, Scheduler]:
    events: list[Event] = []
    interrupt = Interrupt()
    session = Noting(config, interrupt, lambda _: True, events.append)
    session.times = []
    session.model.native.ends_generation = never  # type: ignore[method-assign]
    return session, Scheduler(session, interrupt, events.append)


def read_alone(config: EngineConfig, prompt: str) -> tuple[int, float]:
    session, scheduler = begin(config)
    scheduler.add(request("b", prompt, 1))
    began = time.perf_counter()
    scheduler.run_out()
    seconds, tokens = time.perf_counter() - began, len(session.seat.cells)
    session.close()
    return tokens, seconds


def measure(config: EngineConfig, prompt: str) -> Found:
    session, scheduler = begin(config)
    found = Found()
    scheduler.add(request("a", "Tell me of the sea.", None))
    while len(session.times) < ALONE:
        scheduler.advance()
    before = len(session.times)
    scheduler.add(request("b", prompt, 1))
    began = time.perf_counter()
    while any(each.turn == "b" for each in scheduler._queue) or any(each.name == "b" for each in scheduler._running):
        scheduler.advance()
    found.seconds = time.perf_counter() - began
    ends = [at for at, _ in session.times]
    found.beside = [b - a for a, b in pairwise(ends[before - 1 :])]
    end_all(session, scheduler)
    session, scheduler = begin(config)
    scheduler.add(request("a", "Tell me of the sea.", None))
    while len(session.times) < before + len(found.beside):
        scheduler.advance()
    found.alone = [b - a for a, b in pairwise([at for at, _ in session.times][before - 1 :])]
    end_all(session, scheduler)
    return found


def end_all(session: Noting, scheduler: Scheduler) -> None:
    scheduler._interrupt.close()
    scheduler.advance()
    session.close()


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def built_in() -> Path:
    """The model that is a part of the installation."""
    with tempfile.TemporaryDirectory() as folder:
        return next(each.path for each in find_models(Paths.find({"KVCHAT_HOME": folder})) if each.source == BUILT_IN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--prompt", type=int, default=3000, help="tokens, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--type", choices=CACHE_TYPES, default="f16")
    given = parser.parse_args()
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    model = given.model or built_in()
    kind: CacheType = given.type
    plain = EngineConfig(
        str(model), 8192, kind, kind, threads=given.threads, extra_buffers=False, flash_attention="auto"
    )
    prompt = WORDS * (given.prompt // 11)
    alone: list[tuple[int, float]] = []
    found: dict[Favour, list[Found]] = {favour: [] for favour in FAVOURS}
    for _ in range(given.rounds):
        alone.append(read_alone(plain, prompt))
        for favour in FAVOURS:
            found[favour].append(measure(replace(plain, favour=favour), prompt))
    tokens = alone[0][0]
    speed = statistics.median(count / seconds for count, seconds in alone)
    print(f"{processor()}, {given.threads} threads, {model.name}, {kind} cache")
    print(f"a prompt of {tokens} tokens alone: {speed:.0f} tokens/s")
    for favour, rounds in found.items():
        gaps = [gap for each in rounds for gap in each.beside]
        plain_gaps = [gap for each in rounds for gap in each.alone]
        base = statistics.mean(plain_gaps)
        seconds = statistics.median(each.seconds for each in rounds)
        print(
            f"{favour:9} token to token: alone {1000 * base:.1f} ms, beside {1000 * statistics.mean(gaps):.1f} mean"
            f" ({statistics.mean(gaps) / base:.2f}), {1000 * statistics.median(gaps):.1f} median"
            f" ({statistics.median(gaps) / base:.2f}), {1000 * percentile(gaps, 0.95):.1f} p95"
            f" ({percentile(gaps, 0.95) / base:.2f}); the prompt {tokens / seconds:.0f} tokens/s"
            f" ({tokens / seconds / speed:.2f} of alone)"
        )


if __name__ == "__main__":
    main()

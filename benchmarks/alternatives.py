"""Several answers to one prompt at once against the same answers one after the other.

    python benchmarks/alternatives.py [MODEL.gguf] [--count N] [--tokens N] [--prompt N] [--type f16]

Three ways, each in an engine of its own and from nothing: all at once; in a row, where the second and later ones find
the prompt in memory; in a row without reuse. From the first submit to the last TurnFinished. The seeds are the same in
all three. Cells that are shared are counted once.
"""

from __future__ import annotations

import argparse
import queue
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.backend.choices import MOST_PARALLEL
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, Ready, TurnFinished
from kvchat.backend.values import CACHE_TYPES, EngineConfig, PromptMessage, Sampling, Usage
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

TOKENS_OF_ITEM = 10  # of one sentence of the prompt, about


@dataclass(frozen=True)
class Way:
    """One way to get the answers."""

    name: str
    at_once: bool
    keep_kv: bool = True


WAYS = (
    Way("at once", at_once=True),
    Way("in a row, the prompt reused", at_once=False),
    Way("in a row, nothing reused", at_once=False, keep_kv=False),
)


def wait_for(events: queue.SimpleQueue[Event], kind: type[Ready | TurnFinished]) -> Event:
    while not isinstance(event := events.get(timeout=900), kind):
        if isinstance(event, LoadFailed):
            raise SystemExit(f"error: {event.failure.message}")
    return event


def requests(way: Way, question: str, count: int, tokens: int) -> list[Generate]:
    """The turns; where they are at once, the others share the cells of the first."""
    messages = (PromptMessage("user", question),)
    made = [
        Generate(f"t{n}", messages, Sampling(seed=n, max_tokens=tokens), keep_kv=way.keep_kv, draft="off")
        for n in range(count)
    ]
    first, *others = made
    return [first, *(replace(each, alternative_of=first.turn) for each in others)] if way.at_once else made


def measure(way: Way, config: EngineConfig, home: Path, turns: list[Generate]) -> tuple[float, list[Usage]]:
    """Seconds for all of them, and what each cost."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(replace(config, kv_folder=str(home / "kv")), events.put, home / "state", home / "engine.log")
    engine.start()
    wait_for(events, Ready)
    usages: list[Usage] = []
    began = time.perf_counter()
    waiting = list(turns)
    while waiting:
        group = waiting if way.at_once else waiting[:1]
        waiting = waiting[len(group) :]
        for each in group:
            engine.submit(each)
        for _ in group:
            end = wait_for(events, TurnFinished)
            assert isinstance(end, TurnFinished)
            if end.failure is not None:
                raise SystemExit(f"error: {end.failure.message}")
            usages.append(end.usage)
    seconds = time.perf_counter() - began
    engine.close()
    return seconds, usages


def tell(way: Way, seconds: float, usages: list[Usage], fastest: float) -> None:
    computed = sum(usage.computed for usage in usages)
    decoded = sum(usage.decode_tokens for usage in usages)
    cells = sum(usage.cells - usage.shared for usage in usages) if way.at_once else max(u.cells for u in usages)
    prompt = max(usage.prompt_tokens for usage in usages)
    print(
        f"{way.name:28} {seconds:7.2f} s, {seconds / fastest:.2f} times the first; prompts computed {computed:,} of"
        f" {prompt * len(usages):,}, answers {decoded:,} tokens, {decoded / seconds:.1f}/s in all; cells {cells:,}"
    )
    if way.at_once:
        tails = sum(usage.cells - usage.prompt_tokens for usage in usages)
        print(f"{'':28} cells: the prompt {prompt:,}, tails {tails:,}, beside {cells - prompt - tails:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer, at most")
    parser.add_argument("--prompt", type=int, default=1000, help="tokens of the prompt, about")
    parser.add_argument("--type", choices=CACHE_TYPES, default="f16")
    given = parser.parse_args()
    if not 2 <= given.count <= MOST_PARALLEL:
        raise SystemExit(f"error: --count from 2 to {MOST_PARALLEL}")
    items = " ".join(f"Item {i} is a thing of its own." for i in range(given.prompt // TOKENS_OF_ITEM))
    with tempfile.TemporaryDirectory() as folder:
        found = find_models(Paths.find({"KVCHAT_HOME": folder}))
        model = given.model or next(m.path for m in found if m.source == BUILT_IN)
        config = EngineConfig(
            str(model), context=4096, type_k=given.type, type_v=given.type, extra_buffers=False, parallel=given.count
        )
        print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {model.name}, {given.type}")
        fastest = 0.0
        for number, way in enumerate(WAYS):
            question = f"Write a very long story about all of these. {items}"
            home = Path(folder) / str(number)
            home.mkdir()
            seconds, usages = measure(way, config, home, requests(way, question, given.count, given.tokens))
            fastest = fastest or seconds
            tell(way, seconds, usages, fastest)


if __name__ == "__main__":
    main()

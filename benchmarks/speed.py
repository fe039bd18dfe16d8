"""Decode and prefill of the whole program, after tuning, against bare loops over the same library.

    python benchmarks/speed.py [MODEL.gguf] [--rounds N]

Three ways, taken in turn, medians over the rounds: the engine process with everything on (pages written as they fill),
a bare loop of llama_decode with the same settings, and a bare loop with llama.cpp's own defaults (flash attention auto,
all cores) and only the extra buffers off. Prefill: 1,024 tokens from nothing. Decode: 96 tokens after them.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, Ready, Tuned, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

PROMPT, DECODE, CHUNK = 1024, 96, 256
Speeds = tuple[float, float]  # tokens per second of prefill, of decode


def bare(model_path: str, cache: str, flash: str, threads: int) -> Speeds:
    """A loop over llama_decode and a native greedy sampler, in this process."""
    from kvchat.engine import llama, llama_sampler

    llama.start(_silent)
    model = llama.NativeModel(model_path, gpu_layers=-1, extra_buffers=False, progress=lambda _: True)
    params = llama.ContextParams(2048, CHUNK, 1, cache, cache, flash, threads, rollback=0, outputs=1)
    context = llama.NativeContext(model, params, lambda: False)
    sampler = llama_sampler.NativeSampler()
    sampler.add_greedy()
    context.decode([1] * 8, 0, 0, output=True)
    context.synchronize()
    context.clear()
    tokens = [100 + i % 4000 for i in range(PROMPT)]
    began = time.perf_counter()
    for start in range(0, PROMPT, CHUNK):
        context.decode(tokens[start : start + CHUNK], start, 0, output=start + CHUNK == PROMPT)
    context.synchronize()
    prefill = PROMPT / (time.perf_counter() - began)
    began = time.perf_counter()
    for i in range(DECODE):
        context.decode([sampler.sample(context, context.last_output)], PROMPT + i, 0, output=True)
    context.synchronize()
    return prefill, DECODE / (time.perf_counter() - began)


def _silent(_text: str, *, error: bool) -> None:
    """The log of a bare loop is not wanted."""


def bare_elsewhere(*arguments: object) -> Speeds:
    """`bare` in a process of its own, as the engine is."""
    command = [sys.executable, __file__, "--bare", json.dumps(arguments)]
    prefill, decode = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return prefill, decode


class Whole:
    """The engine process, tuned."""

    def __init__(self, model: str, cache: str, home: Path) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(
            model, context=2048, type_k=cache, type_v=cache, extra_buffers=False, kv_folder=str(home / "kv")
        )
        self.engine = Engine(config, self._events.put, home / "state", home / "engine.log")
        self.engine.start()
        self.ready = self._until(Ready)
        self.tuned = self._until(Tuned)
        self._turn = 0

    def _until(self, kind: type) -> Event:
        while not isinstance(event := self._events.get(timeout=600), kind):
            if isinstance(event, LoadFailed):
                raise SystemExit(f"error: {event.failure.message}")
        return event

    def turn(self) -> Speeds:
        """A new prompt of about PROMPT tokens, none of which is in the store."""
        self._turn += 1
        text = f"{self._turn} " + " ".join(f"Item {i} of {self._turn} is a thing." for i in range(PROMPT // 10))
        sampling = Sampling(temperature=0, max_tokens=DECODE, stop=())
        self.engine.submit(Generate(str(self._turn), (PromptMessage("user", text),), sampling))
        usage = self._until(TurnFinished).usage
        return usage.computed / usage.prefill_seconds, (usage.decode_tokens - 1) / usage.decode_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        print(json.dumps(bare(*json.loads(given.bare))))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = find_models(Paths.find({"KVCHAT_HOME": folder}))
        model = str(given.model or next(m.path for m in found if m.source == BUILT_IN))
        whole = Whole(model, given.type, Path(folder))
        flash = "on" if whole.tuned.flash_attention else "off"
        ways = {
            "whole program": whole.turn,
            f"bare, flash {flash}, {whole.tuned.threads} threads": lambda: bare_elsewhere(
                model, given.type, flash, whole.tuned.threads
            ),
            f"bare, flash auto, {physical_cores()} threads": lambda: bare_elsewhere(
                model, given.type, "auto", physical_cores()
            ),
        }
        rounds = [{name: way() for name, way in ways.items()} for _ in range(given.rounds)]
        whole.engine.close()
    report(Path(model).name, given.type, rounds)


def report(model: str, cache: str, rounds: list[dict[str, Speeds]]) -> None:
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {model}, cache {cache}")
    whole = next(iter(rounds[0]))
    for name in rounds[0]:
        parts = []
        for index, what in enumerate(("prefill", "decode")):
            speed = statistics.median(row[name][index] for row in rounds)
            ratio = statistics.median(row[whole][index] / row[name][index] for row in rounds)
            parts.append(f"{what} {speed:7.1f} t/s (whole program: {ratio:.2f} of it)")
        print(f"{name:30} {'   '.join(parts)}")


if __name__ == "__main__":
    main()

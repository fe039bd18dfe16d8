"""How long after Esc a turn is over, while it reads its prompt and while it answers.

    python benchmarks/cancel.py [MODEL.gguf] [--rounds N]

From the call of `Engine.cancel` to the arrival of TurnFinished, with the tail of the KV written to disk in between.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import tempfile
import time
from pathlib import Path

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, Ready, Restored, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

LONG = " ".join(f"Item {i} is a thing of its own." for i in range(300))


def wait_for(events: queue.SimpleQueue[Event], kind: type) -> None:
    while not isinstance(event := events.get(timeout=600), kind):
        if isinstance(event, LoadFailed):
            raise SystemExit(f"error: {event.failure.message}")


def measure(engine: Engine, events: queue.SimpleQueue[Event], number: int, text: str, moment: type) -> float:
    """Seconds from cancel to end of one turn that is cancelled a little after `moment`."""
    turn = f"{moment.__name__}-{number}"
    engine.submit(Generate(turn, (PromptMessage("user", f"{number}. {text}"),), Sampling(temperature=0)))
    wait_for(events, moment)
    time.sleep(0.05 + 0.037 * number)  # not always at the same place of a step
    began = time.perf_counter()
    engine.cancel(turn)
    wait_for(events, TurnFinished)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        found = find_models(Paths.find({"KVCHAT_HOME": folder}))
        model = given.model or next(m.path for m in found if m.source == BUILT_IN)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        config = EngineConfig(str(model), kv_folder=str(home / "kv"))
        engine = Engine(config, events.put, home / "state", home / "engine.log")
        engine.start()
        wait_for(events, Ready)
        print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {model.name}")
        for name, text, moment in (
            ("reading a prompt", LONG, Restored),
            ("answering", "Write a very long story about a ship.", TextDelta),
        ):
            times = [measure(engine, events, number, text, moment) for number in range(given.rounds)]
            print(f"{name:17} median {statistics.median(times) * 1000:.0f} ms, most {max(times) * 1000:.0f} ms")
        engine.close()


if __name__ == "__main__":
    main()

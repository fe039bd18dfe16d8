"""How long a chat of about 4,000 tokens takes to come back, against computing it again.

    python benchmarks/resume.py [MODEL.gguf] [--tokens N] [--type f16|q8_0|q4_0] [--rounds N]

For the figures of README.md and docs/figures.md, which are of a chat of this length in new processes; `kvchat bench
restore resume` measures by cache type and by turn, shorter chats. One engine computes the chat and saves its pages;
then engines in new processes restore it, from a page cache that is warm since the pages were just written. Prints
seconds, bytes per second and the ratio, all from one run.
"""

from __future__ import annotations

import argparse
import platform
import queue
import statistics
import tempfile
import time
from pathlib import Path

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, Ready, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling, Usage
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths


def one_turn(config: EngineConfig, home: Path, message: PromptMessage) -> Usage:
    """The cost of one turn of one token in a new engine process."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(config, events.put, home / "state", home / "engine.log")
    engine.start()
    try:
        while not isinstance(event := events.get(timeout=600), Ready):
            if isinstance(event, LoadFailed):
                raise SystemExit(f"error: {event.failure.message}")
        engine.submit(Generate("turn", (message,), Sampling(temperature=0, max_tokens=1)))
        while not isinstance(event := events.get(timeout=3600), TurnFinished):
            pass
        return event.usage
    finally:
        engine.close()


def text_of(tokens: int) -> str:
    """Numbered sentences of about nine tokens each."""
    return " ".join(f"Item {i} is a thing of its own." for i in range(tokens // 11))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--type", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        model = given.model or next(
            m.path for m in find_models(Paths.find({"KVCHAT_HOME": folder})) if m.source == BUILT_IN
        )
        config = EngineConfig(str(model), type_k=given.type, type_v=given.type, kv_folder=str(home / "kv"))
        message = PromptMessage("user", text_of(given.tokens))
        computed = one_turn(config, home, message)
        restored = [one_turn(config, home, message) for _ in range(given.rounds)]
        report(model, given.type, computed, restored)


def report(model: Path, cache: str, computed: Usage, restored: list[Usage]) -> None:
    restore = statistics.median(usage.restore_seconds for usage in restored)
    first = statistics.median(usage.ttft_seconds for usage in restored)
    size = computed.cache_bytes
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {platform.system()}")
    print(f"{model.name}, cache {cache}, {computed.prompt_tokens} tokens, {size / 1e6:.1f} MB of KV")
    print(f"computed   {computed.prefill_seconds:8.3f} s   first token after {computed.ttft_seconds:.3f} s")
    print(f"restored   {restore:8.3f} s   first token after {first:.3f} s   (median of {len(restored)})")
    print(f"tokens computed again after the restore: {max(usage.computed for usage in restored)}")
    print(f"restore speed {size / restore / 1e9:.2f} GB/s")
    print(f"ratio: restore {computed.prefill_seconds / restore:.0f}, first token {computed.ttft_seconds / first:.0f}")


if __name__ == "__main__":
    main()

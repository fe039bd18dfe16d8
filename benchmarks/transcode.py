"""What changing the cache type of a chat costs: speed, time against reading again, and quality, for all pairs of types.

    python benchmarks/transcode.py [MODEL.gguf] [--tokens N] [--prompts N] [--only speed|switch|quality]

speed    f16 rows of this model into each type and back, on one core, in MB of f16 a second.
switch   a chat of about N tokens whose engine goes over from f16 to q8_0, q4_0 and back to f16: what the next turn
         computes, and how long its past takes, against reading it again in the new type.
quality  mean divergence from f16 (nats) of the tokens after each prompt, with the cache transcoded and as the type
         itself computes it. The noise floor is f16 against f16 in another batch shape. Transcoded from A to B must not
         be worse than A and B are together, plus that noise.
"""

from __future__ import annotations

import argparse
import os
import platform
import queue
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, Generate, LoadFailed, PromptReady, Ready, TextDelta, TurnFinished
from kvchat.backend.values import CacheType, EngineConfig, PromptMessage, Sampling, Usage
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.divergence import differences
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.engine.transcoding import transcoded
from kvchat.formats.ggml import GGML_NUMBERS
from kvchat.formats.gguf import read_header
from kvchat.formats.rows import LayerShape, PartShape, Rows
from kvchat.formats.state import parse
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.transcode import TYPES, Form, Transcoder
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

LIVE: tuple[CacheType, ...] = ("f16", "bf16", "q8_0", "q4_0")
PROMPT, FOLLOWING = 96, 8  # tokens
EXACT = Form("f16", "f16")


# ------------------------------------------------------------------ speed


def speeds(shape: Geometry, tokens: int = 1024) -> Iterator[tuple[str, float, float]]:
    """Each type, with MB of f16 a second of processor time from f16 to it, and back."""
    source = np.random.default_rng(0)
    layers = [layer for layer in shape.cache if not layer.window] or list(shape.cache)
    k, v = (
        tuple(source.standard_normal((tokens, size)).astype(np.float16).view(np.uint8) for size in sizes)
        for sizes in ([layer.key for layer in layers], [layer.value for layer in layers])
    )
    number = GGML_NUMBERS["f16"]
    shapes = tuple(LayerShape(number, a.shape[1], number, b.shape[1]) for a, b in zip(k, v, strict=True))
    rows = Rows(PartShape(shapes), np.arange(tokens, dtype=np.int32), k, v)
    megabytes = sum(each.nbytes for each in (*k, *v)) / 1e6
    for kind in TYPES[1:]:
        there = Transcoder(NativeQuants(), shape, EXACT, Form(kind, kind))
        back = Transcoder(NativeQuants(), shape, Form(kind, kind), EXACT)
        made = there.rows("full", rows)
        yield kind, megabytes / _seconds(there, rows), megabytes / _seconds(back, made)


def _seconds(transcoder: Transcoder, rows: Rows) -> float:
    """The best of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        transcoder.rows("full", rows)
        found.append(time.process_time() - began)
    return min(found)


# ------------------------------------------------------------------ a chat that changes its type


class Chat:
    """An engine and a conversation with it."""

    def __init__(self, config: EngineConfig, home: Path) -> None:
        self.config = config
        self.messages: list[PromptMessage] = []
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.engine = Engine(config, self._events.put, home / "state", home / "engine.log")
        self.engine.start()
        self._ready()

    def switch(self, kind: CacheType) -> None:
        self.config = replace(self.config, type_k=kind, type_v=kind)
        self.engine.configure(self.config)
        self._ready()

    def ask(self, text: str, *, keep_kv: bool = True, remember: bool = True) -> Usage:
        asked = [*self.messages, PromptMessage("user", text)]
        self.engine.submit(Generate("t", tuple(asked), Sampling(temperature=0, max_tokens=8), keep_kv=keep_kv))
        reply, ids = "", ()
        while not isinstance(event := self._events.get(timeout=3600), TurnFinished):
            if isinstance(event, PromptReady):
                pairs = zip(asked, event.segments, strict=True)
                asked = [replace(message, ids=segment) for message, segment in pairs]
            elif isinstance(event, TextDelta):
                reply, ids = reply + event.text, (*ids, *event.ids)
        if remember:
            self.messages = [*asked, PromptMessage("assistant", reply, ids)]
        return event.usage

    def _ready(self) -> None:
        while not isinstance(event := self._events.get(timeout=600), Ready):
            if isinstance(event, LoadFailed):
                raise SystemExit(f"error: {event.failure.message}")


def switches(model: Path, home: Path, tokens: int) -> Iterator[tuple[str, Usage, Usage]]:
    """Each type that the chat goes over to, with the cost of its next turn, and of reading all of it again."""
    chat = Chat(EngineConfig(str(model), threads=1, extra_buffers=False, kv_folder=str(home / "kv")), home)
    try:
        chat.ask(" ".join(f"Item {i} is a thing of its own." for i in range(tokens // 11)))
        kinds: tuple[CacheType, ...] = ("q8_0", "q4_0", "f16")
        for kind in kinds:
            chat.switch(kind)
            found = chat.ask("And then?")
            yield kind, found, chat.ask("And?", keep_kv=False, remember=False)
    finally:
        chat.engine.close()


# ------------------------------------------------------------------ quality


@dataclass(frozen=True, slots=True)
class Divergences:
    """Mean divergence from f16 in nats: `floor` of f16 in another batch shape, `native` of each type, `transcoded` by
    (source, target)."""

    floor: float
    native: Mapping[str, float]
    transcoded: Mapping[tuple[str, str], float]

    def excess(self, source: str, target: str) -> float:
        """By how much a pair is worse than its types natively, the noise floor allowed for."""
        return self.transcoded[source, target] - self.native[source] - self.native[target] - self.floor


def divergences(model: Model, prompts: Sequence[Sequence[int]], kinds: Sequence[CacheType] = LIVE) -> Divergences:
    """All pairs of these types. A prompt: PROMPT tokens of the past, and FOLLOWING that come after it."""
    config = EngineConfig(str(model.path), context=256, threads=1, extra_buffers=False)
    flash = "on" if model.geometry.refusal("q8_0", "q8_0", "on") is None else "auto"
    contexts = {
        kind: Context(model, replace(config, type_k=kind, type_v=kind, flash_attention=flash), lambda: False)
        for kind in kinds
    }
    reference: dict[int, np.ndarray] = {}
    sums: dict[tuple[str, str], list[float]] = {}

    def compare(number: int, key: tuple[str, str], context: Context, ids: Sequence[int]) -> None:
        logits = []
        for at, token in enumerate(ids[PROMPT:], PROMPT):
            context.decode([token], at, output=True)
            logits.append(context.logits())
        found = np.array(logits)
        if key == ("f16", ""):
            reference[number] = found
        sums.setdefault(key, []).append(float(differences(reference[number], found, ids[PROMPT + 1 :]).kl.mean()))

    for number, ids in enumerate(prompts):
        held = {}
        for kind, context in contexts.items():
            context.memory.clear()
            context.decode(ids[:PROMPT], 0, output=True)
            held[kind] = parse(bytes(context.native.state(0)), context.memory.layout)
            compare(number, (kind, ""), context, ids)
        context = contexts["f16"]
        context.memory.clear()
        for at in range(0, PROMPT, 16):
            context.decode(ids[at : at + 16], at, output=True)
        compare(number, ("", "f16"), context, ids)
        for source, target in ((a, b) for a in kinds for b in kinds if a != b):
            context, forms = contexts[target], (Form(source, source), Form(target, target))
            blob = transcoded(held[source], model.geometry, *forms, context.memory, ids[:PROMPT])
            context.memory.replace(blob, PROMPT)
            compare(number, (source, target), context, ids)
    for context in contexts.values():
        context.close()
    means = {key: float(np.mean(values)) for key, values in sums.items()}
    native = {kind: means[kind, ""] for kind in kinds}
    return Divergences(means["", "f16"], native, {key: mean for key, mean in means.items() if all(key)})


def prompts_of(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """Pieces of a text that begin at different places, spread over it."""
    length = PROMPT + FOLLOWING
    return [ids[at : at + length] for at in np.linspace(0, len(ids) - length, count).astype(int)]


# ------------------------------------------------------------------ report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--only", choices=("speed", "switch", "quality"))
    given = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {platform.system()}")
    with tempfile.TemporaryDirectory() as folder:
        models = find_models(Paths.find({"KVCHAT_HOME": folder}))
        path = given.model or next(model.path for model in models if model.source == BUILT_IN)
        if given.only in (None, "speed"):
            for kind, there, back in speeds(geometry(read_header(path))):
                print(f"f16 -> {kind:<7} {there:6.0f} MB/s   back {back:6.0f} MB/s")
        if given.only in (None, "switch"):
            report_switches(path, Path(folder), given.tokens)
        if given.only in (None, "quality"):
            report_quality(path, given.prompts)


def report_switches(path: Path, home: Path, tokens: int) -> None:
    for kind, found, again in switches(path, home, tokens):
        reading = again.prefill_seconds
        print(
            f"to {kind:<5} {found.reused:,} tokens in {found.restore_seconds:.3f} s (from {found.transcoded} pages), "
            f"{found.computed} computed; read again {reading:.1f} s, ratio {reading / found.restore_seconds:.0f}"
        )


def report_quality(path: Path, count: int) -> None:
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    model = Model(EngineConfig(str(path), extra_buffers=False), lambda _: True)
    text = (Path(__file__).parents[1] / "kvchat" / "bench" / "passage.txt").read_text(encoding="utf-8")
    found = divergences(model, prompts_of(model.tokenize(text, special=False), count))
    print(f"mean divergence from f16, {count} prompts, {FOLLOWING} tokens each; noise floor {found.floor:.5f} nats")
    for kind in LIVE[1:]:
        print(f"{kind + ' itself':<16} {found.native[kind]:.5f}")
    for (source, target), mean in found.transcoded.items():
        worse = "" if found.excess(source, target) <= 0 else f"   worse by {found.excess(source, target):.5f}"
        print(f"{source + ' -> ' + target:<16} {mean:.5f}{worse}")


if __name__ == "__main__":
    main()

"""What changing the cache type of a chat costs: speed, and quality for all pairs of types. `switch.py` has the time.

    python benchmarks/transcode.py [MODEL.gguf] [--tiny KIND] [--prompts N] [--only speed|quality]

speed    f16 rows of this model into each type and back, on one core, in MB of f16 a second.
quality  mean divergence from f16 (nats) of the tokens after each prompt, with the cache transcoded and as the type
         itself computes it. The noise floor is f16 against f16 in another batch shape. Transcoded from A to B must not
         be worse than the coarser of the two is itself, plus that noise; pairs that are worse are listed. Types that
         are for the disk only are a way there and back: f16, the type, f16.

Without a model: the built-in one. `--tiny llama128`: one of the random models of the tests, here with heads of 128.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from kvchat.backend.values import CacheType, EngineConfig
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

ROOT = Path(__file__).parents[1]
LIVE: tuple[CacheType, ...] = ("f16", "bf16", "q8_0", "q4_0")
STORED = tuple(kind for kind in TYPES if kind not in LIVE)
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


# ------------------------------------------------------------------ quality


@dataclass(frozen=True, slots=True)
class Divergences:
    """Mean divergence from f16 in nats: `floor` of f16 in another batch shape, `native` of each type, `transcoded` by
    (source, target), `stored` of f16 that was in a type in between."""

    floor: float
    native: Mapping[str, float]
    transcoded: Mapping[tuple[str, str], float]
    stored: Mapping[str, float]

    def excess(self, source: str, target: str) -> float:
        """By how much a pair is worse than its two types natively together, the noise floor allowed for: with few
        prompts, more is chance."""
        return self.transcoded[source, target] - self.native[source] - self.native[target] - self.floor


def divergences(
    model: Model, prompts: Sequence[Sequence[int]], kinds: Sequence[CacheType] = LIVE, stored: Sequence[str] = ()
) -> Divergences:
    """All pairs of `kinds`, and f16 by way of `stored`. A prompt: PROMPT tokens of the past, and FOLLOWING after it."""
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
        context = contexts["f16"]
        for kind in stored:
            there = Transcoder(NativeQuants(), model.geometry, EXACT, Form(kind, kind))
            rows = {part: there.rows(part, each) for part, each in held["f16"].items()}
            blob = transcoded(rows, model.geometry, there.target, EXACT, context.memory, ids[:PROMPT])
            context.memory.replace(blob, PROMPT)
            compare(number, ("stored", kind), context, ids)
    for context in contexts.values():
        context.close()
    means = {key: float(np.mean(values)) for key, values in sums.items()}
    native = {kind: means[kind, ""] for kind in kinds}
    back = {kind: means["stored", kind] for kind in stored}
    pairs = {key: mean for key, mean in means.items() if all(key) and key[0] != "stored"}
    return Divergences(means["", "f16"], native, pairs, back)


def prompts_of(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """Pieces of a text that begin at different places, spread over it."""
    length = PROMPT + FOLLOWING
    return [ids[at : at + length] for at in np.linspace(0, len(ids) - length, count).astype(int)]


# ------------------------------------------------------------------ report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--tiny", help="a model of tests/tiny")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--only", choices=("speed", "quality"))
    given = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores, {platform.system()}")
    with tempfile.TemporaryDirectory() as folder:
        models = find_models(Paths.find({"KVCHAT_HOME": folder}))
        path = given.model or next(model.path for model in models if model.source == BUILT_IN)
        if given.tiny is not None:
            sys.path.insert(0, str(ROOT / "tests"))
            path = importlib.import_module("tiny").build(given.tiny, Path(folder))
        if given.only in (None, "speed"):
            for kind, there, back in speeds(geometry(read_header(path))):
                print(f"f16 -> {kind:<7} {there:6.0f} MB/s   back {back:6.0f} MB/s")
        if given.only in (None, "quality"):
            report_quality(path, given.prompts)


def report_quality(path: Path, count: int) -> None:
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    model = Model(EngineConfig(str(path), extra_buffers=False), lambda _: True)
    text = (ROOT / "kvchat" / "bench" / "passage.txt").read_text(encoding="utf-8")
    found = divergences(model, prompts_of(model.tokenize(text, special=False), count), LIVE, STORED)
    print(f"{path.stem}: mean divergence from f16, {count} prompts of {PROMPT} tokens, {FOLLOWING} after each")
    print(f"noise floor {found.floor:.6f} nats")
    print("| from \\ to | " + " | ".join(LIVE) + " |\n|---|" + "---|" * len(LIVE))
    for source in LIVE:
        cells = (found.native[source] if source == to else found.transcoded[source, to] for to in LIVE)
        print(f"| {source} | " + " | ".join(f"{cell:.6f}" for cell in cells) + " |")
    for kind, mean in found.stored.items():
        print(f"f16 -> {kind} -> f16: {mean:.6f}")
    for pair in found.transcoded:
        worse = found.transcoded[pair] - max(found.native[kind] for kind in pair) - found.floor
        if worse > 0:
            print(f"{' -> '.join(pair)}: {worse:.6f} more than the coarser type and the noise")


if __name__ == "__main__":
    main()

"""Rows of one cache type made of those of another, against llama.cpp's own: `rows_probe.py MODEL...`.

For each model and pair of types it prints the relative distance between the values of the first layer that has a cache,
transcoded and as a context of that type holds them.
"""

import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.formats.state import parse
from kvchat.kv.transcode import Form, Transcoder

TOKENS = np.random.default_rng(3).integers(10, 500, 48).tolist()
PAIRS = (("f16", "q8_0"), ("f16", "q4_0"), ("q8_0", "f16"), ("q4_0", "q8_0"))


def held(model, config):
    """All rows of the cache after the tokens."""
    context = Context(model, config, lambda: False)
    context.decode(TOKENS, 0, output=True)
    rows = parse(bytes(context.native.state(0)), context.memory.layout)
    context.close()
    return rows


def main():
    llama.start(lambda text, error: None)
    for path in map(Path, sys.argv[1:]):
        compare(path)


def compare(path):
    common = {"model_path": str(path), "context": 256, "extra_buffers": False, "threads": 1}
    model = Model(EngineConfig(**common), lambda fraction: True)
    rows = {
        kind: held(model, EngineConfig(**common, type_k=kind, type_v=kind, flash_attention="on"))
        for kind in ("f16", "q8_0", "q4_0")
    }
    first = min(model.geometry.cache, key=lambda layer: layer.index)
    part = "window" if first.window else "full"
    model.native.close()
    quants, exact = NativeQuants(), Form("f16", "f16")
    for source, target in PAIRS:
        made = Transcoder(quants, model.geometry, Form(source, source), Form(target, target))
        plain = Transcoder(quants, model.geometry, Form(target, target), exact)
        ours, theirs = (plain.rows(part, each) for each in (made.rows(part, rows[source][part]), rows[target][part]))
        far = [
            np.linalg.norm(a.view(np.float16).astype("f4") - b.view(np.float16).astype("f4"))
            / np.linalg.norm(b.view(np.float16).astype("f4"))
            for a, b in ((ours.k(0), theirs.k(0)), (ours.v(0), theirs.v(0)))
            if a.size
        ]
        print(f"{path.stem} {source}>{target} {max(far):.4f}")


main()

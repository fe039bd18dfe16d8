"""Rows of a cache whose V is transposed, laid in one where it is not, and back: `turned_probe.py MODEL...`.

For each model it prints whether the rows, the whole state and the next logits are the same, bit for bit.
"""

import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.memory import CHAT
from kvchat.engine.model import Model
from kvchat.formats.blob import BlobBuffer, PartCells

TOKENS = np.random.default_rng(3).integers(10, 500, 200).tolist()


def held(context):
    return {part: context.memory.live_rows(part) for part in context.memory.layout.parts}


def moved(rows, context):
    """All rows of one context, in another."""
    shapes = context.memory.shapes
    blob = BlobBuffer({part: PartCells(shapes[part], each.positions) for part, each in rows.items()}, CHAT)
    for part, each in rows.items():
        views = blob.views(part, 0, len(each.positions))
        for target, source in zip(views, each.payload(), strict=True):
            target[:] = source
    context.memory.replace(blob.finish(), len(TOKENS))


def payload(rows):
    return [bytes(buffer) for part in rows.values() for buffer in part.payload()]


def compare(path):
    common = {"model_path": str(path), "context": 256, "extra_buffers": False, "threads": 1}
    model = Model(EngineConfig(**common), lambda fraction: True)
    off, on, back = (
        Context(model, EngineConfig(**common, flash_attention=flash), lambda: False) for flash in ("off", "on", "off")
    )
    off.decode(TOKENS, 0, output=True)
    turned = [context.memory.shapes["full"].v_trans for context in (off, on, back)]
    first = held(off)
    moved(first, on)
    moved(held(on), back)
    same = payload(first) == payload(held(on)), bytes(off.native.state(CHAT)) == bytes(back.native.state(CHAT))
    logits = []
    for context in (off, back):
        context.decode([17], len(TOKENS), output=True)
        logits.append(context.logits().copy())
    print(path.stem, turned, *same, np.array_equal(*logits))


def main():
    llama.start(lambda text, error: None)
    for path in map(Path, sys.argv[1:]):
        compare(path)


main()

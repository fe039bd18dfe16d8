"""What a process takes that has read a context full: `plan_memory_probe.py MODEL CONTEXT TYPE`.

Prints JSON: resident bytes of the process, and the total of the plan. The cells before the last step hold zeros, which
llama.cpp computes with as with any others; the last step is a real one, at the depth where it takes most.
"""

import json
import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import (
    llama,
    process,  # noqa: F401 (an engine process has loaded it)
)
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.session import Session
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.kv.needs import Memory, subject
from kvchat.kv.plan import Wanted, make_plan

FEW = 32


def fill(context, depth):
    memory = context.memory
    first = {"full": 0, "window": memory.first_needed(depth)}
    cells = {
        part: PartCells(shape, np.arange(first[part], depth, dtype=np.int32)) for part, shape in memory.shapes.items()
    }
    blob = BlobBuffer(cells)
    for part, each in cells.items():
        for view in blob.views(part, 0, len(each.positions)):
            np.frombuffer(view, np.uint8)[:] = 0
    memory.replace(blob.finish(), depth)


def resident():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def main():
    model, size, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    llama.start(lambda text, error: None)
    config = EngineConfig(str(model), context=size, type_k=kind, type_v=kind, threads=1, extra_buffers=False)
    session = Session(config, Interrupt(), lambda fraction: True, lambda event: None)
    context = session.context
    tokens = [100 + number % 300 for number in range(context.chunk)]
    context.decode(tokens, 0, output=1)
    # With flash attention a step takes hardly more where it is deep, and much longer.
    last = tokens[:FEW] if context.flash else tokens
    fill(context, context.cells - len(last))
    context.decode(last, context.cells - len(last), output=1)
    plan = make_plan(subject("model", [model], model.stat().st_size), Memory(), Wanted(size, kind, kind))
    print(json.dumps({"resident": resident(), "planned": plan.chosen.total_bytes}))
    session.close()


if __name__ == "__main__":
    main()

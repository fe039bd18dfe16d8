"""Computes logits of fixed tokens in a process of its own: `logits_probe.py MODE SPEC.json OUT.npz`.

MODE "stay" computes prompt and reply, saves its pages a few tokens before the end and goes on; "resume" computes those
last tokens from the pages, in another process. Both write the logits after each of the last tokens, float32 (tokens,
vocabulary), and what was restored.
"""

import json
import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace
from kvchat.engine.reuse import Cells
from kvchat.engine.saving import PageWriter, Saver
from kvchat.kv.store import PageStore


def main() -> None:
    mode, spec, out = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    llama.start(lambda text, error: None)
    config = EngineConfig(extra_buffers=False, threads=1, **spec["config"])
    model = Model(config, lambda fraction: True)
    context = Context(model, config, lambda: False)
    store = PageStore(Path(config.kv_folder), page_namespace(model, context.cells, config), 2**34)
    writer = PageWriter(store)
    cells = Cells(context, store)
    saver = Saver(cells, writer, store, page_labels(context))
    tokens, prompt, stop = spec["tokens"], spec["prompt"], spec["stop"]
    reuse = cells.prepare([*tokens[:stop], 0], stop if mode == "resume" else 0, keep=True)
    saver.begin()
    while len(cells) < prompt:
        start = len(cells)
        chunk = tokens[start : min(prompt, start - start % context.chunk + context.chunk)]
        context.decode(chunk, start, output=True)
        cells.append(chunk, 0.1)
        saver.advance(prompt)
    logits = []
    while len(cells) < len(tokens):
        if len(cells) == stop:
            saver.finish()
        context.decode([tokens[len(cells)]], len(cells), output=True)
        if len(cells) >= stop:
            logits.append(context.logits())
        cells.append([tokens[len(cells)]], 0.1)
    writer.close()
    np.savez(out, logits=np.array(logits), pages=reuse.pages, cut=str(reuse.cut))


main()

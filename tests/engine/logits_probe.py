"""Computes logits of fixed tokens in a process of its own: `logits_probe.py MODE SPEC.json OUT.npz`.

MODE "stay" computes prompt and reply, saves them a few tokens before the end and goes on; "resume" computes those
last tokens from what was saved, in another process. Both begin the last tokens as a turn does. For each of the
configurations in the spec they write the logits after each of the last tokens, float32 (tokens, vocabulary), and what
was restored.
"""

import json
import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.cells import Cells
from kvchat.engine.context import Context
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver, marks
from kvchat.engine.writing import PageWriter
from kvchat.formats.past import Past
from kvchat.kv.store import PageStore


class Run:
    """One configuration: decodes the spec's tokens as a turn would."""

    def __init__(self, model, config, tokens):
        self.context = Context(model, config, lambda: False)
        store = PageStore(Path(config.kv_folder), page_namespace(model, self.context.cells, config), 2**34)
        self.writer = PageWriter(store)
        self.cells = Cells(self.context.memory, store.namespace.root)
        self.reuser = Reuser(self.cells, store)
        self.saver = Saver(self.cells, self.writer, store, page_labels(self.context), self.context.outputs.after)
        self.tokens = tokens

    def prepare(self, end, past):
        return self.reuser.prepare(Past([*self.tokens[:end], 0]), past, keep=True)

    def decode(self, end):
        start = len(self.cells)
        self.context.decode(self.tokens[start:end], start, output=True)
        self.cells.append(self.tokens[start:end], 0.1)

    def prefill(self, prompt):
        checkpoints = marks(0, prompt) if self.context.memory.recurrent else []
        chunk = self.context.chunk
        while (start := len(self.cells)) < prompt:
            self.decode(min([prompt, start - start % chunk + chunk, *(mark for mark in checkpoints if mark > start)]))
            self.saver.advance(prompt)
            if len(self.cells) in checkpoints:
                self.checkpoint()

    def checkpoint(self):
        snapshot = self.cells.take_snapshot()
        if snapshot is not None:
            self.saver.checkpoint(snapshot)

    def first_part(self, prompt, stop):
        self.prepare(stop, 0)
        self.saver.begin()
        self.prefill(prompt)
        while len(self.cells) < stop:
            self.decode(len(self.cells) + 1)
            self.saver.advance(len(self.cells))
        self.checkpoint()
        self.saver.finish()

    def last_part(self):
        while len(self.cells) < len(self.tokens):
            self.decode(len(self.cells) + 1)
            yield self.context.logits()


def main():
    mode, spec, out = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    llama.start(lambda text, error: None)
    common = {"model_path": spec["model"], "context": spec["context"], "extra_buffers": False, "threads": 1}
    model = Model(EngineConfig(**common), lambda fraction: True)
    found = {}
    for name, config in spec["configs"].items():
        run = Run(model, EngineConfig(**common, kv_folder=spec["folder"], **config), spec["tokens"])
        if mode == "stay":
            run.first_part(spec["prompt"], spec["stop"])
        reuse = run.prepare(spec["stop"], spec["stop"])
        found[f"{name} logits"] = np.array(list(run.last_part()))
        found[f"{name} from"] = np.array([reuse.resident, reuse.pages, reuse.checkpoint])
        found[f"{name} cut"] = np.array(str(reuse.cut))
        run.writer.close()
        run.context.close()
    np.savez(out, **found)


main()

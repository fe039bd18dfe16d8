"""Computes logits of fixed tokens with engine options, in a process of its own: `options_probe.py SPEC.json OUT.npz`.

For each run of the spec (a model, `lora`, `rope`, `hardware`, `threads`) it writes the logits after each token, float32
(tokens, vocabulary), or the error, and the namespace of its pages.
"""

import json
import sys
from pathlib import Path

import numpy as np

from kvchat.backend.values import Adapter, EngineConfig, Hardware, Rope
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_namespace
from kvchat.engine.placement import placement_notes
from kvchat.errors import KvchatError

CELLS = 512


def config(run):
    hardware = run.get("hardware", {})
    hardware["tensor_split"] = tuple(hardware.get("tensor_split", ()))
    return EngineConfig(
        run["model"],
        context=CELLS,
        threads=1,
        extra_buffers=False,
        rope=Rope(**run.get("rope", {})),
        hardware=Hardware(**hardware),
        lora=tuple(Adapter(*each) for each in run.get("lora", ())),
    )


def logits(model, wanted, tokens):
    context = Context(model, wanted, lambda: False)
    rows, step = [], 8
    for start in range(0, len(tokens), step):
        context.decode(tokens[start : start + step], start, output=step)
        rows.append(context.native.all_logits(step).copy())
    chunk = context.chunk
    context.close()
    return np.concatenate(rows), chunk


def main():
    spec, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    llama.start(lambda text, error: None)
    found = {}
    for name, run in spec["runs"].items():
        wanted = config(run)
        try:
            model = Model(wanted, lambda fraction: True)
        except KvchatError as error:
            found[f"{name} error"] = np.array([error.message, error.hint])
            continue
        found[f"{name} logits"], chunk = logits(model, wanted, spec["tokens"])
        found[f"{name} chunk"] = np.array(chunk)
        found[f"{name} namespace"] = np.array(page_namespace(model, CELLS, wanted).id)
        found[f"{name} notes"] = np.array(list(placement_notes(wanted)))
        found[f"{name} planned"] = np.array([model.subject.size, model.subject.adapters])
        model.native.close()
    np.savez(out, **found)


main()

"""How well a chat goes on that is far longer than its context, and whether its memory grows.

    python benchmarks/overflow_chat.py [MODEL.gguf...] [--cells N] [--tokens N] [--policies shift,sinks,prune]
        [--types f16,q8_0,q4_0] [--json]

A person pastes a page of Python's reference, a few lines at a time, and gets answers of 8 tokens, until the chat has
so many tokens. The engine is that of kvchat, in this process, with a page store. Told is, for each cache type and
policy, the mean negative log likelihood (nats) of the pasted tokens that came after the context was first full, and of
the same tokens in a context that holds the whole chat; how often something left; and by how much the process had grown
from its second eviction to its last one (resident memory that is not a file's; Linux only). That counts heap that is
free again: a run that comes first in a process shows more of it than those after it. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import get_args

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from chat_session import Chat, nats

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.engine import llama
from kvchat.engine.model import Model
from kvchat.engine.overflow import EVICTING, Evicting
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths

PAGE, REPLY = "specialnames", 8
PART = 8  # a paste takes at least this part of the context
STATUS = Path("/proc/self/status")


def pastes(model: Model, tokens: int) -> Iterator[str]:
    """The page, a few lines at a time, which are at least so many tokens."""
    part = ""
    for line in topics[PAGE].splitlines():
        part += f"{line}\n" if line.strip() else ""
        if len(model.tokenize(part, special=False)) >= tokens:
            yield part
            part = ""


def grown() -> int:
    """Bytes of this process that are in memory and not a file's; 0 where that cannot be told."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", STATUS.read_text(), re.M) if STATUS.exists() else None
    return int(found[1]) * 1024 if found else 0


def chat(path: Path, kind: CacheType, policy: Evicting | None, cells: int, tokens: int) -> dict[str, float]:
    """What one chat told; `policy` None: there is room for all of it."""
    with tempfile.TemporaryDirectory() as folder:
        context = cells if policy else tokens + 1024
        made = Chat(
            EngineConfig(
                str(path),
                context=context,
                type_k=kind,
                type_v=kind,
                threads=1,
                extra_buffers=False,
                kv_folder=folder,
                kv_budget=2**34,
            ),
            policy=policy or "stop",
        )
        told: list[float] = []
        sizes: list[int] = []
        length, source = 0, pastes(made.session.model, cells // PART)
        while length < tokens:
            reason = made.ask(next(source), REPLY).reason
            if reason not in ("length", "stop"):
                raise SystemExit(f"a turn ended with {reason}")
            pasted = made.messages[-2].ids or ()
            if length >= cells:
                end = len(made.session.logits) - len(made.messages[-1].ids or ()) + 1
                told += nats(made.session.logits[end - len(pasted) : end - 1], pasted[1:])
            made.session.logits = []
            length += len(pasted) + len(made.messages[-1].ids or ())
            if len(sizes) < len(made.log):
                sizes += [grown()] * (len(made.log) - len(sizes))
        made.close()
    if not np.isfinite(told).all():
        raise SystemExit("the model tells no numbers")
    return {"nll": float(np.mean(told)), "tokens": len(told), "evictions": len(sizes), "grown": growth(sizes)}


def growth(sizes: list[int]) -> float:
    """MiB from the second eviction to the last one."""
    return (sizes[-1] - sizes[1]) / 2**20 if len(sizes) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--cells", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--policies", default=",".join(EVICTING))
    parser.add_argument("--types", default="f16,q8_0,q4_0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = find_models(Paths.find({"KVCHAT_HOME": folder}))
    paths = options.models or [next(model.path for model in models if model.source == BUILT_IN)]
    policies: list[Evicting] = [each for each in EVICTING if each in options.policies.split(",")]
    kinds: list[CacheType] = [each for each in get_args(CacheType) if each in options.types.split(",")]
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    if not options.json:
        print(f"{processor()}, Python {platform.python_version()}, {options.cells} cells, {options.tokens} tokens")
    for path in paths:
        for kind in kinds:
            for policy in (None, *policies):
                told = {"model": path.stem, "type": kind, "policy": policy or "all"}
                told |= chat(path, kind, policy, options.cells, options.tokens)
                line = "{model:<24.24} {type:<6}{policy:<8}{nll:>8.3f} nats{evictions:>5} evictions{grown:>8.2f} MiB"
                print(json.dumps(told) if options.json else line.format(**told), flush=True)


if __name__ == "__main__":
    main()

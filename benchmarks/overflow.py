"""How well a model goes on with a text that does not fit into its context, by what leaves it.

    python benchmarks/overflow.py [MODEL.gguf] [--cells N] [--tokens N] [--texts N] [--types f16,q8_0,q4_0]
        [--policies LIST]

Texts are pages of Python's own reference, as pydoc has them: the first N tokens of each. All are read with a cache of N
cells, 16 tokens at a time, and something leaves whenever the next ones have no room: by each policy of kvchat, with
blocks of 64 tokens for the turns that "shift" drops, and, for comparison, the oldest tokens, the first ones included.
Told is the mean negative log likelihood (nats) of the tokens after the cache was first full, over all texts, and of the
same tokens in a context that holds all. Nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import CacheType, EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.memory import CHAT, Memory
from kvchat.engine.model import Model
from kvchat.engine.overflow import BLOCK, EVICTING, SINKS, Full, choose
from kvchat.engine.scoring import key_norms
from kvchat.formats.past import Range, count, joined, live
from kvchat.kv.fit import OUTPUTS
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths

PAGES = (
    *("compound", "debugger", "attribute-access", "customization", "assignment"),
    *("comparisons", "execmodel", "import", "try", "calls"),
)
POLICIES = ("all in the context", "shift", "sinks", "prune", "oldest first")


def nll_of(context: Context, ids: Sequence[int], policy: str, cells: int, head: int) -> list[float]:
    """Nats of each token after the first `cells`, which are in the cache."""
    memory, quants = context.memory, NativeQuants()
    found: list[float] = []
    for start in range(cells, len(ids) - 1, OUTPUTS):
        chunk = ids[start : min(start + OUTPUTS, len(ids) - 1)]
        used = start - count(memory.holes)
        if policy != POLICIES[0] and used + len(chunk) > cells:
            ranges = leaving(memory, start, policy, cells, quants, head)
            memory.evict(ranges, joined([*memory.holes, *ranges]), ids)
        context.decode(chunk, start, output=len(chunk))
        logits = context.native.all_logits(len(chunk)).astype(np.float64)
        targets = ids[start + 1 : start + len(chunk) + 1]
        found += [nats(row, target) for row, target in zip(logits, targets, strict=True)]
    return found


def all_policies(context: Context, ids: Sequence[int], policies: Sequence[str], cells: int, head: int) -> list[float]:
    """The mean of each policy for one text."""
    memory = context.memory
    memory.clear()
    for start in range(0, cells, OUTPUTS):
        context.decode(ids[start : start + OUTPUTS], start, output=0)
    full, means = bytearray(context.native.state(CHAT)), []
    for policy in policies:
        memory.replace(memoryview(full), cells)
        means.append(float(np.mean(nll_of(context, ids, policy, cells, head))))
    return means


def nats(logits: npt.NDArray[np.float64], target: int) -> float:
    top = float(logits.max())
    return top + float(np.log(np.exp(logits - top).sum())) - float(logits[target])


def leaving(memory: Memory, length: int, policy: str, cells: int, quants: NativeQuants, head: int) -> list[Range]:
    if policy == POLICIES[-1]:
        oldest = live(0, length, memory.holes)[0][0]
        return [(oldest, oldest + max(BLOCK, cells // 4))]
    full = Full(
        length=length,
        holes=memory.holes,
        cells=cells,
        needed=OUTPUTS,
        kept=[(0, SINKS)],
        turns=[(start, start + BLOCK) for start in range(SINKS, length - BLOCK, BLOCK)],
        budget=cells * 3 // 4,
    )
    name = next(each for each in EVICTING if each == policy)
    return choose(name, full, lambda ranges: key_norms(memory, ranges, quants, head))


def chosen(options: argparse.Namespace) -> list[str]:
    return [policy for policy in POLICIES if policy in options.policies.split(",")]


def rows(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, list[float]]]:
    """Of each cache type the mean of every policy."""
    for kind in options.types.split(","):
        size = options.tokens + OUTPUTS
        cache: CacheType = kind
        config = EngineConfig(str(path), context=size, type_k=cache, type_v=cache, extra_buffers=False)
        model = Model(config, lambda _: True)
        texts = [model.tokenize(topics[page], special=False)[: options.tokens] for page in PAGES[: options.texts]]
        context = Context(model, config, lambda: False)
        if {len(text) for text in texts} != {options.tokens}:
            raise SystemExit(f"not every page has {options.tokens} tokens")
        head = model.geometry.head_k
        means = [all_policies(context, text, chosen(options), options.cells, head) for text in texts]
        yield kind, list(map(float, np.mean(means, axis=0)))
        context.close()
        model.native.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--cells", type=int, default=384)
    parser.add_argument("--tokens", type=int, default=640)
    parser.add_argument("--texts", type=int, default=len(PAGES))
    parser.add_argument("--types", default="f16,q8_0,q4_0")
    parser.add_argument("--policies", default=",".join(POLICIES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = find_models(Paths.find({"KVCHAT_HOME": folder}))
    path = options.model or next(model.path for model in models if model.source == BUILT_IN)
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    print(f"{processor()}, Python {platform.python_version()}, {path.name}, {options.texts} texts of {options.tokens}")
    print(f"{'':<6}" + "".join(f"{policy:>20}" for policy in chosen(options)))
    for kind, means in rows(path, options):
        print(f"{kind:<6}" + "".join(f"{mean:>20.3f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()

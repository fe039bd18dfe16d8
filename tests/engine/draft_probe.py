"""A draft model by itself, driven as a turn drives it, at random: `draft_probe.py FOLDER SEED MODEL...`.

Every draft is compared with what the same model says that read the same tokens at once, in a context of its own. Which
tokens stand and which come next is drawn. Prints JSON: model name -> counts of what happened; exit code 1, with a
reason, at once when a draft is another one, or anything is kept that must not be.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import draft_model, llama
from kvchat.engine.context import Aborted, Context
from kvchat.engine.draft_loading import load_draft
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.model import Model
from kvchat.engine.seat import Seat

draft_model.LEAST_CERTAIN = 0.0  # models without training are certain of nothing
CONTEXT = 512
ROUNDS = 6


class Probe:
    """A target that only lends its vocabulary and the size of its context, and its draft model."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.config = EngineConfig(
            str(path), context=CONTEXT, threads=1, extra_buffers=False, kv_folder=str(folder), draft_path=str(path)
        )
        self.interrupt = Interrupt()
        self.model = Model(self.config, lambda fraction: True)
        self.target = Seat(self.model, self.config, self.interrupt.stop)
        self.reference = Context(self.model, self.config, lambda: False)
        self.open()

    def open(self) -> None:
        self.draft = load_draft(self.config, self.target, self.interrupt)

    def expected(self, ids: list[int], count: int) -> list[int]:
        """The greedy tokens after `ids`, read at once."""
        self.reference.memory.clear()
        tokens, told = list(ids), []
        while len(told) < count:
            start = self.reference.memory.length
            for at in range(start, len(tokens), 128):
                self.reference.decode(tokens[at : at + 128], at, output=True)
            token = int(np.argmax(self.reference.logits()))
            told.append(token)
            tokens.append(token)
            if self.model.native.ends_generation(token):
                break
        return told

    def close(self) -> None:
        self.draft.close()
        self.target.close()
        self.reference.close()
        self.model.native.close()


def turn(probe: Probe, ids: list[int], draw: random.Random, counts: Counter[str], *, keep: bool = True) -> list[int]:
    """One turn after the prompt `ids`; what is told at its end."""
    draft = probe.draft
    draft.keep(keep)
    reach = draft.reach(ids[:-1])
    draft.begin(ids[:-1])
    held = len(draft.seat.cells)
    check(held == reach.tokens, f"{held} tokens came back, not {reach.tokens}")
    check(held == 0 or reach.seconds < 1, f"{reach.seconds} s for {held} tokens")
    counts["restored"] += held
    for _ in range(12):
        most = draw.randint(1, 6)
        if draw.random() < 0.15:
            probe.interrupt.cancel("t")
            probe.interrupt.begin("t")
        behind = draft.behind(ids)
        try:
            found = list(draft.draft(ids, most).tokens)
        except Aborted:
            counts["interrupted"] += 1
            found = []
        finally:
            probe.interrupt.end("t")
        if behind > draft_model.READ_AT_ONCE:
            counts["read"] += 1
            check(not found, "a draft that is behind")
        elif found:
            counts["drafts"] += 1
            wanted = probe.expected(ids, min(most, CONTEXT - len(ids) + 1))
            check(found == wanted, f"after {len(ids)} tokens {found}, not {wanted}")
        stands = draw.randint(0, len(found))
        ids = [*ids, *found[:stands], draw.randint(10, 500)]
        if len(ids) > CONTEXT:
            check(not draft.draft(ids, 3).tokens, "a draft beyond the context")
            counts["full"] += 1
            break
    told = ids[: len(ids) - draw.randint(0, 3)]
    draft.finish(told)
    return told


def rest(probe: Probe, told: list[int], counts: Counter[str]) -> None:
    """Time between turns, in which it is interrupted once."""
    probe.interrupt.cancel("rest")
    probe.interrupt.begin("rest")
    probe.draft.advance()
    probe.draft.is_behind and suppressed(probe)
    probe.interrupt.end("rest")
    while probe.draft.is_behind:
        probe.draft.advance()
        counts["steps"] += 1
    held = list(probe.draft.seat.cells.ids)
    check(held == told[:CONTEXT], f"{len(held)} of {len(told)} tokens were read")


def suppressed(probe: Probe) -> None:
    try:
        probe.draft.advance()
    except Aborted:
        return


def check(truth: bool, reason: str) -> None:
    if not truth:
        raise SystemExit(reason)


def run(path: Path, folder: Path, seed: int) -> Counter[str]:
    draw, counts = random.Random(seed), Counter[str]()
    probe = Probe(path, folder)
    told: list[int] = []
    for number in range(ROUNDS):
        length = draw.choice([3, 40, 150])
        told = told[: draw.choice([0, len(told) // 2, len(told), len(told)])]
        prompt = [*told, *(draw.randint(10, 500) for _ in range(length))][-CONTEXT + 40 :]
        if draw.random() < 0.3:
            turn(probe, prompt, draw, counts, keep=False)
            check(not probe.draft.is_behind, "what must not be kept is read")
        told = turn(probe, prompt, draw, counts)
        if number % 2:
            rest(probe, told, counts)
            probe.draft.close()
            probe.open()
            probe.draft.begin([*told, 1])
            held = len(probe.draft.seat.cells)
            check(held == len(told[:CONTEXT]), f"{held} of {len(told)} tokens came back")
            counts["reopened"] += 1
    probe.close()
    return counts


def main() -> None:
    llama.start(lambda text, error: None)
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({Path(name).stem: run(Path(name), folder / Path(name).stem, seed) for name in sys.argv[3:]}))


main()

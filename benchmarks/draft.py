"""Drafts against plain decoding in the same run: speed per task, equality of the tokens, the cost of checking.

    python benchmarks/draft.py [MODEL.gguf] [--mode ngram|model|auto] [--draft DRAFT.gguf] [--rounds N]
    python benchmarks/draft.py --worst [MODEL.gguf]                     what "auto" costs where drafts are wrong
    python benchmarks/draft.py --equal [--draft DRAFT.gguf]             tokens with and without drafts

Without a model: the built-in one, for speed its weights as F16. `--draft built-in`: that is the draft model, too.

Speed: each question is answered greedily without drafts and with them, in turn. The ratio is that of decoded tokens per
second; the median over the questions of a task, and the range. The bound is that of a lookup which knows how many of
its tokens will stand, by the cost of checking that was measured before.

Worst: the free questions, 100 tokens each, with "auto": a lookup alone, one that drafts anything and seems to be sure,
a draft model whose weights are random, and one that is the built-in model; first of all plain decoding against itself,
which is noise. The ratio is that of the times of plain decoding and of "auto", by the clock and by the processor time
of the process, which other programs disturb less; the order changes from pair to pair.

Equality: Q4_1 weights, q8_0 cache and flash attention, where a token in a batch is computed as it is alone: 20
questions, 200 tokens each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from dequantize import dequantize
from draft_session import TASKS, Answered, Bench, bound

from kvchat.backend.values import DraftMode, EngineConfig, Usage
from kvchat.engine import llama
from kvchat.engine.draft_costs import MOST_TOKENS
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths

WORST_TOKENS = 100
LEAST = 0.97  # of the speed of plain decoding


def speed(bench: Bench, mode: DraftMode, rounds: int, costs: Sequence[float]) -> None:
    print(
        f"{'task':16} {'plain':>9} {'drafts':>9} {'ratio':>6} {'range':>12} {'bound':>6} {'accepted':>9} {'a step':>7}"
    )
    bench.ask("Hello.", "off", 16)
    for task, questions in TASKS.items():
        ratios, plain, drafted, bounds = [], [], [], []
        usages: list[Usage] = []
        for question in questions:
            pairs = [(bench.ask(question, "off"), bench.ask(question, mode)) for _ in range(rounds)]
            plain.append(statistics.median(without.speed for without, _ in pairs))
            drafted.append(statistics.median(given.speed for _, given in pairs))
            ratios.append(statistics.median(given.speed / without.speed for without, given in pairs))
            usages += [given.usage for _, given in pairs]
            bounds.append(bound(pairs[0][0], costs) if costs else 0.0)
        proposed, accepted = (sum(counts) for counts in zip(*map(_counts, usages), strict=True))
        steps = sum(usage.draft_steps for usage in usages)
        print(
            f"{task:16} {statistics.median(plain):5.1f} t/s {statistics.median(drafted):5.1f} t/s "
            f"{statistics.median(ratios):6.2f} {min(ratios):5.2f} - {max(ratios):4.2f} "
            f"{statistics.median(bounds):6.2f} {accepted / max(proposed, 1):8.0%} {accepted / max(steps, 1):7.1f}"
        )


def _counts(usage: Usage) -> tuple[int, int]:
    return usage.draft_proposed, usage.draft_accepted


# ------------------------------------------------------------------ where drafts are wrong


def worst(config: EngineConfig, home: Path, built_in: Path, rounds: int) -> None:
    """Plain decoding against "auto", for each drafter that is mostly wrong."""
    noise = home / "noise.gguf"
    dequantize(built_in, noise, layers=4, noise=True)
    drafters = {
        "nothing": None,
        "lookup": None,
        "sure and wrong": None,
        "random weights": noise,
        "built-in model": built_in,
    }
    print(f"{'drafts of':16} {'clock':>6} {'range':>12} {'processor':>10} {'range':>12} {'checked':>8} {'stood':>6}")
    for name, draft in drafters.items():
        bench = Bench(replace(config, draft_path=str(draft) if draft else None))
        with closing(bench.session):
            bench.costs()
            if name == "sure and wrong":
                bench.guess()
            bench.ask("Hello.", "off", 16)
            _report(name, list(_pairs(bench, "off" if name == "nothing" else "auto", rounds)))


def _pairs(bench: Bench, mode: DraftMode, rounds: int) -> Iterator[tuple[Answered, Answered]]:
    """Each free question without drafts and with them, now in this order, now in the other."""
    questions = [question for _ in range(rounds) for question in TASKS["free chat"]]
    for number, question in enumerate(questions):
        if number % 2:
            yield bench.ask(question, "off", WORST_TOKENS), bench.ask(question, mode, WORST_TOKENS)
        else:
            drafted = bench.ask(question, mode, WORST_TOKENS)
            yield bench.ask(question, "off", WORST_TOKENS), drafted


def _report(name: str, pairs: Sequence[tuple[Answered, Answered]]) -> None:
    clock = [drafted.speed / plain.speed for plain, drafted in pairs]
    busy = [plain.processor / len(plain.ids) * len(drafted.ids) / drafted.processor for plain, drafted in pairs]
    proposed, accepted = (sum(counts) for counts in zip(*(_counts(each.usage) for _, each in pairs), strict=True))
    verdict = "" if max(map(statistics.median, (clock, busy))) >= LEAST else f"   below {LEAST}"
    print(
        f"{name:16} {statistics.median(clock):6.3f} {min(clock):5.2f} - {max(clock):4.2f} "
        f"{statistics.median(busy):10.3f} {min(busy):5.2f} - {max(busy):4.2f} {proposed:8} {accepted:6}{verdict}"
    )


# ------------------------------------------------------------------ equality


def equal(bench: Bench, modes: Sequence[DraftMode]) -> None:
    questions = [question for task in TASKS.values() for question in task]
    questions += [
        f"Write a list of {n} things that {what}." for n, what in ((5, "are round"), (7, "fly"), (9, "float"))
    ]
    bench.session.learn_costs((1.0,) * MOST_TOKENS)  # as if checking were free: all that is found is drafted
    plain = [bench.ask(question, "off") for question in questions[:20]]
    for mode in modes:
        same = drafted = accepted = 0
        for question, without in zip(questions, plain, strict=False):
            given = bench.ask(question, mode)
            same += without.ids == given.ids
            drafted += given.usage.draft_proposed
            accepted += given.usage.draft_accepted
        print(f"{mode}: {same} of {len(plain)} replies equal; {accepted} of {drafted} drafted tokens stood")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--worst", action="store_true")
    parser.add_argument("--mode", choices=("ngram", "model", "auto"), default="auto")
    parser.add_argument("--draft", help="a draft model, or built-in")
    parser.add_argument("--rounds", type=int, help="how often each question is asked: 3, of --worst 2")
    parser.add_argument("--type", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    llama.start(_silent)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        built_in = next(m.path for m in find_models(Paths.find({"KVCHAT_HOME": folder})) if m.source == BUILT_IN)
        model = given.model or built_in
        draft = str(built_in) if given.draft == BUILT_IN else given.draft
        if not given.equal and given.model is None:
            dequantize(model, home / "f16.gguf")
            model = home / "f16.gguf"
        cache, flash = ("q8_0", "on") if given.equal else (given.type, "auto")
        config = EngineConfig(
            str(model),
            context=4096,
            type_k=cache,
            type_v=cache,
            flash_attention=flash,
            threads=given.threads,
            extra_buffers=False,
            kv_folder=str(home / "kv"),
            draft_path=draft,
        )
        threads = f"{given.threads} thread{'' if given.threads == 1 else 's'}"
        print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {threads}, {model.name}, cache {cache}")
        if given.worst:
            worst(config, home, built_in, given.rounds or 2)
            return
        bench = Bench(config)
        with closing(bench.session):
            if given.equal:
                equal(bench, ("ngram", "model", "auto") if draft else ("ngram", "auto"))
            else:
                curve = bench.costs()
                told = "  ".join(f"{n}: {curve[n - 1]:.2f}" for n in (1, 2, 3, 4, 6, 8, 12, 16)) if curve else ""
                print(f"cost of decoding n tokens at once against one: {told or 'not measured'}")
                speed(bench, given.mode, given.rounds or 3, curve)


def _silent(_text: str, *, error: bool) -> None:
    """The log of a measurement is not wanted."""


if __name__ == "__main__":
    sys.exit(main())

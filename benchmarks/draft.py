"""Drafts against plain decoding in the same run: speed per task, equality of the tokens, the cost of checking.

    python benchmarks/draft.py [MODEL.gguf] [--mode ngram|model|auto] [--draft DRAFT.gguf] [--rounds N]
    python benchmarks/draft.py --guess [MODEL.gguf]                     speed where all that is drafted is wrong
    python benchmarks/draft.py --equal [--draft DRAFT.gguf]             tokens with and without drafts

Without a model: the built-in one, for speed its weights as F16. `--draft built-in`: that is the draft model, too.

Speed: each question is answered greedily without drafts and with them, in turn. The ratio is that of decoded tokens per
second; the median over the questions of a task, and the range. Equality: Q4_1 weights, q8_0 cache and flash attention,
where a token in a batch is computed as it is alone: 20 questions, 200 tokens each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dequantize import dequantize

from kvchat.backend.protocol import Event, Generate, TextDelta, TurnFinished
from kvchat.backend.values import DraftMode, EngineConfig, PromptMessage, Sampling, Usage
from kvchat.engine import llama
from kvchat.engine.cost_measuring import measure_costs
from kvchat.engine.drafting import Draft
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.ngram import BOUNDS, NgramDrafter
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.engine.tuning import Setting
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths

ROOT = Path(__file__).parents[1]
TOKENS = 200

_NOTES = (
    "The garden behind the mill was laid out in four beds. The first bed held beans and peas, the second bed held "
    "carrots and onions, the third bed held strawberries, and the fourth bed was left to the bees. Every morning "
    "at six the miller opened the gate, filled two cans at the pump, and watered the beds in the same order. On "
    "Sundays he only watered the strawberries. In June the first strawberries were ripe, and he sold them at the "
    "market in Altdorf for three coins a basket. In July the beans followed, and in August the onions were hung "
    "up to dry under the roof of the mill."
)

_LETTER = (
    "Dear Mrs. Keller, thank you for your letter of 3 March about the repair of the tower clock. We have looked "
    "at the clock on Tuesday. The large wheel is worn and must be replaced, the pendulum is fine, and the two "
    "smaller wheels need new oil only. The new wheel will cost 420 francs, the work 180 francs, and the repair "
    "will take about two weeks. If you agree, we will begin on 17 March, and the clock will strike again by "
    "Easter. With kind regards, Anton Weber, clockmaker."
)

_CODE = (ROOT / "kvchat" / "engine" / "speed.py").read_text(encoding="utf-8")
_CODE2 = (ROOT / "kvchat" / "engine" / "interrupt.py").read_text(encoding="utf-8")

TASKS: dict[str, tuple[str, ...]] = {
    "free chat": (
        "Tell me a story about a lighthouse keeper.",
        "What are the advantages of travelling by train?",
        "Explain how a refrigerator works.",
        "Why is the sky blue in the day and red in the evening?",
        "Give me advice on how to learn the piano as an adult.",
    ),
    "summarise": tuple(
        f"{text}\n\n{task}"
        for text in (_NOTES, _LETTER)
        for task in ("Summarise this text in three sentences.", "What is this text about?")
    ),
    "quote and edit": tuple(
        f"{text}\n\n{task}"
        for text in (_NOTES, _LETTER)
        for task in (
            "Repeat the text above word for word.",
            "Copy the text above, but correct any spelling mistakes.",
        )
    ),
    "code edit": tuple(
        f"```python\n{code}```\n\n{task}"
        for code in (_CODE, _CODE2)
        for task in ("Write this file again, with a docstring for every function.", "Repeat this file without changes.")
    ),
}


@dataclass(frozen=True, slots=True)
class Answered:
    """One reply: its ids, and what it cost."""

    ids: tuple[int, ...]
    usage: Usage

    @property
    def speed(self) -> float:
        """Decoded tokens per second; the first token comes with the prompt."""
        return (self.usage.decode_tokens - 1) / self.usage.decode_seconds


class Guesser(NgramDrafter):
    """Drafts anything, and seems to be sure of it."""

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        return Draft(tuple((31 * len(ids) + 17 * i) % 49_000 for i in range(most)), len(BOUNDS))


class Bench:
    """A session in this process."""

    def __init__(self, config: EngineConfig) -> None:
        self._events: list[Event] = []
        self.interrupt = Interrupt()
        self.session = Session(config, self.interrupt, lambda _: True, self._events.append)

    def guess(self) -> None:
        """Draft anything from now on."""
        self.session._speculation.lookup = Guesser()

    def ask(self, question: str, draft: DraftMode, tokens: int = TOKENS, seed: int | None = None) -> Answered:
        """Every question is a chat of its own."""
        self._events.clear()
        sampling = Sampling(temperature=0 if seed is None else 0.8, seed=seed, max_tokens=tokens)
        scheduler = Scheduler(self.session, self.interrupt, self._events.append)
        scheduler.add(Generate("t", (PromptMessage("user", question),), sampling, draft=draft))
        scheduler.run_next()
        while self.session.aside is not None:  # a draft model reads on while the person does
            self.session.advance_aside()
        finished = next(event for event in self._events if isinstance(event, TurnFinished))
        if finished.failure is not None:
            raise SystemExit(f"error: {finished.failure.message}")
        ids = tuple(token for event in self._events if isinstance(event, TextDelta) for token in event.ids)
        return Answered(ids, finished.usage)


def speed(bench: Bench, mode: DraftMode, rounds: int) -> None:
    print(f"{'task':16} {'plain':>9} {'drafts':>9} {'ratio':>6} {'range':>12} {'accepted':>9} {'a step':>7}")
    bench.ask("Hello.", "off", 16)
    for task, questions in TASKS.items():
        ratios, plain, drafted = [], [], []
        usages: list[Usage] = []
        for question in questions:
            pairs = [(bench.ask(question, "off"), bench.ask(question, mode)) for _ in range(rounds)]
            plain.append(statistics.median(without.speed for without, _ in pairs))
            drafted.append(statistics.median(given.speed for _, given in pairs))
            ratios.append(statistics.median(given.speed / without.speed for without, given in pairs))
            usages += [given.usage for _, given in pairs]
        proposed, accepted = (sum(counts) for counts in zip(*map(_counts, usages), strict=True))
        steps = sum(usage.draft_steps for usage in usages)
        print(
            f"{task:16} {statistics.median(plain):5.1f} t/s {statistics.median(drafted):5.1f} t/s "
            f"{statistics.median(ratios):6.2f} {min(ratios):5.2f} - {max(ratios):4.2f} "
            f"{accepted / max(proposed, 1):8.0%} {accepted / max(steps, 1):7.1f}"
        )


def _counts(usage: Usage) -> tuple[int, int]:
    return usage.draft_proposed, usage.draft_accepted


def costs(bench: Bench) -> str:
    """The measured cost curve."""
    session = bench.session
    setting = Setting(session.context.flash, session.context.threads)
    curve = measure_costs(session.model, session.config, setting, lambda: False)
    session.learn_costs(curve)
    return "  ".join(f"{n}: {curve[n - 1]:.2f}" for n in (1, 2, 3, 4, 6, 8, 12, 16)) if curve else "not measured"


def equal(bench: Bench, modes: Sequence[DraftMode]) -> None:
    questions = [question for task in TASKS.values() for question in task]
    questions += [
        f"Write a list of {n} things that {what}." for n, what in ((5, "are round"), (7, "fly"), (9, "float"))
    ]
    for mode in modes:
        same = drafted = accepted = 0
        for question in questions[:20]:
            without, given = bench.ask(question, "off"), bench.ask(question, mode)
            same += without.ids == given.ids
            drafted += given.usage.draft_proposed
            accepted += given.usage.draft_accepted
        print(f"{mode}: {same} of {len(questions[:20])} replies equal; {accepted} of {drafted} drafted tokens stood")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--guess", action="store_true")
    parser.add_argument("--mode", choices=("ngram", "model", "auto"), default="auto")
    parser.add_argument("--draft", help="a draft model, or built-in")
    parser.add_argument("--rounds", type=int, default=3)
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
        bench = Bench(
            EngineConfig(
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
        )
        threads = f"{given.threads} thread{'' if given.threads == 1 else 's'}"
        print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {threads}, {model.name}, cache {cache}")
        if given.equal:
            equal(bench, ("ngram", "model", "auto") if draft else ("ngram", "auto"))
        else:
            print(f"cost of decoding n tokens at once against one: {costs(bench)}")
            if given.guess:
                bench.guess()
            speed(bench, given.mode, given.rounds)
        bench.session.close()


def _silent(_text: str, *, error: bool) -> None:
    """The log of a measurement is not wanted."""


if __name__ == "__main__":
    sys.exit(main())

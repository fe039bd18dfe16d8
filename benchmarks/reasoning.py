"""What it does to answers that reasoning of earlier answers leaves the cells, and nothing is read again for that.

    python benchmarks/reasoning.py [MODEL.gguf] [--template FILE] [--types f16,q8_0]

A chat of ten turns, of which question, reasoning and answer are given, with a template that drops the reasoning of all
answers but the last one. At every token of the answers from the second one on, the model's distribution is compared
with that of the exact history: the conversation that the template makes without the reasoning, read anew. Told are the
mean divergence (Kullback-Leibler, nats) and its 99th percentile, how often the likeliest token is the same, and the
mean negative log likelihood of what was given; of the history as kvchat keeps it ("append": the reasoning leaves,
positions stay, what was computed after it was computed with it), of one that keeps the reasoning, and of the exact one
read in other batches, which is noise. Nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import get_args

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from chat_session import Chat

from kvchat.backend.values import CacheType, EngineConfig, History
from kvchat.engine import llama
from kvchat.engine.divergence import Differences, Logits, differences, joined
from kvchat.engine.past_thoughts import PastThoughts
from kvchat.engine.template import ChatTemplate
from kvchat.kv.fit import OUTPUTS
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths

TEMPLATE = Path(__file__).parents[1] / "tests" / "data" / "templates" / "Qwen-Qwen3-0.6B.jinja"
KEEPING = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
TURNS = (
    (
        "I have 12 apples and give 5 to my neighbour. How many are left?",
        "The person starts with 12 apples. Five of them go to the neighbour. 12 minus 5 is 7. I should say so.",
        "You have 7 apples left.",
    ),
    (
        "My neighbour gives 2 of them back. And now?",
        "There were 7 apples left. Two come back, so I add them: 7 plus 2 is 9.",
        "Now you have 9 apples.",
    ),
    (
        "I want to bake a cake with them. What else do I need?",
        "An apple cake. The usual things are flour, sugar, butter, eggs, baking powder and perhaps cinnamon.",
        "For an apple cake you need flour, sugar, butter, eggs, baking powder and a little cinnamon.",
    ),
    (
        "How long does it have to be in the oven?",
        "A simple apple cake bakes at 180 degrees for about 45 minutes. I can mention the test with a skewer.",
        "Bake it for about 45 minutes at 180 degrees. It is done when a skewer comes out clean.",
    ),
    (
        "If I put it in at half past three, when is it done?",
        "Half past three is 3:30. 45 minutes later it is 4:15, which is a quarter past four.",
        "It is done at a quarter past four.",
    ),
    (
        "Eight people come. How large is a piece for each?",
        "One cake for eight people: each gets an eighth of it. As a part of a hundred that is 12.5 percent.",
        "Each of the eight people gets one eighth of the cake.",
    ),
    (
        "Two of them cannot eat eggs. What can I take instead?",
        "Substitutes for eggs in a cake are apple sauce, a ripe banana, or ground flax seed with water.",
        "Instead of each egg you can take a few spoons of apple sauce or half a ripe banana.",
    ),
    (
        "I have bananas. How many do I need for three eggs?",
        "Half a banana stands for one egg. Three eggs need three halves, which is one and a half bananas.",
        "You need one and a half bananas for three eggs.",
    ),
    (
        "Where should I keep what is left of the cake?",
        "A cake with fruit dries out or spoils when it is warm. In the fridge, covered, it keeps for three days.",
        "Cover it and keep it in the fridge. It stays good for about three days.",
    ),
    (
        "Write one sentence that invites my neighbour.",
        "It should be friendly, name the cake and the time. The cake is done at a quarter past four.",
        "Dear neighbour, please come at half past four and have a piece of apple cake with us.",
    ),
)


Answers = list[tuple[tuple[int, ...], Logits]]


def answers(
    path: Path, template: str, kind: CacheType, history: History, *, keeps: bool = False, piece: int = OUTPUTS
) -> Answers:
    """Of each answer its ids and the logits at them, read in batches of `piece` tokens. `keeps`: reasoning stays."""
    config = EngineConfig(str(path), context=2048, type_k=kind, type_v=kind, threads=1, extra_buffers=False)
    chat = Chat(config, history=history, piece=piece)
    model = chat.session.model
    model.template = ChatTemplate(template, bos=model.bos_text, eos="")
    shown = ChatTemplate(KEEPING, bos="", eos="") if keeps else model.template
    model.past_thoughts = PastThoughts(shown, lambda token: model.native.piece(token, special=True))
    found, left = [], 0
    for question, thought, answer in TURNS:
        finished = chat.ask(question, 0, reply=f"<think>\n{thought}\n</think>\n\n{answer}")
        if finished.reason != "length":
            raise SystemExit(f"a turn ended with {finished.reason}: {finished.failure}")
        left += finished.usage.reasoning_evicted
        ids = chat.messages[-1].ids or ()
        found.append((ids, np.stack(chat.session.logits[-len(ids) - 1 : -1])))
    chat.close()
    if (left > 0) == (keeps or history == "exact"):
        raise SystemExit(f"{left} tokens of reasoning left")
    return found


def compared(exact: Answers, tested: Answers) -> Differences:
    """All answers but the first one."""
    pairs = list(zip(exact, tested, strict=True))
    if any(one[0] != two[0] for one, two in pairs):
        raise SystemExit("the answers have other tokens")
    return joined([differences(one[1], two[1], one[0]) for one, two in pairs[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--template", type=Path, default=TEMPLATE)
    parser.add_argument("--types", default="f16")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = find_models(Paths.find({"KVCHAT_HOME": folder}))
    path, template = options.model, options.template.read_text(encoding="utf-8")
    path = path or next(model.path for model in models if model.source == BUILT_IN)
    llama.start(lambda text, *, error: None)  # noqa: ARG005 (they are passed by name)
    print(f"{processor()}, Python {platform.python_version()}, {path.name}, {options.template.stem}")
    for kind in [each for each in get_args(CacheType) if each in options.types.split(",")]:
        exact = answers(path, template, kind, "exact")
        tell(f"{kind}, exact, in other batches", exact, answers(path, template, kind, "exact", piece=7))
        tell(f"{kind}, reasoning leaves", exact, answers(path, template, kind, "append"))
        tell(f"{kind}, reasoning stays", exact, answers(path, template, kind, "append", keeps=True))


def tell(name: str, exact: Answers, tested: Answers) -> None:
    found = compared(exact, tested)
    print(
        f"{name:<30} {len(found)} tokens  divergence {found.kl.mean():.4f}  99 % {np.quantile(found.kl, 0.99):.3f}"
        f"  same {100 * found.same.mean():.0f} %  NLL {found.nll.mean():.3f}, exact {found.reference_nll.mean():.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""What a model still knows after ten evictions: `facts_probe.py FOLDER POLICY MODEL`, in a context of 256 cells.

One name stands in the system prompt, another one in a pinned message. Prints JSON: how often something left, and of
each question how much larger the logit of the right name is than that of the other.
"""

import json
import random
import sys
from pathlib import Path

from eviction_fuzz import Player, Story
from eviction_probe import text

from kvchat.backend.values import EngineConfig, PromptMessage
from kvchat.engine import llama

EVICTIONS = 10
SYSTEM = "The name of the captain of the ship is Oscar. You are brief."
PINNED = "Please remember this: the name of my cat is Luna."
QUESTIONS = [
    ("What is the name of the captain of the ship?", "The name of the captain of the ship is", " Oscar", " Luna"),
    ("What is the name of my cat?", "The name of your cat is", " Luna", " Oscar"),
]


def score(player, policy, story, question, beginning, right, wrong):
    asked, model = story.copy(), player.session.model
    asked.parts.append((PromptMessage("user", question), ()))
    asked.parts.append((PromptMessage("assistant", beginning), ()))
    player.ask(asked, policy, 1, continued=True)
    first = [model.tokenize(name, special=False)[0] for name in (right, wrong)]
    return float(player.logits[first[0]] - player.logits[first[1]])


def main():
    folder, policy, model = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    llama.start(lambda text, error: None)
    player = Player(
        EngineConfig(model, context=256, threads=1, extra_buffers=False, kv_folder=str(folder), kv_budget=2**34)
    )
    story, rng = Story([(PromptMessage("system", SYSTEM, ()), ())], pinned=(1,)), random.Random(3)
    story.parts.append((PromptMessage("user", PINNED), ()))
    player.ask(story, policy, 5)
    while len(story.log) < EVICTIONS:
        story.parts.append((PromptMessage("user", text(rng, 90)), ()))
        player.ask(story, policy, 5)
    scores = [score(player, policy, story, *question) for question in QUESTIONS]
    player.session.close()
    print(json.dumps({"evictions": len(story.log), "tokens": len(story.ids), "scores": scores}))


if __name__ == "__main__":
    main()

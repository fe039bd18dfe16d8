"""Ten turns with reasoning: `reasoning_probe.py FOLDER TEMPLATE MODEL...`, every model with this chat template.

The reasoning and the beginning of each answer are given, as that of a reply that goes on. Prints JSON: model -> what
every turn computed, what left, how many blocks of reasoning the cells hold then; and what the next turn is in a
session that was reopened, and in one that made the last reply anew.
"""

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from eviction_fuzz import Player, Story
from eviction_probe import text

from kvchat.backend.protocol import Evicted
from kvchat.backend.values import EngineConfig, PromptMessage
from kvchat.engine import llama
from kvchat.engine.past_thoughts import PastThoughts
from kvchat.engine.template import ChatTemplate
from kvchat.formats.past import live

TURNS = 10


def player(config, template):
    made = Player(config)
    model = made.session.model
    model.template = ChatTemplate(template, bos=model.bos_text, eos="")
    model.past_thoughts = PastThoughts(model.template, lambda token: model.native.piece(token, special=True))
    return made


def add_turn(story, rng):
    story.parts.append((PromptMessage("user", text(rng, 8)), ()))
    story.parts.append((PromptMessage("assistant", f"<think>\n{text(rng, 30)}\n</think>\n\n{text(rng, 5)}"), ()))


def one_turn(made, story):
    usage = made.ask(story, "stop", 4, continued=True)[2]
    cells, native = made.session._seat.cells, made.session.model.native
    held = [cells.ids[at] for start, end in live(0, len(cells), cells.memory.holes) for at in range(start, end)]
    shown = b"".join(native.piece(token, special=True) for token in held).decode("utf-8", "replace")
    return {
        "computed": usage.computed,
        "new": sum(len(message.ids) for message in story.messages[-2:]) - 4,
        "gone": sum(event.eviction.tokens for event in made.events if isinstance(event, Evicted)),
        "blocks": shown.count("</think>"),
        "cells": usage.cells,
        "length": len(cells),
    }


def one(model, folder, template):
    config = EngineConfig(
        str(model), context=2048, threads=1, extra_buffers=False, kv_folder=str(folder), kv_budget=2**34
    )
    made, story, rng = player(config, template), Story([]), random.Random(7)
    turns = []
    for _ in range(TURNS):
        add_turn(story, rng)
        turns.append(one_turn(made, story))
    again = reopened(made, config, template, story, rng)
    last = story.copy()
    last.parts.pop()
    anew = made.ask(last, "stop", 4)[2].computed
    made.session.close()
    return {"turns": turns, "anew": anew, "reopened": again}


def reopened(made, config, template, story, rng):
    """The next turn in the session as it stands, and in one that has the same files."""
    copy = shutil.copytree(config.kv_folder, f"{config.kv_folder} as it was")
    other, asked = player(replace(config, kv_folder=str(copy)), template), story.copy()
    add_turn(story, rng)
    asked.parts += story.parts[-2:]
    ids, _, usage = made.ask(story, "stop", 4, continued=True)
    others, _, theirs = other.ask(asked, "stop", 4, continued=True)
    apart = float(np.abs(made.logits - other.logits).max())
    other.session.close()
    return {"apart": apart, "same": ids == others, "computed": [usage.computed, theirs.computed]}


def main():
    folder, template = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
    llama.start(lambda text, error: None)
    print(json.dumps({model.stem: one(model, folder / model.stem, template) for model in map(Path, sys.argv[3:])}))


if __name__ == "__main__":
    main()

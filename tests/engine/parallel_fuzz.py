"""Chats in one context in which anything happens in any order: `parallel_fuzz.py FOLDER SEEDS STEPS MODEL...`.

Turns begin, wait, share cells, are cancelled, give their cells up and have them again. After each quiet moment the
records agree with the cells, every turn has ended once, and in the end what lies in the cells of each chat tells what a
fresh context tells that has read the same. Prints JSON: model -> how often what happened; a traceback where something
does not agree.
"""

import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from kvchat.backend.protocol import Forecast, Generate, PromptReady, TextDelta, TurnFinished, Waits, Warm
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.context import Context, Task
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.engine.step import Step

WORDS = ("the", "harbour", "master", "wrote", "down", "every", "ship", "that", "came", "in", "and", "where")
NOISE = 0.03  # of a logit: batches and places differ; those of these models are about 1
CELLS = 768


class Fuzz:
    """`chats`: messages by name, those that have an answer. `open`: the turn of each chat that goes on."""

    def __init__(self, model, folder, rng):
        self.rng, self.done, self.events = rng, Counter(), []
        self.config = EngineConfig(
            str(model),
            context=CELLS,
            threads=1,
            extra_buffers=False,
            kv_folder=str(folder) if rng.random() < 0.7 else None,
            kv_budget=2**34,
            parallel=rng.choice((2, 3, 4)),
            favour=rng.choice(("answers", "balanced", "prompts")),
        )
        self.interrupt = Interrupt()
        self.session = Session(self.config, self.interrupt, lambda fraction: True, self.events.append)
        self.scheduler = Scheduler(self.session, self.interrupt, self.events.append)
        self.chats, self.open, self.sent, self.ended = {}, {}, {}, Counter()

    def play(self, steps):
        acts = (self.ask, self.ask, self.alternative, self.cancel, self.look, self.go_on, self.go_on, self.settle)
        for _ in range(steps):
            self.rng.choice(acts)()
            self.take()
        self.settle()
        self.prove()
        self.session.close()
        return self.done

    # ------------------------------------------------------------------ what happens

    def text(self, most):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def ask(self):
        name = self.rng.choice("abcdef")
        if name in self.open.values():
            return
        past = list(self.chats.get(name, ()))
        if past and self.rng.random() < 0.2:
            past = past[: 2 * self.rng.randint(0, len(past) // 2)]  # an edit, or a new chat
            self.done["edited"] += 1
        if not past:
            past = [PromptMessage("system", "You are brief. " * self.rng.choice((1, 20)), ())] * self.rng.randint(0, 1)
        self.submit(name, (*past, PromptMessage("user", self.text(60))))

    def submit(self, name, messages, leader=None):
        turn = f"t{len(self.sent)}"
        request = Generate(
            turn,
            messages,
            Sampling(temperature=0.9, seed=self.rng.randrange(99), max_tokens=self.rng.choice((1, 8, 60))),
            keep_kv=self.rng.random() < 0.85,
            draft="off",
            alternative_of=leader,
        )
        self.sent[turn] = request
        if leader is None:
            self.open[turn] = name
        self.scheduler.add(request)
        self.done["asked"] += 1

    def alternative(self):
        if self.open:
            leader = self.rng.choice(list(self.open))
            self.submit("", self.sent[leader].messages, leader)
            self.done["alternatives"] += 1

    def cancel(self):
        running = [turn for turn in self.sent if not self.ended[turn]]
        if running:
            self.interrupt.cancel(self.rng.choice(running))
            self.done["cancelled"] += 1

    def look(self):
        name = self.rng.choice(list(self.chats) or [""])
        if name and name not in self.open.values():
            messages = self.chats[name]
            self.session.warm(Warm("w", tuple(token for message in messages for token in message.ids)))
            self.session.forecast(Forecast("f", (*messages, PromptMessage("user", "And?"))))
            self.done["looked"] += 1

    def go_on(self):
        for _ in range(self.rng.choice((1, 5, 30))):
            self.scheduler.advance()

    def settle(self):
        self.scheduler.run_out()
        self.take()
        self.check()
        self.done["settled"] += 1

    # ------------------------------------------------------------------ what is told

    def take(self):
        events, self.events[:] = list(self.events), []
        self.done["waited"] += sum(isinstance(event, Waits) for event in events)
        self.kept = getattr(self, "kept", [])
        self.kept += [event for event in events if isinstance(event, TextDelta | PromptReady)]
        for event in events:
            if isinstance(event, TurnFinished):
                self.end(event)

    def end(self, event):
        self.ended[event.turn] += 1
        if self.ended[event.turn] > 1:
            raise AssertionError(f"{event.turn} ended twice")
        if event.reason == "error":
            raise AssertionError(f"{event.turn}: {event.failure}")
        usage = event.usage
        self.done["together"] += usage.beside > 0
        self.done["shared"] += usage.shared > 0
        if usage.reused != usage.resident + usage.shared + usage.pages + usage.checkpoint:
            raise AssertionError(f"{event.turn}: {usage}")
        name = self.open.pop(event.turn, None)
        mine = [each for each in self.kept if each.turn == event.turn]
        self.kept = [each for each in self.kept if each.turn != event.turn]
        ready = next((each for each in mine if isinstance(each, PromptReady)), None)
        if name is None or ready is None or event.reason == "context":
            return
        messages = self.sent[event.turn].messages
        known = [replace(message, ids=ids) for message, ids in zip(messages, ready.segments, strict=True)]
        deltas = [each for each in mine if isinstance(each, TextDelta)]
        ids = tuple(token for each in deltas for token in each.ids)
        self.chats[name] = (*known, PromptMessage("assistant", "".join(each.text for each in deltas), ids))

    def check(self):
        seat = self.session.seat
        if seat.taken or [turn for turn in self.sent if not self.ended[turn]]:
            raise AssertionError("a turn goes on after the last one")
        for place in seat.places:
            if place.cells.memory.length != len(place.cells):
                raise AssertionError(f"{len(place.cells)} tokens, {place.cells.memory.length} in the cells")
        if seat.occupied > CELLS:
            raise AssertionError(f"{seat.occupied} cells of {CELLS}")

    def prove(self):
        """What each chat's cells tell next is what a fresh context tells."""
        model = self.session.model
        fresh = Context(model, replace(self.config, parallel=1), Interrupt().stop)
        for place in self.session.seat.places:
            ids = list(place.cells.ids)
            if not ids or self.session.seat.occupied == CELLS:
                continue
            fresh.memory.clear()
            for start in range(0, len(ids), 64):
                fresh.decode(ids[start : start + 64], start, output=0)
            fresh.decode([ids[0]], len(ids), output=1)
            self.session.context.compute([Task(place.track, Step([ids[0]], len(ids), 1))])
            worst = float(np.abs(fresh.logits() - place.track.outputs.logits()).max())
            if worst > NOISE:
                raise AssertionError(f"a chat of {len(ids)} tokens tells something else: {worst}")
            self.done["proved"] += 1
        fresh.close()


def main():
    folder, seeds, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    llama.start(lambda text, error: None)
    found = {}
    for model in map(Path, sys.argv[4:]):
        total = Counter()
        for seed in range(seeds):
            fuzz = Fuzz(model, folder / model.stem / str(seed), random.Random(f"{model.stem} {seed}"))
            try:
                total += fuzz.play(steps)
            except BaseException:
                print(f"{model.stem}, seed {seed}: {dict(fuzz.done)}", file=sys.stderr)
                raise
        found[model.stem] = total
    print(json.dumps(found))


if __name__ == "__main__":
    main()

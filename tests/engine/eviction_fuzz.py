"""Chats in which anything happens in any order: `eviction_fuzz.py FOLDER SEED STEPS MODEL...`.

Turns of any length under any policy, stopped anywhere, made anew, continued, taken back, edited; another chat in
between, other cache types, drafts; the program ended and started. After every step the cells must hold what ids and log
say. Now and then the same turn is asked in a session that was reopened with what is on disk, which must answer the
same, and, in f16, in one that computes the whole past anew. Exit code 1, with a reason and what was done, at once when
something disagrees. Prints JSON: what was done how often.
"""

import json
import random
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from eviction_probe import text

from kvchat.backend.protocol import Evicted, Generate, PromptReady, Restored, TextDelta
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.formats.past import live, resolve, shared

TYPES = ("f16", "q8_0", "q4_0")
POLICIES = ("shift", "sinks", "prune", "sinks", "prune", "stop")
CONTEXTS = (256, 512)
CLOSE = 0.15  # of the spread of logits: two computations of the same in other batches, whose rows are rounded to f16
NOISE = 1e-4  # of it: the check on resume computes one token more, and experts then sum in another order


class Disagreement(Exception):
    """What was found, in words."""


class Countdown(Interrupt):
    """Stops a turn when it was asked so often whether it shall."""

    left: int | None = None

    def __init__(self):
        super().__init__()
        self.stop = self

    def __call__(self):
        if self.left is not None:
            self.left -= 1
        return self._flag() or (self.left is not None and self.left < 0)


@dataclass
class Story:
    """A chat: messages with what was evicted while each was made, and those that are pinned."""

    parts: list = field(default_factory=lambda: [(PromptMessage("system", "You are brief.", ()), ())])
    pinned: tuple = ()

    def copy(self):
        return Story(list(self.parts), self.pinned)

    @property
    def messages(self):
        return tuple(message for message, _ in self.parts)

    @property
    def log(self):
        return tuple(eviction for _, log in self.parts for eviction in log)

    @property
    def ids(self):
        return [token for message in self.messages for token in message.ids or ()]


class Player:
    """A session, and what is asked of it."""

    def __init__(self, config):
        self.config, self.events, self.interrupt = config, [], Countdown()
        self.session = Session(config, self.interrupt, lambda fraction: True, self.events.append)
        self.scheduler = Scheduler(self.session, self.interrupt, self.events.append)

    def ask(self, story, policy, tokens, *, stop_after=None, draft="off", continued=False):
        """The reply to the last message, or its rest, which becomes a part of the story; its ids, reason and usage."""
        self.events.clear()
        self.scheduler.add(
            Generate(
                "turn",
                story.messages,
                Sampling(temperature=0, max_tokens=tokens),
                continue_reply=continued,
                draft=draft,
                evictions=story.log,
                overflow=policy,
                pinned=tuple(number for number in story.pinned if number < len(story.parts)),
            )
        )
        self.interrupt.left = stop_after
        self.scheduler.run_out()
        self.interrupt.left = None
        told = [event for event in self.events if isinstance(event, TextDelta)]
        ids = tuple(token for event in told for token in event.ids)
        words = "".join(event.text for event in told)
        new = tuple(event.eviction for event in self.events if isinstance(event, Evicted))
        segments = next(event.segments for event in self.events if isinstance(event, PromptReady))
        parts = [(replace(part[0], ids=each), part[1]) for part, each in zip(story.parts, segments, strict=True)]
        before, log = parts.pop() if continued else (PromptMessage("assistant", "", ()), ())
        parts.append((PromptMessage("assistant", before.text + words, before.ids + ids), log + new))
        story.parts = parts
        self.check(story, whole=any(isinstance(event, Restored) for event in self.events))
        return ids, self.events[-1].reason, self.events[-1].usage

    def check(self, story, *, whole):
        """The cells hold their record, and that is the beginning of the story."""
        cells = self.session._seat.cells
        memory, past = cells.memory, cells.past
        wanted = [at for start, end in live(0, len(cells), memory.holes) for at in range(start, end)]
        if memory.length != len(cells) or cells.live != len(wanted) or cells.live > self.session.context.cells:
            raise Disagreement(f"{len(cells)} tokens, {memory.length} in the cells, {cells.live} live of {len(wanted)}")
        rows = memory.live_rows("full")
        if rows is not None and list(rows.positions) != wanted:
            raise Disagreement(f"the cells hold {list(rows.positions)}, wanted {wanted}")
        told, _ = resolve(story.ids, story.log)
        if not past.root:  # of what was moved something was not to be had: it is computed anew
            told = told.anew
        if whole and len(cells) and shared(past, told) != (len(cells), len(past.evictions)):
            raise Disagreement(f"{shared(past, told)} shared of {len(cells)}: {past.evictions} and {told.evictions}")

    @property
    def logits(self):
        return self.session.context.logits().copy()


class Fuzz:
    def __init__(self, model, folder, rng):
        self.rng, self.folder, self.done, self.words = rng, folder, Counter(), []
        self.types = TYPES if rng.random() < 0.6 else TYPES[:1]
        self.base = EngineConfig(
            str(model), threads=1, extra_buffers=False, kv_folder=str(folder / "kv"), kv_budget=2**34, context=512
        )
        self.player = Player(self.any_config())
        self.stories = [Story(), Story()]

    @property
    def story(self):
        return self.stories[0]

    def any_config(self):
        kind = self.rng.choice(self.types)
        return replace(self.base, type_k=kind, type_v=kind, context=self.rng.choice(CONTEXTS))

    def step(self):
        moves = [self.send] * 8 + [self.regenerate] * 2 + [self.resume] * 2
        moves += [
            self.edit,
            self.take_back,
            self.reopen,
            self.configure,
            self.switch,
            self.pin,
            self.compare,
            self.compare,
        ]
        move = self.rng.choice(moves)
        self.words.append(move.__name__)
        move()
        self.done[move.__name__] += 1

    def turn(self, *, continued=False):
        rng, policy = self.rng, self.rng.choice(POLICIES)
        stop_after = rng.choice([None, None, rng.randrange(400), rng.randrange(8000)])
        tokens = rng.choice([0, 1, 5, rng.randrange(40), rng.randrange(200)])
        draft = rng.choice(["off", "off", "ngram"])
        config = self.player.config
        self.words[-1] += f"({policy}, {tokens}, {stop_after}, {draft}, {config.type_k}, {config.context})"
        before = len(self.story.log)
        ids, reason, usage = self.player.ask(
            self.story, policy, tokens, stop_after=stop_after, draft=draft, continued=continued
        )
        failure = self.player.events[-1].failure
        self.words[-1] += f" -> {len(ids)} {reason}"
        self.done[reason] += 1
        self.done["evictions"] += len(self.story.log) - before
        self.done["renumbered"] += any(each.root for each in self.story.log[before:])
        if reason == "error" or usage.save_problem:
            raise Disagreement(f"{failure} {usage.save_problem}")
        if failure is not None:  # too long: a person takes that back
            self.story.parts = self.story.parts[:-1] if continued else self.story.parts[:-2]
            if continued:
                self.story.parts = self.story.parts[:1]

    def question(self, story):
        count = self.rng.choice([1, 10, 30, self.rng.randrange(1, 120)])
        story.parts.append((PromptMessage("user", text(self.rng, count)), ()))

    def send(self):
        self.question(self.story)
        self.turn()

    def regenerate(self):
        if len(self.story.parts) > 2:
            self.story.parts.pop()
            self.turn()

    def resume(self):
        if len(self.story.parts) > 2:
            self.turn(continued=True)

    def edit(self):
        if len(self.story.parts) > 2:
            self.story.parts = self.story.parts[: self.rng.randrange(1, len(self.story.parts) - 1, 2)]
            self.send()

    def take_back(self):
        if len(self.story.parts) > 2:
            self.story.parts = self.story.parts[:-2]

    def switch(self):
        self.stories.reverse()

    def pin(self):
        self.story.pinned = tuple(sorted(self.rng.sample(range(1, 8), self.rng.randrange(3))))

    def reopen(self):
        self.player.session.close()
        self.player = Player(self.player.config)

    def configure(self):
        config = self.any_config()
        self.player.session.configure(config)
        self.player.config = config

    def compare(self):
        """A turn here, in a session that was reopened, and in one that has nothing on disk."""
        asked, policy = self.story.copy(), self.rng.choice(POLICIES)
        self.question(asked)
        copy = shutil.copytree(
            self.folder / "kv", self.folder / f"copy{len(self.words)}", ignore_dangling_symlinks=True
        )
        others = [replace(self.player.config, kv_folder=str(copy))]
        if len(self.types) == 1 and policy != "prune" and not any(each.root for each in asked.log):
            others.append(replace(self.player.config, kv_folder=None))
        stories = [asked.copy() for _ in others]
        here = self.player.ask(asked, policy, 4)
        failed = self.player.events[-1].failure
        logits = None if failed else self.player.logits
        for config, story in zip(others, stories, strict=True):
            other = Player(config)
            there = other.ask(story, policy, 4)
            if config.kv_folder is None and other.events[-1].failure is not None:
                self.done["too long anew"] += 1  # the log is that of a larger context
            elif failed is None and other.events[-1].failure is not None:
                raise Disagreement(f"{here} and {there}: {other.events[-1].failure}, {story.log}")
            elif failed is None:
                self.judge(
                    here, there, np.abs(logits - other.logits).max() / logits.std(), config.kv_folder is not None
                )
            elif there[1] != here[1]:
                raise Disagreement(f"{here} and {there}")
            other.session.close()
        shutil.rmtree(copy)
        if failed is None:
            self.stories[0] = asked

    def judge(self, here, there, apart, reopened):
        (ids, reason, usage), (others, other_reason, other) = here, there
        told = f"{ids} {reason} {usage} and {others} {other_reason} {other}"
        same_work = usage.computed == other.computed
        self.done[f"{'reopened' if reopened else 'anew'}{' alike' if same_work else ''}"] += 1
        if reopened and same_work and (ids != others or apart > NOISE):
            raise Disagreement(f"reopened, {apart} apart: {told}")
        if not reopened and ids == others and apart > CLOSE:
            raise Disagreement(f"{apart} apart: {told}")


def main():
    folder, seed, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    llama.start(lambda text, error: None)
    done = {}
    for model in map(Path, sys.argv[4:]):
        fuzz = Fuzz(model, folder / f"{model.stem} {seed}", random.Random(f"{model.stem} {seed}"))
        try:
            for _ in range(steps):
                fuzz.step()
        except Exception:
            print(model.stem, seed, *fuzz.words[-30:], sep="\n", file=sys.stderr)
            raise
        fuzz.player.session.close()
        done[model.stem] = fuzz.done
    print(json.dumps(done))


if __name__ == "__main__":
    main()

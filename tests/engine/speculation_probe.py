"""Replies with and without drafts, in sessions of this process: `speculation_probe.py SCENE FOLDER MODEL...`.

The drafter is an oracle: it knows the reply that comes without drafts, and drafts it with one wrong token, now at this
place of the draft, now at that, so that everything from no token to all of them stands. Prints JSON: model name -> what
the scene told.
"""

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from kvchat.backend.protocol import Generate, PromptReady, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.draft_control import DraftControl
from kvchat.engine.draft_costs import CostCurve
from kvchat.engine.drafting import Draft, Reach
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.errors import KvchatError

STORY = "Once there was a cell that remembered every key it was given, and it was asked for them again. "
TOKENS = 60
INVARIANT = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}


class Eager(DraftControl):
    """Every draft is used, as long as it may be, whatever it costs."""

    wants_plain = False

    def length(self, kind, trust, most, *, drafted=False):
        return most


class Oracle:
    """Drafts what was said without drafts, with a wrong token in it."""

    kind, pair, share, read_seconds = "ngram", "", 0.0, 0.0

    def __init__(self, told, vocabulary, before=lambda calls: None):
        self.told, self.vocabulary, self.calls, self.before = told, vocabulary, 0, before

    def reach(self, ids):
        return Reach(len(ids))

    def evicted(self, log):
        pass

    def begin(self, ids):
        self.start = len(ids) - 1

    def behind(self, ids):
        return 0

    def draft(self, ids, most):
        self.before(self.calls)
        at = len(ids) - self.start
        right = [*self.told[at : at + most], *[7] * most][:most]
        wrong = self.calls % (most + 1)
        self.calls += 1
        return Draft(tuple((t + 1) % self.vocabulary if i == wrong else t for i, t in enumerate(right)))

    def finish(self, ids):
        self.finished = list(ids)

    def close(self):
        pass


class Guesser(Oracle):
    """Drafts anything."""

    def draft(self, ids, most):
        self.before(self.calls)
        self.calls += 1
        return Draft(tuple((31 * self.calls + 17 * i) % self.vocabulary for i in range(most)))


class LateInterrupt(Interrupt):
    """Once armed it cancels when a decode has begun: that is broken off, or the last one where it must be whole."""

    armed = False

    def decoding(self):
        if self.armed:
            self._flag.set(True)

    def is_cancelled(self, turn):
        return super().is_cancelled(turn) or (self.armed and self._flag())


class Chat:
    """A session, asked turn by turn."""

    def __init__(self, model, folder, **config):
        config = {"context": 1024, "threads": 1, "extra_buffers": False, "kv_folder": str(folder)} | config
        self.interrupt = LateInterrupt()
        self.events = []
        self.session = Session(EngineConfig(str(model), **config), self.interrupt, lambda _: True, self.emit)
        self.native = self.session.model.native
        context = self.session.seat.context.native
        self._decode_runs, context.decode_runs = context.decode_runs, self.decode_runs
        self.messages = [PromptMessage("user", STORY * 2)]
        self.watch = lambda event: None

    def emit(self, event):
        self.events.append(event)
        self.watch(event)

    def decode_runs(self, runs):
        self.interrupt.decoding()
        return self._decode_runs(runs)

    def oracle(self, told, before=lambda calls: None, drafter=Oracle):
        speculation = self.session._speculation
        speculation.control = Eager(CostCurve())
        speculation.lookup = drafter(told, self.native.vocab_size, before)
        return speculation.lookup

    def ask(self, *, draft, sampling):
        self.events.clear()
        scheduler = Scheduler(self.session, self.interrupt, self.emit)
        scheduler.add(Generate("t", tuple(self.messages), sampling, draft=draft))
        scheduler.run_out()
        deltas = [event for event in self.events if isinstance(event, TextDelta)]
        finished = next(event for event in self.events if isinstance(event, TurnFinished))
        told = {
            "ids": [token for delta in deltas for token in delta.ids],
            "text": "".join(delta.text for delta in deltas),
            "reason": finished.reason,
            "failure": str(finished.failure),
            "prompt": [t for e in self.events if isinstance(e, PromptReady) for part in e.segments for t in part],
        }
        return told | asdict(finished.usage)

    def go_on(self, first):
        """A second question without drafts, and the logits that its answer ends with."""
        self.messages = [
            PromptMessage("user", STORY * 2, tuple(first["prompt"])),
            PromptMessage("assistant", first["text"], tuple(first["ids"])),
            PromptMessage("user", "Why?"),
        ]
        told = self.ask(draft="off", sampling=Sampling(temperature=0, max_tokens=6))
        return told | {"logits": self.session.context.logits().tobytes().hex()[:4096]}

    def gap(self, prompt, ids, other):
        """By how much the first of `ids` that `other` has not was preferred, when it is computed token by token."""
        at = next((i for i, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), None)
        if at is None:
            return 0.0
        context = self.session.context
        context.memory.clear()
        for start in range(0, len(prompt), 64):
            context.decode(prompt[start : start + 64], start, output=1)
        for i, token in enumerate(ids[:at]):
            context.decode([token], len(prompt) + i, output=1)
        logits = context.logits()
        return float(logits.max() - logits[other[at]])

    def close(self):
        self.session.close()


def kinds(model, folder):
    """With and without drafts, and what comes after it, from the same cells and from the disk."""
    sampling = Sampling(temperature=0, max_tokens=TOKENS)
    chat = Chat(model, folder / "kv")
    plain = chat.ask(draft="off", sampling=sampling)
    chat.close()
    chat = Chat(model, folder / "kv2")
    chat.oracle(plain["ids"])
    drafted = chat.ask(draft="ngram", sampling=sampling)
    shutil.copytree(folder / "kv2", folder / "kv3")
    stayed = chat.go_on(drafted)
    chat.close()
    chat = Chat(model, folder / "kv3")
    resumed = chat.go_on(drafted)
    gap = chat.gap(plain["prompt"], plain["ids"], drafted["ids"])
    chat.close()
    return {"plain": plain, "drafted": drafted, "gap": gap, "stayed": stayed, "resumed": resumed}


def sampled(model, folder):
    """The same seed with and without drafts, where batch shapes make no difference; penalties count, too."""
    told = []
    chat = Chat(model, folder / "kv", **INVARIANT)
    for seed in range(6):
        sampling = Sampling(temperature=1.0, seed=seed, repeat_penalty=1.2, max_tokens=40)
        plain = chat.ask(draft="off", sampling=sampling)
        chat.oracle(plain["ids"])
        told.append([plain, chat.ask(draft="ngram", sampling=sampling)])
    chat.close()
    return told


def endings(model, folder):
    """Every way for a reply to end while a draft goes on beyond it, with what was said without drafts."""
    told = {}
    chat = Chat(model, folder / "kv", **INVARIANT, context=256)
    free = chat.ask(draft="off", sampling=Sampling(temperature=0, max_tokens=TOKENS))
    ends = chat.native.ends_generation

    def both(name, **sampling):
        sampling = Sampling(**({"temperature": 0} | sampling))
        plain = chat.ask(draft="off", sampling=sampling)
        chat.oracle(free["ids"])
        told[name] = [plain, chat.ask(draft="ngram", sampling=sampling)]

    for limit in range(1, 18, 2):
        both(f"limit {limit}", max_tokens=limit)
    for at in range(3, 24, 3):
        text = b"".join(chat.native.piece(token) for token in free["ids"][at : at + 2]).decode("utf-8", "replace")
        both(f"stop {at}", max_tokens=TOKENS, stop=(text[1:4],))
    for at in range(1, 12, 2):
        chat.native.ends_generation = lambda token, last=free["ids"][at]: token == last
        both(f"end {at}", max_tokens=TOKENS)
    chat.native.ends_generation = ends
    both("context")
    chat.close()
    return told


def cancels(model, folder):
    """A cancel while a draft is made, and while it is checked: what is told then, and what comes after."""
    sampling = Sampling(temperature=0, max_tokens=TOKENS)
    chat = Chat(model, folder / "kv")
    plain = chat.ask(draft="off", sampling=sampling)
    told = []
    for call in range(1, 13):
        chat.messages = [PromptMessage("user", STORY * 2)]

        def cancel(calls, call=call):
            if calls == call // 2 and call % 2:
                chat.interrupt.cancel("t")
            elif calls == call // 2:
                chat.interrupt.armed = True

        oracle = chat.oracle(plain["ids"], before=cancel)
        half = chat.ask(draft="ngram", sampling=sampling)
        chat.interrupt.armed = False
        told.append([half, chat.go_on(half), oracle.finished])
    chat.close()
    chat = Chat(model, folder / "kv")
    after = chat.go_on(half)
    chat.close()
    return {"plain": plain, "cancelled": told, "resumed": after}


def equal(model, folder):
    """Greedy replies where batch shapes make no difference: without drafts, with the lookup, an oracle, a guesser."""
    told = []
    chat = Chat(model, folder / "kv", **INVARIANT)
    lookup = chat.session._speculation.lookup
    for question in ("Repeat this: " + STORY,):
        chat.messages = [PromptMessage("user", question)]
        sampling = Sampling(temperature=0, max_tokens=24)
        replies = [chat.ask(draft="off", sampling=sampling)]
        for drafter in (Oracle, Guesser):
            chat.oracle(replies[0]["ids"], drafter=drafter)
            replies.append(chat.ask(draft="ngram", sampling=sampling))
        chat.session._speculation.lookup = lookup
        told.append([*replies, chat.ask(draft="ngram", sampling=sampling)])
    chat.close()
    return told


def failures(model, folder):
    """A drafter that fails when it begins, and one that fails at its third draft."""
    sampling = Sampling(temperature=0, max_tokens=24)
    chat = Chat(model, folder / "kv", **INVARIANT)
    told = [chat.ask(draft="off", sampling=sampling)]

    def fail(*_):
        raise KvchatError("it broke", "")

    chat.oracle(told[0]["ids"]).begin = fail
    told.append(chat.ask(draft="ngram", sampling=sampling))
    chat.oracle(told[0]["ids"], before=lambda calls: calls == 2 and fail())
    told.append(chat.ask(draft="ngram", sampling=sampling))
    chat.close()
    return told


def main():
    llama.start(lambda text, error: None)
    scene, folder = globals()[sys.argv[1]], Path(sys.argv[2])
    print(json.dumps({Path(name).stem: scene(Path(name), folder / Path(name).stem) for name in sys.argv[3:]}))


main()

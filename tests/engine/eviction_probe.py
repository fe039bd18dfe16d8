"""A chat that outgrows its context: `eviction_probe.py FOLDER POLICY TYPE MODEL...`, in a context of 512 cells.

For each model: twelve turns, then one more in the chat as it stands, and in one that was reopened with what is on disk;
a turn that evicts and is taken back; one without any of the evictions; two turns without a page of what was moved; and
what is found for a chat whose evicted text is another. After every turn the cells must hold what the log says, in
position order.
Prints JSON: model -> what was told. Exit code 1, with a reason, at once when the cells disagree.
"""

import json
import random
import shutil
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from kvchat.backend.protocol import Evicted, Generate, PromptReady, TextDelta
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.formats.past import READ, live, resolve
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex

CONTEXT = 512
WORDS = [
    *("the", "harbour", "master", "keeps", "three", "ledgers", "and", "the", "lamp", "burns", "at", "night"),
    *("while", "ships", "bring", "salt", "iron", "and", "wine"),
]
TURNS = [(20, 90), (60, 5), (9, 150), (40, 60), (70, 5), (20, 120), (60, 5), (9, 100), (30, 30), (60, 5)]
TURNS += [(20, 90), (9, 5)]


class Chat:
    """A chat, and the session that it is in. `draft` as in Generate."""

    def __init__(self, model, folder, policy="stop", context=CONTEXT, draft="off", **config):
        config = EngineConfig(
            str(model),
            context=context,
            threads=1,
            extra_buffers=False,
            kv_folder=str(folder),
            kv_budget=2**34,
            **config,
        )
        self.model, self.events = model, []
        interrupt = Interrupt()
        self.session = Session(config, interrupt, lambda fraction: True, self.events.append)
        self.scheduler = Scheduler(self.session, interrupt, self.events.append)
        self.policy, self.draft = policy, draft
        self.messages = [PromptMessage("system", "You are brief.", ())]
        self.log = ()
        self.pinned = ()
        self.before = None

    def goes_on_as(self, other):
        self.messages, self.log, self.pinned = other.messages, other.log, other.pinned
        return self

    def ask(self, words, tokens):
        """One turn; its usage and the ids of the reply."""
        self.events.clear()
        self.before = self.messages, self.log
        messages = (*self.messages, PromptMessage("user", words))
        sampling = Sampling(temperature=0, max_tokens=tokens)
        log = {"evictions": self.log, "overflow": self.policy, "pinned": self.pinned}
        self.scheduler.add(Generate("turn", messages, sampling, draft=self.draft, **log))
        self.scheduler.run_out()
        told = [event for event in self.events if isinstance(event, TextDelta)]
        ids = tuple(token for event in told for token in event.ids)
        segments = next(event.segments for event in self.events if isinstance(event, PromptReady))
        self.log += tuple(event.eviction for event in self.events if isinstance(event, Evicted))
        self.messages = [replace(each, ids=ids) for each, ids in zip(messages, segments, strict=True)]
        self.messages.append(PromptMessage("assistant", "".join(event.text for event in told), ids))
        self.check_cells()
        self.reason, self.failure = self.events[-1].reason, self.events[-1].failure
        return self.events[-1].usage, ids

    def undo(self):
        self.messages, self.log = self.before

    def check_cells(self):
        cells = self.session._seat.cells
        memory = cells.memory
        wanted = [position for start, end in live(0, len(cells), memory.holes) for position in range(start, end)]
        rows = memory.live_rows("full")
        past, _ = resolve([token for each in self.messages for token in each.ids], self.log)
        if not cells.past.root:  # of what was moved something was not to be had: it is computed anew
            past = past.anew
        same = (cells.past.evictions, cells.past.root) == (past.evictions, past.root)
        if not same or memory.length != len(cells) or cells.live != len(wanted):
            raise SystemExit(f"{len(cells)} tokens, {memory.length} in the cells, {cells.live} live of {len(wanted)}")
        if rows is not None and list(rows.positions) != wanted:
            raise SystemExit(f"the cells hold {list(rows.positions)}, wanted {wanted}")

    @property
    def logits(self):
        return self.session.context.logits()

    def close(self):
        self.session.close()


def text(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def one(model, folder, policy, kind):
    chat, rng = Chat(model, folder, policy, type_k=kind, type_v=kind), random.Random(5)
    turns = []
    for words, tokens in TURNS:
        usage, _ = chat.ask(text(rng, words), tokens)
        turns.append({**asdict(usage), "reason": chat.reason})
    told = {
        "turns": turns,
        "log": [[each.at, each.tokens, bool(each.root)] for each in chat.log],
        "new": new_tokens(chat),
        "again": again(chat, folder, text(rng, 20), kind),
        "undone": undone(model, folder, policy, kind),
        "taken back": all_taken_back(chat, folder.with_name(f"{folder.name} as it was"), text(rng, 20), kind),
        "moved": without_moved(chat, folder.with_name(f"{folder.name} as it was"), rng, kind),
        "stranger": stranger(chat, folder.with_name(f"{folder.name} as it was"), text(rng, 20), kind),
    }
    chat.close()
    return told


def new_tokens(chat):
    """Tokens of the user's part of each turn, and those of the reply."""
    return [len(each.ids) for each in chat.messages[1:]]


def again(chat, folder, words, kind):
    """The next turn in the chat as it stands, and in one that has the same files."""
    copy = shutil.copytree(folder, folder.with_name(f"{folder.name} as it was"))
    other = Chat(chat.model, copy, chat.policy, type_k=kind, type_v=kind).goes_on_as(chat)
    here, ids = chat.ask(words, 8)
    logits = chat.logits
    there, others = other.ask(words, 8)
    same = ids == others and other.log == chat.log and bool(np.array_equal(logits, other.logits))
    other.close()
    return {"here": asdict(here), "there": asdict(there), "same": same}


def stranger(chat, folder, words, kind):
    """What is found for a chat with the same log of which all is the same but one token, which was the first to leave:
    tokens that come back, and those in front of that one."""
    place = at = chat.log[0].ranges[0][0]
    other = Chat(chat.model, folder, chat.policy, type_k=kind, type_v=kind).goes_on_as(chat)
    for number, message in enumerate(chat.messages):
        if at < len(message.ids):
            ids = (*message.ids[:at], message.ids[at] ^ 1, *message.ids[at + 1 :])
            other.messages = [*chat.messages[:number], replace(message, ids=ids), *chat.messages[number + 1 :]]
            break
        at -= len(message.ids)
    usage, _ = other.ask(words, 1)
    other.close()
    return {"reused": usage.reused, "same": place, "computed": usage.computed, "tokens": usage.prompt_tokens}


def without_moved(chat, folder, rng, kind):
    """Two turns of a chat whose first page of moved rows is gone, each in a session of its own; None: no rows were
    moved. What they computed, the key that their history begins with, and how many pages come right after that of what
    was moved, before and afterwards."""
    roots = [each.root for each in chat.log if each.root not in ("", READ)]
    if not roots:
        return None
    told, root = [], bytes.fromhex(roots[-1])
    there = [row for row in pages_in(folder) if row.parent == root]
    for row in there:
        (folder / "pages" / row.namespace / row.key.hex()[:2] / row.key.hex()).unlink()
    before = chat
    for _ in range(2):
        other = Chat(chat.model, folder, chat.policy, type_k=kind, type_v=kind).goes_on_as(before)
        usage, _ = other.ask(text(rng, 10), 4)
        new, begins = len(other.messages[-2].ids), other.session._seat.cells.past.root.hex()
        told.append({"computed": usage.computed, "new": new, "tokens": usage.prompt_tokens, "root": begins})
        other.close()
        before = other
    return {"turns": told, "pages": [len(there), sum(row.parent == root for row in pages_in(folder))]}


def pages_in(folder):
    with closing(PageIndex(PageFolder(folder))) as index:
        return index.rows()


def undone(model, folder, policy, kind):
    """Two turns, a third one that evicts and is taken back, another third one; and that without what was taken back."""
    rng, results = random.Random(11), []
    first, second, third = text(rng, 25), text(rng, 25), text(rng, 20)
    for undo in (True, False):
        chat = Chat(model, folder.with_name(f"{folder.name} undo {undo}"), policy, type_k=kind, type_v=kind)
        for words in (first, second):
            chat.ask(words, 20)
        if undo:
            chat.ask(text(rng, 60), 150)
            if not chat.log:
                raise SystemExit("nothing was evicted")
            chat.undo()
        chat.policy = "stop"
        usage, ids = chat.ask(third, 8)
        results.append((ids, chat.logits, usage))
        chat.close()
    (ids, logits, usage), (others, plain, other) = results
    same = ids == others and bool(np.array_equal(logits, plain))
    return {"same": same, "reused": usage.reused, "wanted": other.reused, "cuts": [usage.cut, other.cut]}


def all_taken_back(chat, folder, words, kind):
    """The next turn without any of the evictions, in a context that has room for all."""
    other = Chat(chat.model, folder, "stop", context=4096, type_k=kind, type_v=kind).goes_on_as(chat)
    other.log = ()
    usage, _ = other.ask(words, 4)
    other.close()
    return {"reused": usage.reused, "wanted": chat.log[0].at, "cut": usage.cut}


def main():
    folder, policy, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    llama.start(lambda text, error: None)
    models = [Path(model) for model in sys.argv[4:]]
    print(json.dumps({model.stem: one(model, folder / model.stem, policy, kind) for model in models}))


if __name__ == "__main__":
    main()

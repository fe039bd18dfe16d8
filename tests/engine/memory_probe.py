"""Restores that fail half-way, and cuts: `memory_probe.py MODEL OTHER_MODEL`.

Prints JSON: how many bad blobs of each kind were refused and left a chat that is empty and as good as new; to how many
tokens back the chat could be cut; the sizes of batches that were broken off and spoilt the chat. Exit code 1, with a
reason, at once when something else happens.
"""

import json
import sys
from collections import Counter

import numpy as np

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Aborted, Context
from kvchat.engine.interrupt import Flag
from kvchat.engine.memory import CHAT
from kvchat.engine.model import Model
from kvchat.errors import KvchatError

TOKENS = np.random.default_rng(3).integers(10, 500, 300).tolist()
CUTS = 40


class Probe:
    def __init__(self, path, **config):
        self.config = EngineConfig(path, context=1024, threads=1, extra_buffers=False, **config)
        self.model = Model(self.config, lambda fraction: True)
        self.stop = Flag()
        self.context = Context(self.model, self.config, self.stop)
        self.memory = self.context.memory

    def fill(self, tokens, start=0):
        for at in range(start, len(tokens), 128):
            self.context.decode(tokens[at : at + 128], at, output=True)
        return self.context.logits()

    def blob(self, *, partial=False):
        return bytearray(self.context.native.state(CHAT, partial=partial))


def refused(put, blob):
    try:
        return put(memoryview(blob)) is False
    except KvchatError:
        return True


def main():
    llama.start(lambda text, error: None)
    subject, other = Probe(sys.argv[1]), Probe(sys.argv[2])
    memory = subject.memory
    fresh = subject.fill(TOKENS[:200])
    whole, partial = subject.blob(), subject.blob(partial=True)
    told = Counter()

    def check(name, put, blob):
        if not refused(put, blob):
            raise SystemExit(f"{name}: a blob of {len(blob)} of {len(whole)} bytes was accepted")
        if memory.length or memory.spoilt:
            raise SystemExit(f"{name}: {memory.length} tokens are left")
        told[name] += 1

    def good_as_new(name):
        if not np.array_equal(subject.fill(TOKENS[:200]), fresh):
            raise SystemExit(f"{name}: the next prompt is computed otherwise")

    for size in np.linspace(8, len(whole) - 1, CUTS).astype(int):
        check("cut", lambda blob: memory.replace(blob, 200), whole[:size])
    good_as_new("cut")
    if memory.recurrent:
        for size in np.linspace(8, len(partial) - 1, CUTS).astype(int):
            subject.fill(TOKENS[:200], memory.length)
            check("rewind", lambda blob: memory.rewind(blob, 200), partial[:size])
        good_as_new("rewind")
    other.fill(TOKENS[:200])
    check("other model", lambda blob: memory.replace(blob, 200), other.blob())
    good_as_new("other model")
    if subject.model.geometry.cache and subject.model.geometry.refusal("q8_0", "q8_0", "on") is None:
        quantized = Probe(sys.argv[1], type_k="q8_0", type_v="q8_0")
        quantized.fill(TOKENS[:200])
        check("other type", lambda blob: memory.replace(blob, 200), quantized.blob())
        good_as_new("other type")
    if not memory.recurrent and not memory.window:
        for size in np.linspace(8, len(whole) - 1, CUTS).astype(int):
            if not refused(memory.append, whole[:size]) or memory.length != 200:
                raise SystemExit("append: the chat is not as it was")
            told["append"] += 1
        again = subject.fill(TOKENS, 200)
        memory.clear()
        subject.fill(TOKENS[:200])
        if not np.array_equal(subject.fill(TOKENS, 200), again):
            raise SystemExit("append: the chat goes on otherwise")
    print(json.dumps(told | {"back": cuts(subject), "spoilt": broken_off(subject)}))


def broken_off(subject):
    """Which batches, ended in the middle, leave a memory that says that it is spoilt. One that does not has to go on as
    if nothing had happened, and one that is has to come back from a snapshot."""
    memory = subject.memory
    spoilt = []
    for size in (2, 5, 8, 9, 40):
        memory.clear()
        subject.fill(TOKENS[:128])
        snapshot = memory.snapshot()
        subject.stop.set(True)
        try:
            subject.context.decode(TOKENS[200 : 200 + size], 128, output=True)
            raise SystemExit(f"{size} tokens were not broken off")
        except Aborted:
            subject.stop.set(False)
        if memory.spoilt:
            spoilt.append(size)
            if memory.length or not memory.rewind(snapshot, 128):
                raise SystemExit(f"{size} tokens broken off: no way back to the snapshot")
        if memory.length != 128:
            raise SystemExit(f"{size} tokens broken off: {memory.length} are left")
        check_continuation(subject, 128)
    return spoilt


def cuts(subject):
    """To how many tokens back, of those tried, the chat could be cut after a batch of 12. Whatever the memory says it
    can do has to be right; after one token at a time a recurrent state never goes back."""
    memory = subject.memory
    possible = []
    for back in (1, 3, 8, 11, 12, 40):
        memory.clear()
        subject.fill(TOKENS[:128])
        subject.context.decode(TOKENS[128:140], 128, output=True)
        could = memory.can_truncate(140 - back)
        if memory.truncate(140 - back) != could:
            raise SystemExit(f"back {back}: can_truncate said {could}")
        if could:
            possible.append(back)
            check_continuation(subject, 140 - back)
    memory.clear()
    subject.fill(TOKENS[:128])
    for at in range(128, 132):
        subject.context.decode([TOKENS[at]], at, output=True)
    if memory.recurrent and memory.truncate(130):
        raise SystemExit("a recurrent state went back over single tokens")
    return possible


def check_continuation(subject, length):
    """The next token's logits are those of a chat that never was longer, but for the noise of another batch shape."""
    subject.context.decode([TOKENS[length]], length, output=True)
    here = subject.context.logits()
    subject.memory.clear()
    subject.fill(TOKENS[:length])
    subject.context.decode([TOKENS[length]], length, output=True)
    if np.abs(here - subject.context.logits()).max() > 0.02:
        raise SystemExit(f"cut to {length}: the next token is computed from something else")


main()

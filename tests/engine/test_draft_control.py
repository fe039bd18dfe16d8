"""The control of drafts, in a world of plain numbers: what drafts cost and how often they stand is known here."""

from __future__ import annotations

import json
import random

import pytest

from kvchat.backend.protocol import Generate
from kvchat.backend.values import Usage
from kvchat.engine.acceptance import ANY, Acceptance
from kvchat.engine.draft_control import DraftControl, Outcome
from kvchat.engine.draft_costs import MOST_TOKENS, CostCurve, complete
from kvchat.engine.drafting import Draft, Reach
from kvchat.engine.speculate import NO_MODEL, PAUSED, Drafts

PLAIN = 0.05  # seconds of a plain step
# As measured with F16 weights, and with Q4_1 weights, on CPUs; and a machine on which checking is free.
CHEAP = complete({2: 1.2, 4: 1.5, 8: 2.0, 16: 3.2})
DEAR = complete({2: 1.5, 4: 2.9, 8: 4.5, 16: 8.0})
FREE = (1.0,) * MOST_TOKENS


class World:
    """A model that takes `curve` and a drafter whose tokens are right with probability `right(position)`."""

    kind, pair, share, read_seconds = "ngram", "", 0.2, 0.0

    def __init__(self, curve, right, *, kind="ngram", drafting=0.0, trust=5, known=None, noise=0.0, seed=0):
        self.kind, self.curve, self.right, self.trust, self.drafting = kind, curve, right, trust, drafting
        self.random = random.Random(seed)
        self.control = DraftControl(CostCurve(curve if known is None else known))
        self.noise = noise
        self.ids = [0] * 10
        self.clock = self.plain_clock = 0.0
        self.asked = 0

    def reach(self, ids):
        return Reach(len(ids))

    def begin(self, ids):
        pass

    def behind(self, ids):
        return 0

    def draft(self, ids, most):
        self.asked += most
        return Draft(tuple(1 for _ in range(most)), self.trust)

    def finish(self, ids):
        pass

    def turn(self, tokens, *, mode="auto", memory=None):
        """A reply of so many tokens; the drafts of the turn. A right token is 1, a wrong one 0."""
        self.control.begin(memory, forced=mode != "auto", share=self.share)
        drafts = Drafts(Generate("t", (), draft=mode), [self], self.control, lambda token: token == 9)
        end = len(self.ids) + tokens
        while len(self.ids) < end:
            before = self.asked
            draft = drafts.next(self.ids, end - len(self.ids) - 1)
            if self.drafting:  # the seconds are told, not taken
                spent = self.drafting * (self.asked - before)
                self.clock += spent
                if self.asked > before:
                    self.control.drafted(self.kind, self.asked - before, spent)
            seconds = PLAIN * self.curve[len(draft)] * self.random.uniform(1, 1 + self.noise)
            self.clock += seconds
            stood = 0
            while stood < len(draft) and self.random.random() < self.right(len(self.ids)):
                self.ids.append(1)
                stood += 1
            self.ids.append(0 if stood < len(draft) else int(self.random.random() < self.right(len(self.ids))))
            self.plain_clock += PLAIN * (1 + self.noise / 2) * (1 + stood)
            if draft:
                drafts.checked(Outcome(len(draft), stood, seconds))
            else:
                drafts.plain(seconds)
        drafts.finish(self.ids)
        return drafts.usage(Usage())

    @property
    def gain(self):
        return self.plain_clock / self.clock


@pytest.mark.parametrize("curve", [CHEAP, DEAR], ids=["cheap", "dear"])
@pytest.mark.parametrize("chance", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("kind", ["ngram", "model"])
def test_losing_drafts_take_at_most_three_percent(curve, chance, kind):
    """In the first reply alone, and in a session of ten."""
    drafting = 0.2 * PLAIN if kind == "model" else 0.0
    world = World(curve, lambda position: chance, kind=kind, drafting=drafting, known=())
    first = world.turn(200)
    assert world.gain >= 0.97
    memory = first.draft_memory
    for _ in range(9):
        memory = world.turn(200, memory=memory).draft_memory
    assert world.gain >= 0.97


@pytest.mark.parametrize(("curve", "best"), [(CHEAP, 16 / 3.2), (DEAR, 16 / 8.0)], ids=["cheap", "dear"])
def test_drafts_that_always_stand_grow_to_the_longest(curve, best):
    world = World(curve, lambda position: 1.0)
    usage = world.turn(600)
    assert usage.draft_accepted == usage.draft_proposed > 400
    assert world.gain >= 0.8 * best
    assert usage.draft_speedup == pytest.approx(world.gain, rel=0.02)


@pytest.mark.parametrize("chance", [0.6, 0.8, 0.9])
def test_drafts_of_some_use_come_near_to_the_best_length(chance):
    """The best fixed length, in the long run: (1 - p^(k+1)) / (1 - p) tokens (Leviathan et al., 2023) for c(k+1)."""
    best = max((1 - chance ** (k + 1)) / (1 - chance) / CHEAP[k] for k in range(MOST_TOKENS))
    world = World(CHEAP, lambda position: chance, seed=1)
    world.turn(3000)
    assert world.gain >= 0.85 * best


def test_after_a_loss_drafts_that_become_right_are_found_out_for_nothing():
    """A lookup is watched while it is not used: free talk for 600 tokens, then a quotation."""
    world = World(DEAR, lambda position: 0.0 if position < 610 else 1.0)
    world.turn(600)
    assert world.gain >= 0.97
    before = world.clock
    world.turn(400)
    assert (world.clock - before) / PLAIN < 0.75 * 400


def test_a_draft_model_is_tried_again_rarely():
    world = World(CHEAP, lambda position: 0.0, kind="model", drafting=0.1 * PLAIN)
    world.turn(2000)
    before = world.asked
    world.turn(2000, memory=world.control.acceptance.told())
    assert 10 < world.asked - before < 400
    assert world.gain >= 0.97


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_a_busy_machine_does_not_mislead_it(noise):
    world = World(CHEAP, lambda position: 0.1, noise=noise, known=FREE)
    memory = None
    for _ in range(10):
        memory = world.turn(200, memory=memory).draft_memory
    assert world.gain >= 0.96
    world = World(CHEAP, lambda position: 0.95, noise=noise, known=())
    world.turn(1000)
    assert world.gain >= 1.5


def test_what_a_chat_told_is_known_in_its_next_turn():
    world = World(CHEAP, lambda position: 1.0)
    memory = world.turn(300).draft_memory
    assert json.loads(memory)["v"] == 1
    other = World(CHEAP, lambda position: 1.0)
    usage = other.turn(32, memory=memory)
    assert usage.draft_steps <= 3  # at full length from the first one on
    bad = World(CHEAP, lambda position: 0.0)
    memory = bad.turn(300).draft_memory
    again = World(CHEAP, lambda position: 0.0)
    assert again.turn(200, memory=memory).draft_proposed == 0


@pytest.mark.parametrize(
    "memory",
    ["", "no JSON", "[]", '{"v":2}', '{"v":1,"odds":[]}', '{"v":1,"odds":{"ngram 5":[1,2,3]}}', "[" * 100_000]
    + [
        f'{{"v":1,"odds":{{"ngram 5":[{values}]}}}}'
        for values in ("1,2,0,0,3", "1e999,1,1,1,1", "NaN,0,0,0,1", '"a",1,1,1,1', f"1{'0' * 400},1,1,1,1")
    ]
    + ['{"v":1,"odds":{"ngram 5":[true,0,0,0,1]}}', '{"v":1,"odds":{"ngram 5":[-1,-1,0,0,1]}}'],
)
def test_a_memory_that_is_not_in_order_is_none(memory):
    assert Acceptance.recalled(memory).told() is None


def test_the_memory_is_what_was_learned():
    acceptance = Acceptance()
    for stood in (3, 0, 2, 3):
        acceptance.learn("ngram", 2, 3, stood)
    again = Acceptance.recalled(acceptance.told())
    for tokens in (1, 4, 15):
        assert again.expected("ngram", 2, tokens) == pytest.approx(acceptance.expected("ngram", 2, tokens), rel=0.01)
    assert again.reach("ngram", 2) == acceptance.reach("ngram", 2)
    assert len(acceptance.told()) < 200


def test_what_is_known_of_a_draft_model_is_known_of_that_one():
    acceptance = Acceptance("one target")
    for kind in ("model", "ngram"):
        acceptance.learn(kind, 0, 3, 0)
    told = acceptance.told()
    assert json.loads(told)["pair"] == "one target"
    new = Acceptance().expected("model", 0, 4)
    assert Acceptance.recalled(told, "one target").expected("model", 0, 4) < new
    other = Acceptance.recalled(told, "other target")
    assert other.expected("model", 0, 4) == new
    assert other.expected("ngram", 0, 4) < Acceptance().expected("ngram", 0, 4)
    without = Acceptance.recalled(told)  # a turn without draft models keeps what it does not use
    assert json.loads(without.told()) == json.loads(told)
    assert Acceptance.recalled(without.told(), "other target").told() == other.told()


@pytest.mark.parametrize("pair", ["7", "null", "[]", f'"{"a" * 65}"'])
def test_a_pair_that_is_not_in_order_is_none(pair):
    memory = f'{{"v":1,"odds":{{"model 0":[4,0,0,0,1]}},"pair":{pair}}}'
    assert Acceptance.recalled(memory, "one target").told() is None


def test_tokens_that_were_not_tried_are_no_failures():
    acceptance = Acceptance()
    before = acceptance.expected("ngram", 3, 4)
    acceptance.learn("ngram", 3, 4, 2, ended=True)
    assert acceptance.expected("ngram", 3, 4) > before
    acceptance.learn("ngram", 3, 4, 2)
    rejected = acceptance.expected("ngram", 3, 4)
    acceptance.learn("ngram", 3, 4, 0, ended=True)
    assert acceptance.expected("ngram", 3, 4) == rejected


def test_forced_drafts_are_never_switched_off_but_become_short():
    world = World(DEAR, lambda position: 0.0)
    usage = world.turn(200, mode="ngram")
    assert usage.draft_steps > 150
    assert usage.draft_proposed < 1.2 * usage.draft_steps
    assert usage.draft_speedup == pytest.approx(1 / DEAR[1], rel=0.1)


def test_what_a_turn_tells():
    silent = World(CHEAP, lambda position: 0.0, trust=0)
    usage = silent.turn(100)
    assert (usage.draft_kind, usage.draft_steps, usage.draft_speedup, usage.draft_note) == ("off", 0, 0.0, PAUSED)
    control = DraftControl(CostCurve())
    none = Drafts(Generate("t", (), draft="model"), [], control, lambda token: False)
    assert none.next([1, 2], 5) == ()
    assert none.usage(Usage()).draft_note == NO_MODEL
    off = Drafts(Generate("t", (), draft="off", draft_memory="kept"), [], control, lambda token: False)
    assert off.usage(Usage()) == Usage(draft_memory="kept")


def test_what_follows_the_end_of_a_reply_is_not_drafted():
    class Ends(World):
        def draft(self, ids, most):
            return Draft((1, 1, 9, 1)[:most], 5)

    world = Ends(FREE, lambda position: 1.0)
    usage = world.turn(100)
    assert usage.draft_proposed <= 2 * usage.draft_steps


def test_the_cost_curve():
    assert complete({}) == ()
    assert complete({3: 2.0, 5: 4.0})[:6] == (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
    assert complete({2: 1.5, 4: 1.2})[:4] == (1.0, 1.5, 1.5, 1.5)  # a measurement that fell is noise
    curve = CostCurve(complete({16: 8.5}))
    assert curve.at(1) == 1.0
    for _ in range(40):
        curve.learn(4, 1.75)
    assert curve.at(4) == pytest.approx(1.75, abs=0.01)
    assert curve.at(5) == pytest.approx(2.0, abs=0.02)  # the nearest that was seen corrects the others
    curve.learn(4, 500.0)
    assert curve.at(4) < 2.2  # one outlier is not believed


def test_the_class_of_all_drafts_is_for_asking():
    acceptance = Acceptance()
    acceptance.learn("model", ANY, 0, 0)
    fewer = acceptance.expected("model", ANY, 4)
    assert fewer < Acceptance().expected("model", ANY, 4)

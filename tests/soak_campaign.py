"""Thousands of turns in many chats with real engines, and what must hold all along and at the end.

The run is cut into legs, each with a model, in one engine process of its own. In between and at the end of each leg
everything comes to rest, and it is measured what the processes have. See `soak_acts` for what happens,
`soak_measuring` for what is measured, `soak_checks` for what must hold.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soak_acts import Person
from soak_checks import Ledger, check_end, stored
from soak_measuring import FOLDER, Sample, Use, children, engine_use, own_use
from soak_program import PATIENCE, Program, fresh_answer

from kvchat.backend.values import CacheType, EngineConfig, Sampling
from kvchat.chats.store import ChatStore
from kvchat.conversation import Conversation, read_usage
from kvchat.conversation.turns import ids_key

GREEDY = Sampling(temperature=0.0, max_tokens=24)
EXACT: tuple[CacheType, str] = ("q8_0", "on")
"""With Q4_1 weights, this cache type and flash attention an answer does not depend on what was in a batch. It does on
the order of its cells, in which sums run: turns that run together may change that, so here they run one by one."""


@dataclass(frozen=True, slots=True)
class Leg:
    """A model and how it is run. `types`: cache types between which is switched. `exact`: now and then an answer is
    compared with that of a fresh engine. `share` of the whole. It is measured after `every` so many turns."""

    name: str
    model: Path
    types: tuple[CacheType, ...] = ()
    exact: bool = False
    share: int = 1
    context: int = 1024
    parallel: int = 3
    every: int = 60

    def config(self, home: Path, budget: int) -> EngineConfig:
        return EngineConfig(
            str(self.model),
            context=self.context,
            type_k=EXACT[0] if self.exact else "f16",
            type_v=EXACT[0] if self.exact else "f16",
            flash_attention="on" if self.exact else "auto",
            threads=1,
            extra_buffers=False,
            kv_folder=str(home / "kv"),
            kv_budget=budget,
            parallel=1 if self.exact else self.parallel,
        )


class Campaign:
    """`samples` by leg, `problems` as sentences, `done`: how often what happened."""

    def __init__(self, home: Path, rng: random.Random, legs: Sequence[Leg], budget: int) -> None:
        self.home = home
        self.rng = rng
        self.legs = legs
        self.budget = budget
        self.samples: dict[str, list[Sample]] = {}
        self.problems: list[str] = []
        self.compared: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.turns = 0
        self.most_stored = 0  # bytes of pages after a round
        self._ledger = Ledger(home / "said.jsonl")

    def run(self, goes_on: Callable[[Leg, int], bool]) -> None:
        """Go through the legs, each for as long as `goes_on` says of it and its turns so far. Raises Stuck when nothing
        comes any more."""
        os.environ[FOLDER] = str(self.home)
        self._began = time.monotonic()
        before, others = own_use(), children()
        program = Program(self.home / "kvchat", self._config(self.legs[0]))
        person = Person(program, self.rng, self.budget)
        try:
            for leg in self.legs:
                self._leg(program, person, leg, goes_on)
        finally:
            program.close()
            self.turns = program.finished
            self.problems += program.problems
            self.done = person.done
        self._check_left(program, before, others)
        self.problems += check_end(program.home, self._ledger)

    def _config(self, leg: Leg) -> EngineConfig:
        return leg.config(self.home / "kvchat", self.budget)

    def _check_left(self, program: Program, before: Use, others: set[int]) -> None:
        left = [pid for pid in program.pids if Path(f"/proc/{pid}").exists()]
        more = children() - others
        if left or more:
            self.problems.append(f"processes are left: {left} of {len(program.pids)} engines, {more}")
        after = own_use()
        for what in ("descriptors", "threads"):
            if getattr(after, what) != getattr(before, what):
                self.problems.append(f"{what}: {getattr(before, what)} before all, {getattr(after, what)} after it")

    # ------------------------------------------------------------------ a leg

    def _leg(self, program: Program, person: Person, leg: Leg, goes_on: Callable[[Leg, int], bool]) -> None:
        person.types = ()
        for other in self.rng.sample(self.legs, min(2, len(self.legs) - 1)):  # there and back, a turn in each
            program.configure(self._config(other))
            self._round(program, person)
        program.configure(self._config(leg))
        person.types = leg.types
        first = measured = program.finished
        samples = self.samples[leg.name] = []
        samples.append(self._sample(program, leg, first))
        while goes_on(leg, program.finished - first):
            self._round(program, person)
            if program.finished - measured >= leg.every:
                measured = program.finished
                if leg.exact:
                    self._compare(program, person)
                samples.append(self._sample(program, leg, first))

    def _round(self, program: Program, person: Person) -> None:
        chats = [person.chat() for _ in range(self.rng.choice((1, 1, 1, 2, 3)))]
        chats = [chat for chat in dict.fromkeys(chats) if chat.chat.id in program.open]  # others were closed meanwhile
        begun = [chat for chat in chats if person.begin(chat)]
        if self.rng.random() < 0.2:
            person.stop_one()
        program.settle()
        for chat in begun:
            person.after(chat)
            self._note(chat)
        if self.rng.random() < 0.5:
            person.act(chats[0])
        person.tidy()
        program.settle()
        self._ledger.gone(person.purged)
        person.purged.clear()
        size = stored(program.kv_folder)
        self.most_stored = max(self.most_stored, size)
        if size > self.budget:
            self.problems.append(f"the page store has {size - self.budget} bytes too many")

    def _note(self, chat: Conversation) -> None:
        replies = [each.message for each in chat.alternatives]
        self._ledger.said([*chat.messages[-2:], *replies])

    def _sample(self, program: Program, leg: Leg, first: int) -> Sample:
        """With no chat open, nothing in the cells and, where cache types are switched, a context that was just built:
        else one sample could not be compared with another."""
        program.open.clear()
        program.settle()
        config = self._config(leg)
        for kind in leg.types[1:2]:
            program.configure(replace(config, type_k=kind, type_v=kind))
        if program.engine.config != config:
            program.configure(config)
        program.forget()
        assert program.engine.pid is not None
        return Sample(
            program.finished - first,
            time.monotonic() - self._began,
            own_use(),
            engine_use(program.engine.pid, self.home),
            (program.home / "chats.db").stat().st_size,
            stored(program.kv_folder),
        )

    # ------------------------------------------------------------------ as a fresh engine says it

    def _compare(self, program: Program, person: Person) -> None:
        """Ask once more in the longest chat, and have a fresh engine answer the same."""
        chats = [each for each in program.open.values() if not each.incognito and each.messages]
        if not chats:
            return
        chat = max(chats, key=lambda each: len(each.messages))
        person.tried("sampling", lambda: chat.set_sampling(GREEDY).result(PATIENCE))
        if not person.tried("asked", lambda: chat.submit(person.text()).result(PATIENCE)):
            return
        program.settle()
        self._note(chat)
        here = chat.messages[-1]
        usage = read_usage(here)
        ready = program.engine.ready
        if usage is None or ready is None or here.finish not in ("stop", "length"):
            self.compared["no answer"] += 1
            return
        key = ids_key(ready.model.text_key, chat.reading.system)
        known = program.store.run(ChatStore.known_ids, here.id, key).result(PATIENCE)
        if any(each.evictions for each in known.values()):  # what was computed after one is not computed again so
            self.compared["evicted"] += 1
            return
        there = fresh_answer(program, chat.chat.id, GREEDY, self.home)
        again = program.store.run(ChatStore.known_ids, there.id, key).result(PATIENCE)
        self.compared["compared"] += 1
        self.compared["reused tokens"] += usage.reused
        if (here.text, known[here.id].ids) != (there.text, again[there.id].ids):
            self.problems.append(f"after {len(chat.messages)} messages: {here.text!r}, a fresh engine {there.text!r}")
        person.purge([there.chat])
        self._ledger.gone(person.purged)

"""What a person does with many chats, at random: one act each. Owns which acts there are and what each needs.

Whatever makes no sense at a moment is refused with a KvchatError, as in the app, and counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from soak_program import PATIENCE, Program

from kvchat.backend.protocol import Forecasted, ReadingAhead, TextDelta, Titled, TurnFinished, Warmed
from kvchat.backend.values import DRAFT_MODES, OVERFLOW_POLICIES, CacheType, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Draft
from kvchat.conversation import Conversation
from kvchat.conversation.prefixes import new_prefix
from kvchat.conversation.samplings import differing
from kvchat.errors import KvchatError
from kvchat.kv.collecting import collect
from kvchat.kv.pinned import unpin
from kvchat.kv.purge import purge
from kvchat.kv.verify import VerifyReport, verify

WORDS = ("the", "harbour", "master", "wrote", "down", "every", "ship", "that", "came", "in", "and", "where")
MOST_OPEN = 5
MOST_CHATS = 14  # on disk, the rest is purged
MOST_MESSAGES = 24  # of a branch, then another chat is begun
SOON = 2.0  # seconds for an answer that need not come


class Person:
    """Acts on the chats of a program. `types` are the cache types between which it may switch."""

    def __init__(self, program: Program, rng: random.Random, budget: int) -> None:
        self.program = program
        self.rng = rng
        self.budget = budget
        self.done: Counter[str] = Counter()
        self.purged: list[str] = []  # chats that are gone since this was looked at
        self.types: tuple[CacheType, ...] = ()
        self._pinned: list[str] = []

    def text(self, most: int = 40) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def sampling(self) -> Sampling:
        heat = self.rng.choice((0.0, 0.8))
        return Sampling(temperature=heat, seed=self.rng.randrange(99), max_tokens=self.rng.choice((1, 8, 30, 90)))

    def tried(self, name: str, act: Callable[[], object]) -> bool:
        """Whether an act made sense."""
        try:
            act()
        except KvchatError:
            self.done[f"refused: {name}"] += 1
            return False
        self.done[name] += 1
        return True

    # ------------------------------------------------------------------ which chat

    def chat(self) -> Conversation:
        """One that is open, one from disk, or a new one."""
        program, rng = self.program, self.rng
        for name, each in tuple(program.open.items()):
            if len(each.messages) > MOST_MESSAGES or (len(program.open) > MOST_OPEN and rng.random() < 0.3):
                del program.open[name]
        kind = rng.random()
        if kind < 0.2 or not program.open:
            return self.new()
        if kind < 0.35 and (found := program.store.run(ChatStore.chats).result(PATIENCE)):
            self.done["opened"] += 1
            return program.opened(rng.choice(found).chat.id, self.sampling())
        return rng.choice(list(program.open.values()))

    def new(self, store: StoreThread | None = None, **options: object) -> Conversation:
        rng = self.rng
        self.done["new"] += 1
        options = {"system": rng.choice(("", "You are brief.", self.text())), "overflow": self.policy()} | options
        return self.program.start(
            store, sampling=self.sampling(), draft=rng.choice(("auto", "ngram", "off")), **options
        )

    def policy(self) -> str:
        return self.rng.choice(OVERFLOW_POLICIES)

    def tidy(self) -> None:
        """Of too many chats, those that were not used for longest are removed for good."""
        found = self.program.store.run(ChatStore.chats).result(PATIENCE)
        names = [each.chat.id for each in found if each.chat.id not in self.program.open]
        if len(found) > MOST_CHATS:
            self.purge(names[-(len(found) - MOST_CHATS // 2) :])

    def purge(self, names: list[str]) -> None:
        program = self.program
        for name in names:
            program.store.run(ChatStore.trash, name).result(PATIENCE)
        program.forget()
        forget = partial(purge, program.kv_folder)
        program.store.run(lambda store: store.purging.purge(names, forget)).result(PATIENCE)
        self.purged += names
        self.done["purged"] += len(names)

    # ------------------------------------------------------------------ what begins a turn

    def begin(self, chat: Conversation) -> bool:
        """A turn, or several; whether one was begun."""
        acts = {
            "asked": (8, lambda: chat.submit(self.text())),
            "typed ahead": (2, lambda: self.type_ahead(chat)),
            "retried": (2, chat.regenerate),
            "edited": (2, lambda: chat.edit(self._own(chat), self.text())),
            "continued": (2, chat.resume),
            "alternatives": (1, lambda: chat.ask_alternatives(differing(self.sampling(), 3), self.text())),
            "other answers": (1, lambda: chat.ask_alternatives(differing(self.sampling(), 2))),
        }
        names = list(acts)
        name = self.rng.choices(names, [acts[each][0] for each in names])[0]
        return self.tried(name, lambda: acts[name][1]().result(PATIENCE))

    def type_ahead(self, chat: Conversation) -> object:
        """What is written is read, more is written, then it is sent as it is or otherwise."""
        begun = self.text(20)
        for draft in (begun, f"{begun} {self.text(10)}"):
            chat.read_ahead(draft)
            self._wait(ReadingAhead)
        chat.read_ahead(draft, done=True)
        self._wait(ReadingAhead)
        return chat.submit(draft if self.rng.random() < 0.8 else self.text())

    def stop_one(self) -> None:
        """An answer is stopped, before its first word or after some."""
        program, left = self.program, self.rng.choice((0, 0, 1, 2, 4))
        seen = 0

        def enough(event: object) -> bool:
            nonlocal seen
            seen += isinstance(event, TextDelta | TurnFinished)
            return seen >= left

        if left:
            program.until(lambda: program.is_quiet, enough)
        live = [each for each in program.open.values() if each.is_working]
        if live:
            self.tried("stopped", self.rng.choice(live).stop)

    def after(self, chat: Conversation) -> None:
        """What the end of a turn asks for."""
        if len(chat.alternatives) > 1:
            picked = self.rng.choice(chat.alternatives).message.id
            self.tried("picked", lambda: chat.pick(picked).result(PATIENCE))
        if chat.messages and chat.messages[-1].finish == "context":
            self.done["full"] += 1
            if chat.overflow == "summarize":
                self.tried("summarized", lambda: self._summarize(chat))

    def _summarize(self, chat: Conversation) -> None:
        chat.summarize().result(PATIENCE)
        self.program.settle()
        if chat.proposal is None:
            raise KvchatError("no summary", "")
        chat.take_summary(chat.proposal.text).result(PATIENCE)

    # ------------------------------------------------------------------ between turns

    def act(self, chat: Conversation) -> None:
        """Something that is no turn."""
        acts: dict[str, Callable[[], object]] = {
            "deleted": lambda: chat.delete(self.rng.choice(chat.messages[-4:]).id).result(PATIENCE),
            "undone": lambda: chat.undo_delete().result(PATIENCE),
            "sibling": lambda: chat.show_sibling(chat.messages[-1].id, self.rng.choice((-1, 1))).result(PATIENCE),
            "pinned message": lambda: chat.pin(self._own(chat), self.rng.random() < 0.5).result(PATIENCE),
            "took back eviction": lambda: chat.undo_eviction().result(PATIENCE),
            "took back summary": lambda: chat.undo_summary().result(PATIENCE),
            "policy": lambda: chat.set_overflow(self.policy()).result(PATIENCE),
            "system": lambda: chat.set_system(self.text()).result(PATIENCE),
            "sampling": lambda: chat.set_sampling(self.sampling()).result(PATIENCE),
            "draft mode": lambda: chat.set_draft(self.rng.choice(DRAFT_MODES)).result(PATIENCE),
            "title": lambda: self._title(chat),
            "renamed": lambda: chat.rename(self.text(4)).result(PATIENCE),
            "sight": lambda: chat.sight().result(PATIENCE),
            "forecast": lambda: self._ask(chat.forecast, self.text(), Forecasted),
            "warm": lambda: self._ask(chat.warm, None, Warmed),
            "closed": lambda: self.program.open.pop(chat.chat.id, None),
            "copied": lambda: self._disk(ChatStore.duplicate, chat.chat.id),
            "searched": lambda: self._disk(ChatStore.search, self.rng.choice(WORDS)),
            "listed": lambda: self._disk(ChatStore.answers, chat.chat.id),
            "exported": lambda: self._disk(ChatStore.export, chat.chat.id),
            "drafted": lambda: self._disk(ChatStore.set_draft, chat.chat.id, Draft(self.text())),
            "trashed": lambda: self._trash(chat),
            "incognito": self._incognito,
            "collected": lambda: collect(self.program.kv_folder, self.budget * 2 // 3),
            "verified": self._verify,
            "pinned prefix": self._pin,
            "unpinned": self._unpin,
            "switched": self._switch,
        }
        name = self.rng.choice(list(acts))
        if chat.messages or name in ("incognito", "collected", "verified", "pinned prefix", "unpinned", "switched"):
            self.tried(name, acts[name])

    def _own(self, chat: Conversation) -> str:
        own = [message.id for message in chat.messages if message.role == "user"]
        if not own:
            raise KvchatError("nothing was said", "")
        return self.rng.choice(own)

    def _disk(self, job: Callable[..., object], *values: object) -> None:
        self.program.store.run(job, *values).result(PATIENCE)

    def _wait(self, kind: type) -> None:
        if not self.program.until(lambda: False, lambda event: isinstance(event, kind), SOON):
            self.done[f"no {kind.__name__}"] += 1

    def _ask(self, ask: Callable[..., object], value: object, kind: type) -> None:
        ask(*(() if value is None else (value,)))
        self._wait(kind)

    def _title(self, chat: Conversation) -> None:
        if not chat.wants_title:
            raise KvchatError("no title is wanted", "")
        chat.ask_title()
        self._wait(Titled)

    def _trash(self, chat: Conversation) -> None:
        self._disk(ChatStore.trash, chat.chat.id)
        self._disk(ChatStore.restore, chat.chat.id)

    def _incognito(self) -> None:
        program = self.program
        store = StoreThread(None, lambda error: program.problems.append(f"incognito: {error.message}"))
        chat = self.new(store, overflow="sinks")
        for _ in range(2):
            chat.submit(self.text()).result(PATIENCE)
            program.settle()
        del program.open[chat.chat.id]
        store.close()

    def _verify(self) -> None:
        self.program.settle()
        report = verify(self.program.kv_folder)
        if report != VerifyReport(pages=report.pages, bytes=report.bytes):
            self.program.problems.append(f"the page store is not sound: {report}")

    def _pin(self) -> None:
        if len(self._pinned) > 1:
            raise KvchatError("enough are pinned", "")
        prefix = new_prefix(f"prefix {self.rng.randrange(10**6)}", self.text(60))
        self.program.pins.begin(prefix)
        self.program.settle()
        self._pinned.append(prefix.id)
        self.program.start(
            sampling=self.sampling(), system=prefix.text, clock=prefix.clock, prefix=prefix.id, overflow=self.policy()
        )

    def _unpin(self) -> None:
        if not self._pinned:
            raise KvchatError("nothing is pinned", "")
        prefix = self._pinned.pop()
        unpin(self.program.kv_folder, prefix)
        self.program.store.run(lambda store: store.prefixes.remove(prefix)).result(PATIENCE)

    def _switch(self) -> None:
        if not self.types:
            raise KvchatError("there is one cache type only", "")
        kind = self.rng.choice(self.types)
        self.program.configure(replace(self.program.engine.config, type_k=kind, type_v=kind))

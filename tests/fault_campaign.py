"""Pages are damaged under an engine that lives: each time it must notice, go on, and answer as if nothing had been.

One engine process serves all rounds. Before each the cells are emptied, so that the chat comes back from its pages.
Q4_1 weights, a quantized cache and flash attention: there an answer does not depend on the shape of batches.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tiny
from driver import Driver
from page_mutations import MUTATIONS

from kvchat.backend.protocol import Forget, Forgotten
from kvchat.backend.values import Sampling
from kvchat.formats.page import decode_header
from kvchat.kv.store import PAGE_TOKENS
from kvchat.kv.verify import VerifyReport, verify

CHAT = " ".join(f"Item {i} is a thing of its own." for i in range(40))
OTHER = " ".join(f"Number {i} belongs to somebody else." for i in range(40))
QUESTION = "What was item 3?"
SHORT = Sampling(temperature=0, max_tokens=6)
CONFIG = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}
NOTICED = ("corrupt page", "missing page")


@dataclass
class Campaign:
    """What came of the rounds so far. `wrong` names those that were not noticed, or changed the answer or process."""

    home: Path
    model: Path
    rounds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    store: VerifyReport = field(default_factory=VerifyReport)

    def run(self, rounds: int, seed: int = 0) -> None:
        rng = random.Random(seed)
        self._leave_pages(self.model)
        self._leave_pages(tiny.build("llama", self.home), **CONFIG)
        chat = Driver.start(self.home, self.model, **CONFIG)
        try:
            chat.ready()
            chat.ask(OTHER, sampling=SHORT)
            chat.messages.clear()
            before = set(self._pages())
            chat.ask(CHAT, sampling=SHORT)
            own = [path for path in self._pages() if path not in before and _is_full(path)]
            assert len(own) >= 3, own
            expected = self._answer(chat, keep_kv=False).ids
            assert self._answer(chat).ids == expected
            for name in _names(rng, rounds):
                self._round(chat, rng, name, own, expected)
        finally:
            chat.engine.close()
        self.store = verify(self.home / "kv")

    def _leave_pages(self, model: Path, **config: str) -> None:
        """Pages of another cache type and of another model lie in the store, too: of the other chat, since those of
        this one would be transcoded in place of the damaged ones."""
        chat = Driver.start(self.home, model, **config)
        try:
            chat.ready()
            chat.ask(OTHER, sampling=SHORT)
        finally:
            chat.engine.close()

    def _round(self, chat: Driver, rng: random.Random, name: str, own: list[Path], expected: tuple[int, ...]) -> None:
        pid, victim = chat.engine.pid, rng.choice(own)
        MUTATIONS[name](rng, victim, self._pages())
        answer = self._answer(chat)
        self.rounds[name] += 1
        number = sum(self.rounds.values())
        if answer.usage.cut not in NOTICED:
            self.wrong.append(f"{number} {name}: cut {answer.usage.cut}")
        if answer.ids != expected:
            self.wrong.append(f"{number} {name}: another answer")
        if chat.engine.pid != pid or answer.finished.reason != "length":
            self.wrong.append(f"{number} {name}: {answer.finished}")

    def _answer(self, chat: Driver, *, keep_kv: bool = True):
        """The answer to the question after the chat, whose cells are empty before."""
        chat.engine.forget(Forget("f"))
        chat.until(Forgotten)
        past = list(chat.messages)
        answer = chat.ask(QUESTION, sampling=SHORT, keep_kv=keep_kv)
        chat.messages[:] = past
        return answer

    def _pages(self) -> list[Path]:
        return sorted(path for path in self.home.glob("kv/pages/*/*/*") if len(path.name) == 64)


def _is_full(path: Path) -> bool:
    return len(decode_header(path.read_bytes()).ids) == PAGE_TOKENS


def _names(rng: random.Random, rounds: int) -> Iterator[str]:
    """Each kind of damage as often as the others, in a drawn order."""
    names = [list(MUTATIONS)[number % len(MUTATIONS)] for number in range(rounds)]
    rng.shuffle(names)
    return iter(names)

"""A session in this process that answers questions with and without drafts. Used by `draft.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.backend.protocol import Event, Generate, PromptReady, TextDelta, TurnFinished
from kvchat.backend.values import DraftMode, EngineConfig, PromptMessage, Sampling, Usage
from kvchat.bench.draft_tasks import tasks
from kvchat.engine.cost_measuring import measure_costs
from kvchat.engine.drafting import Draft
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.ngram import BOUNDS, NgramDrafter, NgramIndex
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.engine.tuning import Setting

TOKENS = 200

TASKS = tasks()


@dataclass(frozen=True, slots=True)
class Answered:
    """One reply: the ids of its prompt and its own, what it cost, and the seconds of processor time from its first
    token on."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    usage: Usage
    processor: float

    @property
    def speed(self) -> float:
        """Decoded tokens per second; the first token comes with the prompt."""
        return (self.usage.decode_tokens - 1) / self.usage.decode_seconds


class Guesser(NgramDrafter):
    """Drafts anything, and seems to be sure of it."""

    def draft(self, ids: Sequence[int], most: int) -> Draft:
        return Draft(tuple((31 * len(ids) + 17 * i) % 49_000 for i in range(most)), len(BOUNDS))


class Bench:
    """A session in this process."""

    def __init__(self, config: EngineConfig) -> None:
        self._events: list[Event] = []
        self._first_token = 0.0  # of the reply, in processor time
        self.interrupt = Interrupt()
        self.session = Session(config, self.interrupt, lambda _: True, self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, TextDelta) and not any(isinstance(each, TextDelta) for each in self._events):
            self._first_token = time.process_time()
        self._events.append(event)

    def guess(self) -> None:
        """Draft anything from now on."""
        self.session._speculation.lookup = Guesser()

    def ask(self, question: str, draft: DraftMode, tokens: int = TOKENS) -> Answered:
        """Every question is a chat of its own."""
        self._events.clear()
        scheduler = Scheduler(self.session, self.interrupt, self._note)
        sampling = Sampling(temperature=0, max_tokens=tokens)
        scheduler.add(Generate("t", (PromptMessage("user", question),), sampling, draft=draft))
        scheduler.run_out()
        processor = time.process_time() - self._first_token
        while self.session.aside is not None:  # a draft model reads on while the person does
            self.session.advance_aside()
        finished = next(event for event in self._events if isinstance(event, TurnFinished))
        if finished.failure is not None:
            raise SystemExit(f"error: {finished.failure.message}")
        ids = tuple(token for event in self._events if isinstance(event, TextDelta) for token in event.ids)
        ready = next(event for event in self._events if isinstance(event, PromptReady))
        prompt = tuple(token for segment in ready.segments for token in segment)
        return Answered(prompt, ids, finished.usage, processor)

    def costs(self) -> Sequence[float]:
        """The cost curve, measured, and used from now on; empty where that cannot be."""
        session = self.session
        setting = Setting(session.context.flash, session.context.threads)
        curve = measure_costs(session.model, session.config, setting, lambda: False)
        session.learn_costs(curve)
        return curve


def bound(answered: Answered, costs: Sequence[float]) -> float:
    """The speed against plain decoding that a lookup would come to that knows how many of its tokens will stand."""
    ids, start = (*answered.prompt, *answered.ids), len(answered.prompt)
    index = NgramIndex()
    stand = []  # of what is looked up in front of each token
    for position in range(start, len(ids)):
        index.grow(ids[:position])
        _, source = index.longest()
        most = min(len(costs), len(ids) - position, position - source) - 1 if source else 0
        right = (n for n in range(most) if ids[source + n] != ids[position + n])
        stand.append(next(right, max(most, 0)))
    least = [0.0]  # plain steps from each token to the end, backwards
    for number, reach in enumerate(reversed(stand)):
        least.append(min(costs[k] + least[number - k] for k in range(reach + 1)))
    return len(stand) / least[-1]

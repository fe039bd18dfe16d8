"""A chat in a session in this process, whose log of evictions is kept, and which tells the logits of every token that
it reads. Used by `overflow_chat.py` and `reasoning.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kvchat.backend.protocol import Event, Evicted, Generate, PromptReady, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, History, OverflowPolicy, PromptMessage, Sampling
from kvchat.engine.context import Task
from kvchat.engine.divergence import Logits
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.engine.step import Step
from kvchat.formats.past import Eviction
from kvchat.kv.fit import OUTPUTS


class Reading(Session):
    """Computes in pieces of `piece` tokens, of which llama.cpp tells all logits. `logits` gets those of every token, in
    order."""

    logits: list[Logits]
    piece: int

    def decode(self, tasks: Sequence[Task]) -> None:
        """See `Session`."""
        for track, step in tasks:
            for start in range(0, len(step.tokens), self.piece):
                piece = step.tokens[start : start + self.piece]
                self.context.compute([Task(track, Step(piece, step.position + start, len(piece)))])
                self.logits += list(self.context.native.all_logits(len(piece)).copy())


class Chat:
    """`messages` with their ids, and what left on the way."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        policy: OverflowPolicy = "stop",
        history: History = "append",
        piece: int = OUTPUTS,
    ) -> None:
        """`piece` tokens are read at once, at most OUTPUTS."""
        self.events: list[Event] = []
        self.interrupt = Interrupt()
        self.session = Reading(config, self.interrupt, lambda _: True, self.events.append)
        self.session.piece, self.session.logits = piece, []
        self.messages: list[PromptMessage] = []
        self.log: tuple[Eviction, ...] = ()
        self.policy = policy
        self.history = history

    def ask(self, words: str, tokens: int, *, reply: str | None = None) -> TurnFinished:
        """One turn; `reply`: the beginning of the answer, which is given."""
        self.messages.append(PromptMessage("user", words))
        if reply is not None:
            self.messages.append(PromptMessage("assistant", reply))
        self.events.clear()
        self.session.logits = []
        scheduler = Scheduler(self.session, self.interrupt, self.events.append)
        scheduler.add(
            Generate(
                "turn",
                tuple(self.messages),
                Sampling(temperature=0, max_tokens=tokens),
                history=self.history,
                continue_reply=reply is not None,
                draft="off",
                evictions=self.log,
                overflow=self.policy,
            )
        )
        scheduler.run_out()
        self._keep(reply)
        finished = self.events[-1]
        assert isinstance(finished, TurnFinished)
        return finished

    def _keep(self, reply: str | None) -> None:
        segments = next(event.segments for event in self.events if isinstance(event, PromptReady))
        told = [event for event in self.events if isinstance(event, TextDelta)]
        text, ids = "".join(each.text for each in told), tuple(token for each in told for token in each.ids)
        self.messages = [replace(each, ids=part) for each, part in zip(self.messages, segments, strict=True)]
        if reply is not None:
            begun = self.messages.pop()
            text, ids = begun.text + text, (*(begun.ids or ()), *ids)
        self.messages.append(PromptMessage("assistant", text, ids))
        self.log += tuple(event.eviction for event in self.events if isinstance(event, Evicted))

    def close(self) -> None:
        self.session.close()


def nats(logits: Sequence[Logits], following: Sequence[int]) -> list[float]:
    """Negative log likelihood of each of the tokens that followed."""
    found = []
    for row, token in zip(logits, following, strict=True):
        values = row.astype(np.float64)
        top = float(values.max())
        found.append(top + float(np.log(np.exp(values - top).sum())) - float(values[token]))
    return found

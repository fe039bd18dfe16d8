"""`drafts`: what speculation does to the speed of answers, by kind of task.

Owns the order of these measurements and their rows. Each question is answered greedily with and without drafts, in
turns; what drafts cost is measured by the engine before, as it is in the app.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvchat.backend.values import PromptMessage, Usage
from kvchat.bench.draft_tasks import tasks
from kvchat.bench.report import Column, Part, Row, Stat
from kvchat.bench.rig import Answered, Rig, Told
from kvchat.bench.wanted import Wanted

_QUESTIONS, _QUICK_QUESTIONS = 2, 1  # of each kind
_TOKENS, _QUICK_TOKENS = 96, 48  # of an answer
_FEWEST = 8  # below that an answer has no speed


@dataclass
class _Found:
    """What was measured of one kind of task, tokens a second."""

    plain: list[float] = field(default_factory=list)
    drafted: list[float] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


class DraftBench:
    """The measurement: `run`, and a `part` of what there is, at any time."""

    name = "drafts"

    def __init__(self, rig: Rig, wanted: Wanted) -> None:
        self._rig, self._wanted = rig, wanted
        self._rounds = 1 if wanted.quick else min(2, wanted.rounds)
        self._tokens = _QUICK_TOKENS if wanted.quick else _TOKENS
        self._found: dict[str, _Found] = {}
        self._notes: list[str] = []
        self._costs: tuple[float, ...] = ()

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises."""
        tell(0, 1, "what checking drafts costs")
        tuned = self._rig.tune()
        self._costs = tuned.draft_costs if tuned is not None else ()
        if not self._costs:
            self._notes.append("what checking several tokens costs could not be measured: drafts are judged without it")
        most = _QUICK_QUESTIONS if self._wanted.quick else _QUESTIONS
        room = self._rig.ready.cache.context - self._tokens
        asked = [
            (kind, question)
            for kind, questions in tasks().items()
            for question in questions[:: max(1, len(questions) // most)][:most]
        ]
        total, done = self._rounds * len(asked), 0
        for turn in range(self._rounds):
            for kind, question in asked:
                tell(done, total, kind)
                done += 1
                if len(self._rig.tokens(question)) <= room:
                    self._compare(kind, question, drafts_first=(turn + done) % 2 == 0)
                elif turn == 0:
                    self._notes.append(f"{kind}: a question is left out that is longer than the context")

    def _compare(self, kind: str, question: str, *, drafts_first: bool) -> None:
        message = PromptMessage("user", question)
        answers: dict[bool, Answered] = {}
        for drafts in (drafts_first, not drafts_first):
            self._rig.forget()
            answers[drafts] = self._rig.ask([message], self._tokens, draft="auto" if drafts else "off")
        plain, drafted = answers[False], answers[True]
        if min(plain.usage.decode_tokens, drafted.usage.decode_tokens) < _FEWEST:
            return
        found = self._found.setdefault(kind, _Found())
        found.plain.append(plain.decode or 0.0)
        found.drafted.append(drafted.decode or 0.0)
        found.usages.append(drafted.usage)

    def part(self) -> Part:
        """What was measured so far."""
        costs = f"; {len(self._costs)} tokens at once cost {self._costs[-1]:.1f} times one" if self._costs else ""
        draft = self._rig.ready.draft
        return Part(
            self.name,
            "Drafts",
            f"answers of at most {self._tokens} tokens, with and without drafts "
            f"({f'of {draft.name} and ' if draft else ''}of the chat's own text){costs}",
            (
                Column("task", "task", names=True),
                Column("plain", "plain, tokens/s", "rate"),
                Column("drafted", "drafts, tokens/s", "rate", "higher"),
                Column("ratio", "ratio", "ratio", "higher"),
                Column("proposed", "drafted", "count"),
                Column("accepted", "stood", "share", "higher"),
                Column("step", "a step", "number"),
            ),
            tuple(_row(kind, found) for kind, found in self._found.items()),
            notes=tuple(self._notes),
        )


def _row(kind: str, found: _Found) -> Row:
    proposed = sum(usage.draft_proposed for usage in found.usages)
    accepted = sum(usage.draft_accepted for usage in found.usages)
    steps = sum(usage.draft_steps for usage in found.usages)
    return {
        "task": kind,
        "plain": Stat.of(found.plain),
        "drafted": Stat.of(found.drafted),
        "ratio": Stat.of([new / old for new, old in zip(found.drafted, found.plain, strict=True) if old > 0]),
        "proposed": proposed,
        "accepted": accepted / proposed if proposed else None,
        "step": accepted / steps if steps else None,
    }

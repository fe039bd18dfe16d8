"""How much of a prompt comes before what the person says: BOS, and the system prompt with what the template puts before
it. Owns where it ends; must not change a prompt.

It ends where the first user turn begins to look like a later one: what a template puts before both is the user's. Where
the system prompt stands in the first user turn, it ends with the last token of the system prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from kvchat.backend.values import PromptMessage
from kvchat.engine.slots import GapTokenizer, Parts, Tokenizer, render_gaps
from kvchat.engine.template import ChatTemplate, Turn

_CROSSING = 1  # where no control token stands behind the part, its last token may hold some of what follows


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What stands before the text of the first user turn: text, and a 0 in place of a system prompt. `every` stands
    before that of a later one."""

    parts: Parts
    every: str


class SystemPart:
    """The part for one template and vocabulary. That of the last chat is remembered: it may be long."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._gaps = GapTokenizer(template, tokenizer, [], 0.0, [], [])
        self._known: tuple[str, float] | None = None
        self._forms: list[list[int]] = []

    def tokens(self, ids: Sequence[int], messages: Sequence[PromptMessage], clock: float) -> int:
        """So many of the first `ids`, a prompt made of `messages`, are the part. Also a system prompt of the template's
        own counts. 0: the prompt does not begin so, or it cannot be told apart."""
        system = next((message.text for message in messages if message.role == "system"), "")
        if self._known != (system, clock):
            self._forms, self._known = self._all_forms(system, clock), (system, clock)
        for form in self._forms:
            shared = _shared(ids, form)
            if shared >= max(1, len(form) - _CROSSING):
                return shared
        return 0

    def _all_forms(self, system: str, clock: float) -> list[list[int]]:
        """The ids of the part; many templates take outer white space away."""
        beginning = _beginning(self._template, bool(system), clock)
        texts = dict.fromkeys((system, system.strip()))
        return [] if beginning is None else [self._ids(beginning, text) for text in texts]

    def _ids(self, beginning: _Beginning, system: str) -> list[int]:
        """All ids before the user's text but those that stand before every one."""
        parts, last = beginning.parts, beginning.parts[-1] if beginning.parts else 0
        ids = self._whole(parts, system)
        behind = self._gaps.ids(last, 1) if isinstance(last, str) else []
        every = _shared(ids[::-1], self._gaps.ids(beginning.every, 1)[::-1])
        return ids[: len(ids) - min(every, len(behind))]

    def _whole(self, parts: Parts, system: str) -> list[int]:
        """One text; a system prompt that holds the text of a control token by itself, as in a prompt."""
        if not self._gaps.imitates(system):
            return self._gaps.ids("".join(part if isinstance(part, str) else system for part in parts), 0)
        ids: list[int] = []
        for number, part in enumerate(parts):
            ids += self._gaps.ids(part, number) if isinstance(part, str) else self._gaps.reply(system)
        return ids


def _beginning(template: ChatTemplate, system: bool, clock: float) -> _Beginning | None:
    """None where the template hides one of the texts."""
    user, reply = Turn("user", ""), Turn("assistant", "")
    turns = [Turn("system", ""), user] if system and template.system_role else [user]
    first = render_gaps(template, turns, range(len(turns)), [], clock)
    later = render_gaps(template, [user, reply, user], range(3), [1], clock)
    if first is None or later is None or len(turns) - 1 not in first[0]:
        return None
    parts = first[0][: first[0].index(len(turns) - 1)]
    if len(turns) == 2 and 0 not in parts:
        return None
    if len(turns) == 1 and system:  # it stands in front of what the person says
        parts = [*parts, 0]
    every = later[1][0]
    return _Beginning(parts, every if isinstance(every, str) else "")


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """So many ids are the same from the beginning on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

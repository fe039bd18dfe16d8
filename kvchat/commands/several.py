"""Several answers to one question without a screen: printed one after the other, each as it comes once it is its turn.

Owns that order, and how they end. Must not know how answers are made.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import replace

from kvchat.backend.choices import MOST_PARALLEL
from kvchat.backend.guarding import REFUTED
from kvchat.backend.protocol import Ready, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig
from kvchat.commands.printing import Printer
from kvchat.commands.report import Answer, alternative, report, summary
from kvchat.commands.turn import Inbox, TurnWatch
from kvchat.config_values import BadValue, integer
from kvchat.conversation import Alternative, Conversation
from kvchat.conversation.samplings import SAME, all_alike, label
from kvchat.errors import INTERRUPTED, KvchatError, UsageError


class SeveralWatch(TurnWatch):
    """Follows all alternatives of a conversation to their ends. A line with its number and what is its own stands
    before each; the text of one comes as it is made, after those before it have ended."""

    def __init__(self, conversation: Conversation, asked: EngineConfig, inbox: Inbox, printer: Printer) -> None:
        """All of them are being written, or wait for that."""
        super().__init__(conversation, asked, inbox, printer)
        found = conversation.alternatives
        samplings = [each.sampling for each in found]
        heads = (f"--- {number}/{len(found)}, {label(own, samplings)} ---" for number, own in enumerate(samplings, 1))
        self._heads = list(heads)
        self._turns = [each.live.turn for each in found if each.live is not None]
        self._waiting: dict[str, list[str]] = {turn: [] for turn in self._turns}
        self._ends: dict[str, TurnFinished] = {}
        self._printed = 0  # whole answers
        self._headed = -1  # the last one whose line is printed
        if all_alike(samplings):
            printer.note(SAME)

    @property
    def ends(self) -> tuple[TurnFinished | None, ...]:
        """How each ended; None for one that never began."""
        return tuple(self._ends.get(turn) for turn in self._turns)

    def _follow(self, event: TextDelta | TurnFinished) -> None:
        if event.turn not in self._waiting:
            return
        if isinstance(event, TextDelta):
            self._waiting[event.turn].append(event.text)
        else:
            self._ends[event.turn] = self._finished = event
        self._print()

    def _print(self) -> None:
        while self._printed < len(self._turns):
            turn = self._turns[self._printed]
            text, self._waiting[turn] = "".join(self._waiting[turn]), []
            if text or turn in self._ends:
                self._head()
                self._write(text)
            if turn not in self._ends:
                return
            self._write("", end=True)
            self._printed += 1

    def _head(self) -> None:
        if self._headed < self._printed:
            self._headed = self._printed
            self._write(("\n" if self._printed else "") + self._heads[self._printed] + "\n")


def count_of(text: str) -> int:
    """How many answers `--n` asks for. UsageError: that is none that can be."""
    try:
        return integer(text, 1, MOST_PARALLEL, f"--n takes 1 to {MOST_PARALLEL} answers")
    except BadValue as bad:
        raise UsageError(f"--n: {bad.problem}", bad.hint) from None


def finish_several(
    watch: SeveralWatch,
    ready: Ready | None,
    chat: Conversation,
    printer: Printer,
    json: bool,
    prefix: str | None = None,
) -> int:
    """Say how they ended; the exit code. `prefix`: the name of the one that the chat is on. KvchatError when one of
    them is no answer, or is not kept: the others are on stdout then."""
    found = chat.alternatives
    ended = [(each, end) for each, end in zip(found, watch.ends, strict=True) if end is not None]
    if ready is None or not ended:
        return INTERRUPTED
    for each, end in ended:
        _say(found.index(each) + 1, end, ready, printer)
    if json:
        printer.line(jsonlib.dumps(_object(chat, ready, ended, prefix)))
    for each, end in ended:
        printer.aside(f"{found.index(each) + 1}/{len(found)}: {summary(end.usage)}")
    _raise(found, ended, incognito=chat.incognito)
    return INTERRUPTED if any(end is None or end.reason == "cancelled" for end in watch.ends) else 0


def _say(number: int, end: TurnFinished, ready: Ready, printer: Printer) -> None:
    if end.usage.save_problem:
        printer.note(f"the KV state of this turn is not kept: {end.usage.save_problem}")
    if end.usage.cut == "check":
        printer.note(REFUTED)
    if end.reason == "context" and end.failure is None:
        more = "a larger one, or another overflow policy, has room for more"
        printer.note(f"the context of {ready.cache.context} tokens is full, so answer {number} ends here: {more}")


def _object(
    chat: Conversation, ready: Ready, ended: Sequence[tuple[Alternative, TurnFinished]], prefix: str | None
) -> dict[str, object]:
    """That of the first answer, with a list of all."""
    answers = [(_answer(chat, each, end), each, end.usage) for each, end in ended]
    (first, _, usage), *_ = answers
    told = [alternative(answer, each.sampling, usage) for answer, each, usage in answers]
    return report(replace(first, prefix=prefix), ready, usage) | {"alternatives": told}


def _answer(chat: Conversation, each: Alternative, end: TurnFinished) -> Answer:
    answer = Answer(chat.chat.id, each.message.id, each.message.text, end.reason)
    return replace(answer, chat=None, message=None) if chat.incognito else answer  # gone with its ids


def _raise(found: Sequence[Alternative], ended: Sequence[tuple[Alternative, TurnFinished]], *, incognito: bool) -> None:
    failed = [end for _, end in ended if end.failure is not None or end.reason in {"error", "died"}]
    if failed:
        failure, excess = failed[0].failure, any(end.usage.excess for end in failed)
        why = "the engine gave up on it" if failure is None else failure.message
        kept = "" if incognito else "what had come is kept with the chat"
        hint = "a shorter question, a new chat, a larger --ctx-size, or another --overflow" if excess else kept
        many = len(found)
        whose = "all answers" if len(failed) == many else f"{len(failed)} of {many} answers"
        raise KvchatError(f"{whose} failed: {why}", hint)
    unsaved = next((each.unsaved for each in found if each.unsaved is not None), None)
    if unsaved is not None:
        raise KvchatError(f"not all of these answers could be saved: {unsaved.message}", unsaved.hint)

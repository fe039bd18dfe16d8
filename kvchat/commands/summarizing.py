"""A turn without a screen that goes on over a full context, where the chat's policy is to summarize.

Owns the order: the turn, a summary of the oldest messages, the rest of the turn. Nobody is asked; what was done is
told. Must not know how a summary is made.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from kvchat.backend.protocol import EngineDied, Ready, TurnFinished
from kvchat.backend.values import EngineConfig
from kvchat.commands.printing import Printer
from kvchat.commands.turn import Inbox, Interrupt, Outcome, TurnWatch
from kvchat.conversation import Conversation
from kvchat.conversation.overflow_words import summary_done
from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class Done:
    """A summary that took the place of so many messages: tokens before and after, and its text."""

    messages: int
    tokens_before: int
    tokens_after: int
    text: str

    def told(self) -> dict[str, object]:
        """As `ask --json` tells it."""
        return asdict(self)


def watch_turn(
    conversation: Conversation, asked: EngineConfig, inbox: Inbox, printer: Printer
) -> tuple[Outcome, tuple[Done, ...]]:
    """Follow the turn that a conversation is in to its end, over as many summaries as it takes. Raises as
    `TurnWatch.run`."""
    done: list[Done] = []
    ready: Ready | None = None
    while True:
        outcome = TurnWatch(
            conversation, asked, inbox, printer, goes_on=lambda end: _is_wanted(conversation, end)
        ).run()
        ready = outcome.ready or ready  # it is told once
        outcome = replace(outcome, ready=ready)
        if outcome.finished is None or not _is_wanted(conversation, outcome.finished):
            return outcome, tuple(done)
        made = _summarize(conversation, inbox, printer)
        if made is None:
            printer.end_text()
            return outcome, tuple(done)
        done.append(made)
        conversation.resume().result()


def _is_wanted(conversation: Conversation, finished: TurnFinished) -> bool:
    return finished.reason == "context" and conversation.overflow == "summarize"


def _summarize(conversation: Conversation, inbox: Inbox, printer: Printer) -> Done | None:
    """Have a summary written and put in its place. None: there is none, which is told."""
    try:
        choice = conversation.summarize().result()
        printer.aside("the context is full: the oldest messages are being summarized")
        while conversation.summary_progress is not None:
            match item := inbox.next():
                case Interrupt():
                    conversation.drop_summary()
                case KvchatError():
                    printer.problem(item)
                case _:
                    conversation.apply(item)
                    if isinstance(item, EngineDied):
                        printer.note(item.cause)
        proposal, failure = conversation.proposal, conversation.summary_failure
        if proposal is None:
            if failure is not None:
                printer.problem(KvchatError(f"no summary: {failure.message}", failure.hint))
            return None
        conversation.take_summary(proposal.text).result()
    except KvchatError as error:
        printer.problem(KvchatError(f"no summary: {error.message}", error.hint))
        return None
    printer.aside(summary_done(choice.messages, choice.replaced, proposal.tokens))
    return Done(choice.messages, choice.replaced, proposal.tokens, proposal.text)

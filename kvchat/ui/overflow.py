"""What happens in a full context of the open chat: `/overflow`, the question, and the way back. Owns when to ask and
the words; must not evict or summarize, and must not wait for the disk or the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kvchat.backend.protocol import Event, Evicted, Ready, TurnFinished, Way
from kvchat.backend.values import OverflowPolicy
from kvchat.chats.types import Summary
from kvchat.config_options import BY_KEY, BadValue
from kvchat.conversation import Choice, Conversation, Sight, read_usage
from kvchat.conversation.overflow_words import (
    POLICIES,
    cannot_evict,
    forecast,
    impossible,
    summary_forecast,
    tokens_text,
)
from kvchat.conversation.too_long import larger_context
from kvchat.errors import KvchatError
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending
from kvchat.ui.summaries import Summaries

NOTHING = "There is nothing to undo."


class Overflow:
    """Asks once a chat, and only where nobody has said what is to happen."""

    def __init__(self, room: Room, sending: Sending) -> None:
        self._room = room
        self._sending = sending
        self.summaries = Summaries(room, sending, self.undo)

    def apply(self, event: Event, turn: str | None) -> None:
        """What left is counted; a context that is full for the first time is a question. `turn` is the one that was
        going on when the event came."""
        match event:
            case Ready() | Evicted():
                self._room.sights.look()
            case TurnFinished(turn=finished) if finished == turn:
                self._ended(event)
        self.summaries.apply(event, turn)

    def _ended(self, event: TurnFinished) -> None:
        room = self._room
        room.sights.look()
        if event.usage.evictions:
            room.undo.offer(self.undo)
        full = event.reason == "context" and not event.usage.excess
        if full and room.conversation.overflow == "stop" and not room.conversation.overflow_said:
            self._ask(event.ways)

    # ------------------------------------------------------------------ the command

    def command(self, text: str) -> None:
        """`/overflow [stop|shift|sinks|prune|summarize]`."""
        room, conversation, ready = self._room, self._room.conversation, self._room.desk.engine.ready
        if not text:
            room.transcript.note("\n".join(self._state()))
            return
        try:
            policy = cast(OverflowPolicy, BY_KEY["overflow"].read(text))
        except BadValue as bad:
            room.toast(f"/overflow: {bad.problem}. {bad.hint}")
            return
        problem = impossible(policy, ready) if ready is not None else ""
        if problem:
            room.toast(f"Not with this model: {problem}.")
            return
        full = bool(conversation.messages) and conversation.messages[-1].finish == "context" and policy != "stop"
        said = f"overflow {policy} ({POLICIES[policy]}), from this chat's next answer on."
        more = " /continue goes on with the last one." if full else ""
        room.try_to(lambda: conversation.set_overflow(policy), lambda _: room.toast(said + more), "not set")

    def _state(self) -> list[str]:
        conversation, ready = self._room.conversation, self._room.desk.engine.ready
        lines = [f"overflow {conversation.overflow}: {POLICIES[conversation.overflow]}"]
        if ready is not None and (problem := cannot_evict(ready)):
            lines.append(f"with this model only stop or summarize: {problem}")
        usages = [usage for message in conversation.messages if (usage := read_usage(message)) is not None]
        if left := sum(usage.evicted for usage in usages):
            times = sum(usage.evictions for usage in usages)
            lines.append(f"{tokens_text(left)} left in {times} eviction{'' if times == 1 else 's'}; /undo: the last")
        return lines

    # ------------------------------------------------------------------ the question

    def _ask(self, ways: Sequence[Way]) -> None:
        room, conversation = self._room, self._room.conversation

        def not_asked(error: KvchatError) -> None:
            room.say(error, "not asked")

        def counted(sight: Sight) -> None:
            if room.desk.engine.ready is not None:
                chosen = conversation.summary_choice()
                room.wait(chosen, lambda choice: self._question(conversation, ways, sight, choice), not_asked)

        room.wait(conversation.sight(), counted, not_asked)

    def _question(self, conversation: Conversation, ways: Sequence[Way], sight: Sight, choice: Choice | None) -> None:
        from kvchat.ui.overflow_question import OverflowQuestion  # few chats come to that

        room, ready = self._room, self._room.desk.engine.ready
        rows = [(way.policy, forecast(way, sight, conversation.messages)) for way in ways]
        if ready is not None and choice is not None and not impossible("summarize", ready):
            rows.append(("summarize", summary_forecast(choice)))
        free = conversation is room.conversation and not room.is_busy and room.screen.is_current
        if ready is None or not rows or not free or conversation.overflow_said:
            return
        question = OverflowQuestion(ready.cache.context, [*rows, ("stop", POLICIES["stop"])])
        room.screen.app.push_screen(question, lambda policy: self._take(conversation, policy))

    def _take(self, conversation: Conversation, policy: OverflowPolicy | None) -> None:
        room = self._room
        if policy is None or conversation is not room.conversation:
            return

        def kept(_: None) -> None:
            if policy == "stop" or conversation is not room.conversation or room.is_busy:
                return
            if policy == "summarize":
                self.summaries.make_room()
            else:
                self._sending.resume()

        room.try_to(lambda: conversation.set_overflow(policy), kept, "not set")

    # ------------------------------------------------------------------ the way back

    def undo(self) -> None:
        """Take back the last eviction of the branch, where what it let go can be had again."""
        room, conversation = self._room, self._room.conversation

        def counted(sight: Sight) -> None:
            if conversation is room.conversation:
                self._take_back(conversation, sight)

        room.wait(conversation.sight(), counted, lambda error: room.say(error, "not taken back"))

    def _take_back(self, conversation: Conversation, sight: Sight) -> None:
        room, ready = self._room, self._room.desk.engine.ready
        if sight.last is None and sight.summary is not None:
            self._read_again(conversation, sight.summary)
            return
        if sight.last is None or ready is None:
            room.toast(NOTHING)
            return
        tokens, holds = sight.live + sight.last.tokens, ready.cache.context
        fits = tokens < holds
        if not fits and (conversation.overflow == "stop" or cannot_evict(ready)):
            larger = larger_context(tokens, ready.model.context_trained)
            ways = "" if larger is None else f" /context {larger} makes room, then /undo."
            room.toast(f"It would not fit: the chat had {tokens_text(tokens)}, the context holds {holds:,}.{ways}", 8.0)
            return

        def done(before: Sight) -> None:
            room.sights.look()
            if before.last is not None:
                back, again = tokens_text(before.last.tokens), tokens_text(before.last.behind)
                lines = [
                    f"{back} taken back.",
                    f"What came after them is computed again with the next message: {again}.",
                ]
                if not fits:
                    lines.append(f"The context holds {holds:,}, so some will leave again ({conversation.overflow}).")
                room.transcript.note("\n".join(lines))

        room.try_to(conversation.undo_eviction, done, "not taken back")

    def _read_again(self, conversation: Conversation, summary: Summary) -> None:
        """Take back the summary that stands."""
        room = self._room

        def done(_: None) -> None:
            room.sights.look()
            room.transcript.note(
                f"The summary is taken back: {tokens_text(summary.replaced)} are read themselves again with the next "
                "message, from disk where they are."
            )

        room.try_to(conversation.undo_summary, done, "not taken back")

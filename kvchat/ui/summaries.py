"""Summaries in the app: when one is begun, how it is shown, what becomes of it. Owns which chat has one in the making,
and whether an answer waits for it; must not wait for the disk or the engine.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backend.protocol import Event, Summarized, Summarizing, TurnFinished
from kvchat.chats.types import Summary
from kvchat.conversation import Choice, Conversation, Proposal
from kvchat.conversation.overflow_words import summary_done
from kvchat.conversation.summary_choice import THRESHOLD
from kvchat.errors import KvchatError
from kvchat.ui.room import Room
from kvchat.ui.sending import GOES_ON, Sending
from kvchat.ui.wording import sentences

NONE = "No summary stands in this chat. /summary has one written."


class Summaries:
    """One at a time. It is shown as soon as nobody writes; else a note says that it waits."""

    def __init__(self, room: Room, sending: Sending, undo: Callable[[], object]) -> None:
        """`undo` takes back the one that stands."""
        self._room = room
        self._sending = sending
        self._undo = undo
        self._chat = room.conversation
        self._owner: Conversation | None = None  # whose summary is in the making
        self._goes_on = False  # an answer that ended for want of room goes on after it
        self._quiet = False  # nobody asked for it
        self._left: tuple[Proposal | Summary, str] | None = None  # what was written in one that was not taken then

    def apply(self, event: Event, turn: str | None) -> None:
        """`turn` is the one that was going on when the event came."""
        match event:
            case Summarizing() | Summarized() if self._owner is self._room.conversation:
                self._tell()
            case TurnFinished(turn=finished) if finished == turn:
                self._turned(event)

    def entered(self) -> None:
        """Another chat is shown: what was in the making for the last one is not wanted any more."""
        if self._chat is self._room.conversation:
            return
        if self._owner is not None:
            self._owner.drop_summary()
        self._chat, self._owner, self._goes_on = self._room.conversation, None, False

    # ------------------------------------------------------------------ beginning

    def _turned(self, event: TurnFinished) -> None:
        conversation, ready = self._room.conversation, self._room.desk.engine.ready
        if conversation.overflow != "summarize" or ready is None:
            return
        none = conversation.proposal is None and self._owner is None
        if event.reason == "context":
            self.make_room()
        elif none and event.reason in GOES_ON and event.usage.cells >= THRESHOLD * ready.cache.context:
            self._quiet = True
            self._begin(lambda _: None, lambda _: None)

    def make_room(self) -> None:
        """The context is full: the answer goes on when a summary was taken."""
        room = self._room
        self._goes_on, self._quiet = True, False
        if room.conversation.proposal is not None:
            self._offer()
        elif self._owner is None:

            def begun(choice: Choice) -> None:
                said = f"The context is full. The oldest {choice.messages} messages are being summarized"
                room.transcript.note(f"{said}; you can read and write meanwhile.")

            self._begin(begun, lambda error: room.say(error, "no summary"))
        else:
            room.transcript.note("The context is full. The answer goes on with the summary that is being written.")

    def _begin(self, begun: Callable[[Choice], object], failed: Callable[[KvchatError], object]) -> None:
        room, conversation = self._room, self._room.conversation

        def not_begun(error: KvchatError) -> None:
            if self._owner is conversation:
                self._owner = None
                self._goes_on = False
            failed(error)

        try:
            future = conversation.summarize()
        except KvchatError as error:
            self._goes_on = False
            failed(error)
            return
        self._owner = conversation
        room.wait(future, begun, not_begun)

    # ------------------------------------------------------------------ the end

    def _tell(self) -> None:
        room, conversation = self._room, self._room.conversation
        progress = conversation.summary_progress
        if progress is not None:
            if not room.is_busy:
                room.told = f"summary {progress:.0%}"
            return
        room.told = ""
        self._owner = None
        failure = conversation.summary_failure
        if conversation.proposal is not None:
            self._offer()
        elif failure is not None and not self._quiet:  # else it is tried again when there is need
            self._goes_on = False
            room.transcript.note(f"No summary: {sentences(failure.message, failure.hint)}", "warning")

    def _offer(self) -> None:
        """Show it, or say that it waits."""
        if self._is_free:
            self._show()
        else:
            self._room.transcript.note("A summary of the oldest messages waits: /summary shows it.")

    @property
    def _is_free(self) -> bool:
        """Whether the person can be asked now without taking the keyboard away from a text."""
        room = self._room
        return room.screen.is_current and not room.is_busy and (self._goes_on or not room.prompt.text)

    def _show(self) -> None:
        conversation = self._room.conversation
        proposal = conversation.proposal
        if proposal is None or self._room.is_busy or not self._room.screen.is_current:
            return
        from kvchat.ui.summary_screen import SummaryScreen  # few chats come to that

        words = summary_done(proposal.choice.messages, proposal.choice.replaced, proposal.tokens)
        text = self._text_of(proposal)
        screen = SummaryScreen("A summary", f"If you take it, {words}.", text, conversation.summary_problem)

        def ended(text: str | None) -> None:
            self._left = (proposal, screen.text) if text is None else None
            self._take(conversation, proposal, text)

        self._room.screen.app.push_screen(screen, ended)

    def _text_of(self, summary: Proposal | Summary) -> str:
        """As it was left by the person, else as it is."""
        return self._left[1] if self._left is not None and self._left[0] == summary else summary.text

    def _take(self, conversation: Conversation, proposal: Proposal, text: str | None) -> None:
        room = self._room
        goes_on, self._goes_on = self._goes_on, False
        if conversation is not room.conversation:
            return
        if text is None:
            room.toast("It waits: /summary shows it again, /summary drop forgets it.")
            return

        def taken(_: None) -> None:
            room.sights.look()
            room.undo.offer(self._undo)
            choice, summary = proposal.choice, conversation.summary
            tokens = proposal.tokens if summary is None else summary.tokens
            said = summary_done(choice.messages, choice.replaced, tokens)
            room.transcript.note(f"{said[:1].upper()}{said[1:]}. /summary show shows it, /undo takes it back.")
            if goes_on and conversation is room.conversation and not room.is_busy:
                self._sending.resume()

        room.try_to(lambda: conversation.take_summary(text), taken, "not taken")

    # ------------------------------------------------------------------ the command

    def command(self, text: str) -> None:
        """`/summary [show|drop]`."""
        room, conversation = self._room, self._room.conversation
        if text == "show":
            self._edit(conversation)
        elif text == "drop":
            conversation.drop_summary()
            self._owner, self._goes_on, room.told = None, False, ""
            room.toast("No summary is being written, and none waits.")
        elif text:
            room.toast("/summary takes show, drop, or nothing.")
        elif conversation.proposal is not None:
            self._goes_on = self._goes_on or self._is_cut(conversation)
            self._show()
        elif (progress := conversation.summary_progress) is not None:
            room.toast(f"A summary is being written: {progress:.0%}.")
        else:
            self._goes_on, self._quiet = self._is_cut(conversation), False

            def begun(choice: Choice) -> None:
                room.toast(f"The oldest {choice.messages} messages are being summarized.")

            self._begin(begun, lambda error: room.say(error, "no summary"))

    @staticmethod
    def _is_cut(conversation: Conversation) -> bool:
        """Whether the last answer ended for want of room."""
        return bool(conversation.messages) and conversation.messages[-1].finish == "context"

    def _edit(self, conversation: Conversation) -> None:
        room, summary = self._room, conversation.summary
        if summary is None:
            room.toast(NONE)
            return
        from kvchat.ui.summary_screen import SummaryScreen  # few chats come to that

        def changed(text: str | None) -> None:
            self._left = (summary, screen.text) if text is None else None
            if text is None or text.strip() == summary.text or conversation is not room.conversation:
                return
            said = "Changed. What follows it is computed again with the next message."
            room.try_to(lambda: conversation.edit_summary(text), lambda _: room.toast(said), "not changed")

        words = summary_done(len(conversation.reading.replaced), summary.replaced, summary.tokens)
        title, said = "The summary of this chat", f"{words[:1].upper()}{words[1:]}."
        screen = SummaryScreen(title, said, self._text_of(summary), conversation.summary_problem)
        room.screen.app.push_screen(screen, changed)

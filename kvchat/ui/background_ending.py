"""What is done when answers have ended, and whether they are waited for or stopped. Owns what waits for that.

Answers of all chats count: the open one and those in the background. Must not know what is done then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvchat.conversation import Conversation
from kvchat.ui.background import Background
from kvchat.ui.background_question import AnswersRunning, Purpose, Way
from kvchat.ui.background_words import called, how_many
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.lines import ChipLine
from kvchat.ui.room import Room

LONGEST_GOODBYE = 0.8  # seconds that a stopped turn may take to end before something else happens


@dataclass(slots=True, eq=False)
class _Goodbye:
    """Answers that were stopped, and what is done then."""

    conversations: tuple[Conversation, ...]
    then: Callable[[], object]


class Ending:
    """Stops answers, or waits for their end."""

    def __init__(self, room: Room, background: Background) -> None:
        self._room = room
        self._background = background
        self._goodbyes: list[_Goodbye] = []
        self._question: AnswersRunning | None = None
        self._purpose: Purpose | None = None  # of what is done when all answers have come to their end
        self._then: Callable[[], object] = lambda: None
        self._leaving = False
        self._line: ChipLine | None = None

    @property
    def holds(self) -> bool:
        """Whether no message is sent that waits for an answer: something else is to be done first."""
        return self._purpose is not None or self._leaving

    # ------------------------------------------------------------------ what is wanted

    def after(self, conversations: Iterable[Conversation], then: Callable[[], object]) -> None:
        """Stop what is being written in these, and do `then` when it has ended or takes too long."""
        goodbye = _Goodbye(tuple(each for each in conversations if each.is_working), then)
        if not goodbye.conversations:
            then()
            return
        self._goodbyes.append(goodbye)
        for conversation in goodbye.conversations:
            conversation.stop()
        self._room.sync()
        self._background.settle()
        self.settle()
        if goodbye in self._goodbyes:
            self._room.screen.set_timer(LONGEST_GOODBYE, lambda: self._do(goodbye))

    def leave(self, then: Callable[[], object]) -> None:
        """Stop everything, then `then`: the end of the app."""
        self._leaving = True
        self.after(self._background.answering, then)

    def ask(self, purpose: Purpose, then: Callable[[], object]) -> None:
        """Do `then` at once when nothing is being written, else as the person decides. Who wants to leave twice does
        not want to wait."""
        question = self._question
        if not self._background.answering:
            self._go_on(purpose, then)
        elif self._purpose == purpose:
            self._then = then
            if purpose.leaves:
                self.hurry()
        elif purpose.leaves and question is not None and question.purpose == purpose:
            self._question = None
            self.leave(then)
        else:
            self._push(purpose, then)

    def _push(self, purpose: Purpose, then: Callable[[], object]) -> None:
        question = self._question = AnswersRunning(purpose, self._names())

        def answered(way: Way | None) -> None:
            if self._question is not question:
                return
            self._question = None
            if way is not None:
                self._purpose, self._then = purpose, then
            if way == "stop":
                self.hurry()
            self.settle()

        self._room.screen.app.push_screen(question, answered)

    def hurry(self) -> bool:
        """Stop what is waited for; False when nothing is."""
        purpose, then = self._purpose, self._then
        if purpose is None:
            return False
        self._forget()
        self._leaving = purpose.leaves
        self.after(self._background.answering, then)
        return True

    def stay(self) -> bool:
        """Nothing is waited for any more; False when nothing was."""
        waited = self._purpose is not None
        self._forget()
        return waited

    def _forget(self) -> None:
        self._purpose, self._then = None, lambda: None
        self.show()

    # ------------------------------------------------------------------ what happens

    def settle(self) -> None:
        """To be called when a turn may have ended."""
        for goodbye in tuple(self._goodbyes):
            if not any(each.is_working for each in goodbye.conversations):
                self._do(goodbye)
        if self._background.answering:
            self.show()
        elif self._question is not None:
            self._question.end("finish")
        elif self._purpose is not None:
            purpose, then = self._purpose, self._then
            self._forget()
            self._go_on(purpose, then)

    def _do(self, goodbye: _Goodbye) -> None:
        if goodbye in self._goodbyes:
            self._goodbyes.remove(goodbye)
            goodbye.then()

    def _go_on(self, purpose: Purpose, then: Callable[[], object]) -> None:
        self._leaving = purpose.leaves
        then()

    # ------------------------------------------------------------------ what is shown

    def show(self) -> None:
        """Bring up to date what is said of the answers that are waited for."""
        if self._question is not None:
            self._question.tell(self._names())
        if self._purpose is None:
            if self._line is not None:
                self._line.clear()
            return
        if self._line is None:
            self._line = ChipLine(id="ending")
            self._room.screen.mount(self._line, before=self._room.chip)
        text = f"{how_many(self._background.answering)}, {self._background.tokens:,} tokens"
        keys = told(("{chat.stop} " + self._purpose.left, "{chat.interrupt} stops them"), keys_at(self._room.screen))
        self._line.say(self._purpose.waiting, text, keys)

    def _names(self) -> tuple[str, ...]:
        found = ((each, self._background.state(each)) for each in self._background.answering)
        return tuple(f"{called(each.chat)}  {state.words}" for each, state in found if state is not None)

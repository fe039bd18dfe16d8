"""What chips hold: reads their files, has their tokens counted. Owns what is being read and counted.

The engine counts what a prompt would have, so a text is counted as a prompt of its own, less one of a single letter. It
is asked between turns only. Must not begin a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvchat.backend.protocol import Forecast, Forecasted
from kvchat.backend.values import PromptMessage
from kvchat.chats.ids import new_ulid
from kvchat.errors import KvchatError
from kvchat.ui.chips import FileRef
from kvchat.ui.completing_files import estimate
from kvchat.ui.files_reading import read_block
from kvchat.ui.room import Room
from kvchat.ui.wording import sentences

LETTER = "x"  # one token in every vocabulary


class Measuring:
    """Looks at the prompt when it is told that something changed."""

    def __init__(self, room: Room, read: Callable[[], object]) -> None:
        """`read` is called when more is known of what would be sent."""
        self._room = room
        self._read = read
        self._reading: set[FileRef] = set()
        self._asked: tuple[str, str] | None = None  # the question, and the label that it is about ("" for the letter)
        self._letter: tuple[str, int] | None = None  # text key, and tokens of a prompt with the letter

    def look(self, *, again: bool = False) -> None:
        """Read and count what is not known yet. `again`: what was asked before will not be answered any more."""
        if again:
            self._asked = None
        prompt = self._room.prompt
        if prompt.chips.is_empty:
            return
        for label, file in prompt.chips.unread(prompt.text):
            if file not in self._reading:
                self._reading.add(file)
                self._room.aside(
                    partial(read_block, file), partial(self._known, label, file), partial(self._unreadable, label, file)
                )
        self._count()

    def apply(self, news: Forecasted) -> bool:
        """Take over an answer, if it is to a question from here."""
        if self._asked is None or news.turn != self._asked[0]:
            return False
        label, self._asked = self._asked[1], None
        ready, prompt = self._room.desk.engine.ready, self._room.prompt
        if ready is None:
            return True
        if not label:
            self._letter = (ready.model.text_key, news.tokens)
        elif self._letter is not None:
            tokens = news.tokens - self._letter[1] + 1
            if tokens > 1 and (counted := prompt.chips.count(label, tokens)) != label:
                prompt.relabel(label, counted)
            prompt.chips.settle(label)
        self._count()
        return True

    def _known(self, label: str, file: FileRef, block: str) -> None:
        self._reading.discard(file)
        prompt = self._room.prompt
        prompt.chips.keep_block(file, block)
        if file.first is not None and prompt.chips.is_file(label):
            prompt.relabel(label, prompt.chips.refer(file, estimate(len(block.encode()))))
        self._read()
        self._count()

    def _unreadable(self, label: str, file: FileRef, error: KvchatError) -> None:
        """It is a name in the text again, and the person knows why."""
        self._reading.discard(file)
        self._room.prompt.relabel(label, file.shown)
        self._room.toast(sentences(error.message, error.hint))

    def _count(self) -> None:
        """Ask about the next chip, one at a time."""
        room, ready = self._room, self._room.desk.engine.ready
        if ready is None or room.is_busy:
            self._asked = None
            return
        if self._letter is not None and self._letter[0] != ready.model.text_key:
            self._letter = None
            room.prompt.chips.recount()
        waiting = next(iter(room.prompt.chips.uncounted(room.prompt.text)), None)
        if waiting is None or self._asked is not None:
            return
        label, text = waiting
        if self._letter is None:
            label, text = "", LETTER
        turn = new_ulid()
        self._asked = (turn, label)
        conversation = room.conversation
        messages = (PromptMessage("user", text),)
        question = Forecast(turn, messages, clock=conversation.chat.clock, incognito=conversation.incognito)
        room.desk.store.run(lambda _: room.desk.engine.forecast(question))  # the pipe may be full: not from this thread
